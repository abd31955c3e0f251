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
            return [
                SearchResult(np.tile(table, (len(source), 1, 1)), np.tile(scores, (len(source), 1)))
                for source, _ in asked
            ]

        monkeypatch.setattr("transformer.decoding.translator.search_series", series)
        config = Config(model=model, decode=replace(DecodeConfig(), **decode))
        translator = make_translator(config, params, Tokenizers(pieces, pieces))
        return hypotheses(translator, sentences, count, prefixes)

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
        ({"max_length": 9}, "raise decode.max_length"),
    ],
)
def test_how_many_are_truncated_is_said_with_the_remedy(
    decode, remedy, small_model, random_params, pieces
):
    config = Config(model=small_model(), decode=DecodeConfig(**decode))
    translator = make_translator(config, random_params(config.model), Tokenizers(pieces, pieces))
    said = truncation(translator, 3, 1200)
    assert said == f"3 of 1,200 translations reached the longest length before their end: {remedy}"


def test_json_says_of_an_output_that_it_is_truncated_and_of_others_nothing():
    request = Request("a dog")
    whole, cut = Answer("Hund"), Answer("Hund", truncated=True)
    assert json.loads(as_json(request, [whole], False)) == {"text": "a dog", "translation": "Hund"}
    said = json.loads(as_json(request, [cut, whole], True))
    assert said["truncated"] is True
    assert [one.get("truncated") for one in said["nbest"]] == [True, None]
