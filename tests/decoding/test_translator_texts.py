"""What becomes of the tokens that a search finds: texts, and what is known of them."""

import json
from dataclasses import replace

import numpy as np
import pytest

from transformer.config import Config, DecodeConfig
from transformer.data.tokenizer import train_tokenizer
from transformer.data.vocabularies import Tokenizers
from transformer.decoding.requests import Answer, Request, as_json
from transformer.decoding.search import IMPOSSIBLE, SearchResult
from transformer.decoding.translator import hypotheses, make_translator, truncation
from transformer.model.batch import EOS, PAD

TEXTS = ["the cat sleeps", "a dog sees the old cat", "we see"]


@pytest.fixture(scope="module")
def pieces():
    """A vocabulary that can spell a word in several ways."""
    return train_tokenizer(TEXTS * 5, "bpe", 40)


@pytest.fixture
def found(pieces, small_model, random_params, monkeypatch):
    """The hypotheses of sentences where every search finds these rows of tokens, best first."""
    size = pieces.vocab_size
    model = small_model(source_vocab_size=size, target_vocab_size=size)
    params = random_params(model)

    def find(rows, sentences, count=1, prefixes=None, **decode):
        width = max(map(len, rows))
        table = np.array([[*row, *[PAD] * (width - len(row))] for row in rows])
        scores = np.where(table.any(1), -1.0 - np.arange(len(rows)), IMPOSSIBLE)

        def series(ensemble, settings, asked, wanted):
            find.wanted.append(wanted)
            results = []
            for source, given, *_ in asked:
                find.given.append(given)
                repeated = np.tile(table, (len(source), 1, 1)), np.tile(scores, (len(source), 1))
                results.append(SearchResult(*repeated))
            return results

        monkeypatch.setattr("transformer.decoding.translator.search_series", series)
        config = Config(model=model, decode=replace(DecodeConfig(), **decode))
        translator = make_translator(config, params, Tokenizers(pieces, pieces))
        return hypotheses(translator, sentences, count, prefixes)

    find.wanted, find.given = [], []
    return find


def test_an_output_that_reached_the_limit_before_its_end_is_truncated(found, pieces):
    [ids] = pieces.encode(["we see"])
    for row, decode, truncated in (
        ([*ids, EOS], {}, False),
        (ids, {}, True),
        ([*ids, EOS], {"forced_end": True}, False),
        ([*ids, EOS], {"forced_end": True, "max_length": len(ids) + 1}, True),
    ):
        [[one], [blank]] = found([row], ["a dog", ""], **decode)
        assert (one.text, one.truncated, blank.truncated) == ("we see", truncated, False)


def test_a_text_of_which_a_part_is_truncated_is_truncated(found, pieces):
    rows, longest = pieces.encode(["we see"]), len(pieces.encode(["the cat sleeps."])[0])
    texts = ["the cat sleeps. we see."]
    [[one]] = found(rows, texts, max_source_length=longest)
    assert one.truncated and one.tokens == (*rows[0], EOS, *rows[0])
    [[one]] = found([[*rows[0], EOS]], texts, max_source_length=longest)
    assert not one.truncated and one.tokens == (*rows[0], EOS, *rows[0], EOS)


@pytest.mark.parametrize(
    ("decode", "remedy"),
    [
        ({}, "raise decode.max_extra_length"),
        ({"max_length": 9}, "raise decode.max_extra_length and decode.max_length"),
    ],
)
def test_how_many_are_truncated_is_said_with_the_remedy(
    decode, remedy, small_model, random_params, pieces
):
    config = Config(model=small_model(), decode=DecodeConfig(**decode))
    translator = make_translator(config, random_params(config.model), Tokenizers(pieces, pieces))
    said = truncation(translator, 3, 1200)
    assert said == f"3 of 1,200 translations were truncated at the longest length: {remedy}"


def test_json_says_of_an_output_that_it_is_truncated_and_of_others_nothing():
    request = Request("a dog")
    whole, cut = Answer("Hund"), Answer("Hund", truncated=True)
    assert json.loads(as_json(request, [whole], False)) == {"text": "a dog", "translation": "Hund"}
    said = json.loads(as_json(request, [cut, whole], True))
    assert said["truncated"] is True
    assert [one.get("truncated") for one in said["nbest"]] == [True, None]


def spelled(pieces, text):
    """A text by its characters, where `encode` has longer pieces."""
    ids = {name: number for number in range(pieces.vocab_size) for name in pieces.pieces([number])}
    return [ids[character] for character in "\u2581" + text.replace(" ", "\u2581")]


def test_a_list_of_the_best_has_each_text_once_with_its_best_score(found, pieces):
    see, dog = pieces.encode(["we see", "a dog"])
    assert spelled(pieces, "we see") != see
    rows = [[*see, EOS], [*spelled(pieces, "we see"), EOS], [*dog, EOS], see, []]
    for count, texts in ((1, ["we see"]), (2, ["we see", "a dog"]), (4, ["we see", "a dog"])):
        [of_one] = found(rows, ["the cat"], count)
        assert [one.text for one in of_one] == texts
        assert [one.score for one in of_one] == [-1.0, -3.0][: len(texts)]


@pytest.mark.parametrize(("count", "wanted"), [(1, 1), (2, 4), (4, 4)])
def test_a_list_of_the_best_is_searched_for_with_the_whole_beam(found, pieces, count, wanted):
    found([[*pieces.encode(["we see"])[0], EOS]], ["the cat"], count)
    assert found.wanted == [wanted]


