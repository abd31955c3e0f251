"""How long translations may become, from the lengths of the training pairs."""

import io
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import sentencepiece
from pairs import token_pairs

from transformer.config import Config, DataConfig, DecodeConfig
from transformer.data import storage
from transformer.data.derived import (
    copies_without_letters,
    length_limits,
    with_derived,
)
from transformer.data.token_store import encoded
from transformer.data.tokenizer import Tokenizer, has_letters, train_tokenizer
from transformer.data.vocabularies import Tokenizers
from transformer.decoding.batches import longest_output

CONFIG = Config(data=DataConfig(max_length=256))
TOKENIZERS = Tokenizers(*[train_tokenizer(["abcde 0123456789 .,-*:"], "char", 40)] * 2)


def limit(config, source):
    return longest_output([config.model], config.decode, source)


def test_pairs_of_like_lengths_leave_the_limit_as_it_is():
    source = np.arange(1, 101)
    pairs = token_pairs(source, np.minimum(2 * source, source + 40))
    assert length_limits(CONFIG, pairs) == (1.0, 0)
    assert length_limits(CONFIG, token_pairs([], [])) == (1.0, 0)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (np.arange(1, 21), 10 * np.arange(1, 21)),  # digits to words, by characters
        (np.arange(1, 101), np.full(100, 200)),  # a headline and an article
        (np.array([1] * 500), np.arange(1, 501) % 250),  # words and what they mean
    ],
)
def test_all_training_targets_are_within_the_limit(source, target, monkeypatch):
    monkeypatch.setattr(storage, "SLICE", 7)  # looked at in parts
    ratio, longest = length_limits(CONFIG, token_pairs(source, target))
    config = replace(CONFIG, decode=DecodeConfig(length_ratio=ratio, longest_target=longest))
    limits = np.array([limit(config, int(n)) for n in source])
    assert (limits > target).all()  # EOS
    # It bounds what a source that is longer than all others may become.
    assert limit(config, 250) <= max(250, target.max() + 1) + 50
    assert limit(config, 1000) == 1000 + 50


def test_a_few_pairs_that_are_no_translations_or_left_out_do_not_count():
    source, target = np.full(5000, 20), np.full(5000, 25)
    target[:4] = 240
    assert length_limits(CONFIG, token_pairs(source, target)) == (1.0, 0)
    target[4:9] = 240
    assert length_limits(CONFIG, token_pairs(source, target)) == (9.6, 241)
    assert length_limits(CONFIG, token_pairs([3, 0, 5], [400, 100, 5])) == (1.0, 0)


def test_what_a_run_has_of_its_training_pairs_is_taken_over_when_it_goes_on():
    derived = {"length_ratio": 2.5, "longest_target": 99, "copy_without_letters": True}
    run = replace(CONFIG, decode=DecodeConfig(beam_size=7, **derived))
    assert CONFIG.with_derived_of(run).decode == DecodeConfig(**derived)


@pytest.mark.parametrize(
    ("texts", "copies"),
    [
        ([], True),
        ([("-", "-"), ("12:30", "12 : 30"), ("***", "*")], True),
        ([("12", "a b"), ("3", "c"), ("4.5", "d")], False),  # digits to words
        ([("123", "321"), ("11", "11"), ("405", "504")], False),  # reversed
        ([("-", "-"), ("1", "1"), ("1.5", "1,5")], True),
        ([("-", "a"), ("\N{BAR OF SOAP}", "\N{BAR OF SOAP}"), ("\xe9", "\xe9")], False),
    ],
)
def test_training_pairs_say_whether_a_text_without_letters_is_its_translation(
    texts, copies, monkeypatch
):
    monkeypatch.setattr(storage, "SLICE", 2)
    with_letters = [("a 1", "b"), ("ab", "c" * 99), ("e", "")]
    pairs = encoded(CONFIG.data, TOKENIZERS, [*with_letters, *texts, *with_letters, ("", "a")])
    assert copies_without_letters(TOKENIZERS, pairs) is copies
    derived = {"length_ratio": 17.0, "longest_target": 101, "copy_without_letters": copies}
    derived["restore_case"] = True
    assert with_derived(CONFIG, TOKENIZERS, pairs).decode == DecodeConfig(**derived)


@pytest.mark.parametrize(
    ("capitals", "settings", "restores"),
    [
        (0, {}, True), (1, {}, True), (2, {}, False),
        (0, {"upper_case": 0.1}, False), (0, {"lowercase": True}, False),
        (0, {"target": "tur"}, False), (0, {"source": "az-Latn"}, False),
    ],
)  # fmt: skip
def test_case_is_restored_unless_the_training_text_has_capitals(capitals, settings, restores):
    pairs = [("ab cd", "e")] * (150 - capitals) + [("AB CD", "E")] * capitals
    config = replace(CONFIG, data=replace(CONFIG.data, **settings))
    tokenizer = train_tokenizer(["ab cd e", "AB CD E"], "char", 20)
    both = Tokenizers(tokenizer, tokenizer)
    decode = with_derived(config, both, encoded(config.data, both, pairs)).decode
    assert decode.restore_case is restores


def test_tags_are_no_letters():
    data = DataConfig(target="de", targets=("de", "fr"))
    tokenizer = train_tokenizer([">>de<< 1.10", ">>fr<< 1,10"], "char", 40, data)
    model = io.BytesIO()  # in which a blank before a tag is a token of its own
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([">>de<< 1.10", ">>fr<< 1,10"]),
        model_writer=model,
        model_type="char",
        vocab_size=20,
        hard_vocab_limit=False,
        user_defined_symbols=[">>de<<", ">>fr<<"],
        minloglevel=2,
    )
    elsewhere = Tokenizer(model.getvalue())
    assert [len(row) for row in tokenizer.tag_rows] == [1, 1]
    assert [len(row) for row in elsewhere.tag_rows] == [2, 2]
    for model, (target, copies) in product(
        (tokenizer, elsewhere), (("1,10", False), ("1.10", True))
    ):
        both = Tokenizers(model, model)
        pairs = encoded(data, both, [(">>de<< 1.10", target)] * 9)
        assert copies_without_letters(both, pairs) is copies


@pytest.mark.parametrize(
    "text",
    ["-", "00:01:02,000 --> 00:01:04,000", "\u2026", "\N{BAR OF SOAP}", "\u0663", "\u2167", ""],
)
def test_texts_without_letters(text):
    assert not has_letters(text)
    assert all(has_letters(f"{text}{letter}") for letter in "a\xdf\u4e2d\u0e01\u0645\u02b0\u01c5")
