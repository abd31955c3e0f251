"""The fit of confidence, and how often words of each confidence are wrong."""

import json

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from transformer.decoding.confidence import FILE, load_temperature
from transformer.evaluation.confidence import (
    JudgedWords,
    as_table,
    best_match,
    by_confidence,
    calibration_error,
    fit_temperature,
    judged,
    likelihood,
    save_temperature,
)


def drawn(power, count=20_000):
    """Words that are right as often as a power of their probability says, and the same words with
    that power of it."""
    generator = np.random.default_rng(0)
    log_probs = -generator.exponential(0.5, count)
    right = generator.random(count) < np.exp(power * log_probs)
    return JudgedWords(log_probs, right), JudgedWords(power * log_probs, right)


@pytest.mark.parametrize("power", [0.2, 1.0, 3.0])
def test_the_likeliest_of_several_is_the_one_that_made_the_words(power):
    plain, calibrated = drawn(power)
    choices = {n: JudgedWords(n * calibrated.log_probs, calibrated.right) for n in (0.7, 1.0, 1.4)}
    assert fit_temperature(choices) == 1.0
    assert calibration_error(calibrated) < 0.015
    assert power == 1.0 or calibration_error(plain) > 0.1
    for least, most, count, wrong in by_confidence(calibrated):
        if count > 500:
            assert 1 - most - 0.04 < wrong < 1 - least + 0.04


def test_words_that_are_all_right_or_certain_do_not_break_the_fit():
    for right in (True, False):
        words = JudgedWords(np.array([0.0, -0.1]), np.array([right, right]))
        assert np.isfinite(likelihood(words))
    lines = as_table(JudgedWords(np.array([0.0, -3.0]), np.array([True, False])))
    assert [line.split() for line in lines[1:3]] == [
        ["0.00", "to", "0.50", "1", "100.0%"], ["0.99", "to", "1.00", "1", "0.0%"],
    ]  # fmt: skip
    assert lines[3] == "expected calibration error 0.025"


def test_words_are_right_where_they_stand_in_the_reference():
    words = ["the", "old", "dog", "sees", "the", "cat"]
    assert best_match(words, [["the", "dog", "sees", "a", "cat"]]) == [1, 0, 1, 1, 0, 1]
    both = [["a", "mouse"], ["the", "old", "dog", "sees", "nothing"]]
    assert best_match(words, both) == [1, 1, 1, 1, 0, 0]
    assert best_match(words, [[]]) == [0] * 6 and best_match([], ["a"]) == []


@given(st.lists(st.sampled_from("abc")), st.lists(st.sampled_from("abc")))
def test_a_match_is_a_common_subsequence(own, reference):
    marks = best_match(own, [reference])
    rest = iter(reference)
    assert all(text in rest for text, is_right in zip(own, marks) if is_right)


def test_words_are_judged_beside_the_references_of_their_sentence():
    translations = [[("a", -0.5), ("b", -1.0)], [], [("c", -2.0)]]
    references = [(["a", "c"], ["b"]), (["a"], []), (["b"], ["c", "c"])]
    words = judged(translations, references)
    assert words.log_probs.tolist() == [-0.5, -1.0, -2.0]
    assert words.right.tolist() == [True, False, True]


def test_what_is_fitted_is_kept(tmp_path):
    save_temperature(tmp_path / FILE, 0.7, "best")
    assert load_temperature(tmp_path, "best") == 0.7 and load_temperature(tmp_path, "20") == 1
    assert json.loads((tmp_path / FILE).read_text())["checkpoint"] == "best"