@pytest.mark.parametrize(
    ("prefix", "text"),
    [
        ("we", "we see"),
        ("we see", "we see"),  # nothing is added
        ("we s", "we see"),  # inside a word
        ("we  ", "we  see"),
        (" we", " we see"),
        ("WE", "WE see"),  # unknown to the vocabulary, as are those below
        ("we \N{BAR OF SOAP}", "we \N{BAR OF SOAP} see"),
        ("we\u2028", "we\u2028see"),
        ("\N{BAR OF SOAP}\n", "\N{BAR OF SOAP}\nsee"),
    ],
)
def test_a_translation_begins_with_its_prefix_as_it_was_typed(found, pieces, prefix, text):
    [given], [whole] = pieces.encode([" ".join(prefix.split())]), pieces.encode(["we see"])
    added = whole[len(given) :] if whole[: len(given)] == given else spelled(pieces, "see")
    added = spelled(pieces, "ee")[1:] if prefix == "we s" else added
    [[one]] = found([[*given, *added, EOS]], ["  a dog "], prefixes=[prefix])
    assert one.text == text + " "
    assert found.given[0][0][: len(given)].tolist() == given


def test_a_truncated_prefix_is_what_was_read_of_it(found, pieces):
    [given] = pieces.encode(["we see a dog"])
    with pytest.warns(UserWarning, match="prefix of"):
        [[one]] = found([[*given[:3], EOS]], ["a dog"], prefixes=["we see a dog"], max_length=4)
    assert one.text == pieces.decode([given[:3]])[0]


@pytest.mark.parametrize(
    ("text", "translation"),
    [
        ("a dog\nthe cat", "we see\nwe see"),
        ("a dog\r\n\r\nthe cat\r\n", "we see\r\n\r\nwe see\r\n"),
        ("\n a dog\u2028the cat\v\fa\x85", "\n we see\u2028we see\v\fwe see\x85"),
        ("\ta dog \u3000", "\twe see \u3000"),
        ("a dog\x1cthe cat", "we see"),
        ("", ""),
        ("  ", "  "),
        (" \n", " \n"),
        ("\r", "\r"),
    ],
)
def test_lines_their_separators_and_blanks_stay(found, pieces, text, translation):
    [row] = pieces.encode(["we see"])
    [[one], [other]] = found([[*row, EOS]], [text, "a dog"])
    assert (one.text, other.text) == (translation, "we see")


def test_a_prefix_begins_the_first_line_that_has_a_word(found, pieces):
    [row] = pieces.encode(["we see"])
    [[one]] = found([[*row, EOS]], ["\na dog\nthe cat"], prefixes=["we"])
    assert one.text == "\nwe see\nwe see"
    assert one.tokens == (EOS, *row, EOS, *row, EOS)  # for the alignment of each line


def test_a_translation_is_one_line_where_its_text_is(found, pieces, monkeypatch):
    [row] = pieces.encode(["we see"])
    monkeypatch.setattr(type(pieces), "decode", lambda self, rows: ["a\nb\u2028c"] * len(rows))
    [[one]] = found([[*row, EOS]], ["a dog"])
    assert one.text == "a b c"


def test_a_line_without_letters_is_its_own_translation_where_the_training_pairs_copy_it(
    found, pieces
):
    [row] = pieces.encode(["we see"])
    texts = ["-", "***", " 00:01:02,000 --> 00:01:04,000\t", "\N{BAR OF SOAP}\na dog\n\u2026", "3a"]
    copied = [*texts[:3], "\N{BAR OF SOAP}\nwe see\n\u2026", "we see"]
    answers = found([[*row, EOS]], texts, copy_without_letters=True)
    assert [one.text for [one] in answers] == copied
    assert answers[0][0].log_prob == 0 and not answers[0][0].truncated
    assert answers[3][0].tokens == (EOS, *row, EOS)
    [[told]] = found([[*row, EOS]], ["-"], prefixes=["we"], copy_without_letters=True)
    assert told.text == "we see"
    assert [one.text for [one] in found([[*row, EOS]], ["-", "3"])] == ["we see", "we see"]


def test_a_long_line_without_letters_is_copied_whole(found, pieces, recwarn):
    [row] = pieces.encode(["we see"])
    [[one]] = found([row], ["-" * 99], copy_without_letters=True, max_source_length=9)
    assert one.text == "-" * 99 and not recwarn.list


def test_a_line_in_capitals_is_read_in_the_usual_case_and_translated_into_capitals(
    found, pieces, monkeypatch
):
    [row] = pieces.encode(["we see"])
    read = []
    monkeypatch.setattr(
        "transformer.decoding.translator.with_case_restored",
        lambda tokenizer, text: read.append(text) or text.lower(),
    )
    texts = ["THE CAT SLEEPS", "the cat\n A DOG SEES\t", "CAT", "The CAT sleeps"]
    answers = found([[*row, EOS]], texts, restore_case=True)
    assert read == ["THE CAT SLEEPS", " A DOG SEES\t"]
    assert [one.text for [one] in answers] == ["WE SEE", "we see\n WE SEE\t", "we see", "we see"]
    assert answers[0][0].tokens == (*row, EOS)
    assert [one.text for [one] in found([[*row, EOS]], texts[:1])] == ["we see"]
    [[begun]] = found([[*row, EOS]], texts[:1], prefixes=["we"], restore_case=True)
    assert begun.text == "we SEE" and len(read) == 3
