"""Confidence of words: the chain rule, words of translations, and what eval.py has fitted."""

import math
from dataclasses import replace

import numpy as np
import pytest

from transformer.data.tokenizer import train_tokenizer
from transformer.decoding.confidence import (
    FILE,
    load_temperature,
    mean_confidence,
    split_words,
    word_log_probs,
    words_with_confidence,
)
from transformer.decoding.scoring import score_pairs
from transformer.decoding.translator import hypotheses, make_translator

SOURCES = ["the old dog sees a cat", "", "a red house\nthe dog"]


@pytest.fixture(scope="module")
def found(models):
    translator = make_translator(*models["translator"])
    return translator, [best for best, *_ in hypotheses(translator, SOURCES, 1)]


def test_words_have_the_probability_of_their_pieces(found):
    translator, best = found
    words = word_log_probs(translator, SOURCES, [one.tokens for one in best])
    [scored] = score_pairs(translator, SOURCES[:1], [best[0].text])
    total = sum(word.log_prob for word in words[0])
    assert total == pytest.approx(sum(scored.log_probs[:-1]), abs=1e-4)
    assert [word.text for word in words[0]] == best[0].text.split()
    assert words[1] == []
    assert [word.text for word in words[2]] == best[2].text.split()


def test_confidence_is_the_probability_at_a_temperature(found):
    translator, best = found
    tokens = [one.tokens for one in best]
    plain = words_with_confidence(translator, SOURCES, tokens)
    for own, words in zip(word_log_probs(translator, SOURCES, tokens), plain):
        assert [(word.text, math.exp(word.log_prob)) for word in own] == words
    sharper = words_with_confidence(replace(translator, temperature=0.3), SOURCES, tokens)
    flat = words_with_confidence(replace(translator, temperature=1e6), SOURCES, tokens)
    assert [[text for text, _ in words] for words in sharper] == [
        [text for text, _ in words] for words in plain
    ]
    assert mean_confidence(flat[0]) < mean_confidence(plain[0]) < mean_confidence(sharper[0])
    target = translator.tokenizers.target
    pieces = [len(row) for row in target.encode([text for text, _ in flat[0]])]
    expected = [target.vocab_size ** -float(count) for count in pieces]
    np.testing.assert_allclose([chance for _, chance in flat[0]], expected, rtol=1e-3)
    assert mean_confidence([("a", 0.5), ("b", 1.0)]) == 0.75
    assert mean_confidence([]) == 1.0


def test_in_scripts_without_spaces_each_piece_is_a_word():
    tokenizer = train_tokenizer(["今天下雨 ok now", "我们走 ok now"] * 9, "unigram", 30)
    [words] = split_words(tokenizer, ["今天下雨 ok 我们走"])
    assert "".join(words) == "今天下雨ok我们走" and "ok" in words
    assert len(words) > 3


@pytest.mark.parametrize(
    "text, value",
    [
        (None, 1.0), ("{", 1.0), ("[]", 1.0), ('{"temperature": 0.5, "checkpoint": "best"}', 0.5),
        ('{"temperature": 0.5, "checkpoint": "20"}', 1.0), ('{"temperature": 0.5}', 1.0),
        ('{"temperature": -1, "checkpoint": "best"}', 1.0),
        ('{"temperature": "x", "checkpoint": "best"}', 1.0),
        ('{"temperature": NaN, "checkpoint": "best"}', 1.0),
    ],
)  # fmt: skip
def test_what_is_not_fitted_or_damaged_is_one(tmp_path, text, value):
    if text is not None:
        (tmp_path / FILE).write_text(text)
    assert load_temperature(tmp_path, "best") == value
