"""Lines in capitals, and the case that a vocabulary gives to their words."""

import pytest

from transformer.config import DataConfig
from transformer.data.capitals import in_capitals, in_upper_case, with_case_restored
from transformer.data.datasets.phrasebook.splits import splits
from transformer.data.tokenizer import train_tokenizer

SIZES = {"train": 1_500, "validation": 1, "test": 150}


@pytest.fixture(scope="module")
def phrasebook():
    """Sentences in English and German to train a vocabulary on, and others."""
    found = splits(seed=1, sizes=SIZES)
    return [[text for one in found[name] for text in one[:2]] for name in ("train", "test")]


@pytest.mark.parametrize("text", ["NATO UND EU", "AB, CD!", "ПРИВЕТ МИР", "ÉTÉ À NICE", "12 AB CD"])
def test_lines_in_capitals(text):
    assert in_capitals(text)


@pytest.mark.parametrize(
    "text",
    [
        "", "USA", "USA 2020", "A B", "Hello WORLD", "hello", "10:30", "今天 我们", "It IS SO",
        "请把 USB 插入 TV", "나는 TV 를 USB", "हिन्दी TV USB", "USB TV هذا",
    ],
)  # fmt: skip
def test_other_lines(text):
    assert not in_capitals(text)


@pytest.mark.parametrize("kind", ["unigram", "bpe", "word"])
def test_words_get_the_case_that_the_vocabulary_knows(phrasebook, kind):
    train, others = phrasebook
    tokenizer = train_tokenizer(train, kind, 2_000)
    words = [
        pair
        for text in others
        for pair in zip(text.split(), with_case_restored(tokenizer, text.upper()).split())
    ]
    assert sum(own == restored for own, restored in words) > 0.95 * len(words)


def test_symbols_stay_and_words_that_the_vocabulary_knows_only_in_lower_case_are_low():
    data = DataConfig(user_symbols=("<NAME>",))
    tokenizer = train_tokenizer(["the cat sees <NAME> and me"] * 50, "bpe", 60, data)
    assert with_case_restored(tokenizer, "CAT SEES <NAME> AND ME. THE CAT") == (
        "cat sees <NAME> and me. the cat"
    )
    assert in_upper_case(tokenizer, "the <NAME> straße") == "THE <NAME> STRASSE"


def test_what_stands_around_words_stays(phrasebook):
    tokenizer = train_tokenizer(phrasebook[0], "unigram", 2_000)
    text = "\t The woman, 12 the: I\u201c. \u201eThe  house is new! The\n"
    assert with_case_restored(tokenizer, text.upper()) == text
