"""Blanks: how many, what stands in them, and what is asked."""

import numpy as np
import pytest

from transformer.data.masking import masked
from transformer.model.batch import EOS, PAD, UNK

VOCABULARY = 50


@pytest.fixture(scope="module")
def batch():
    """Sentences of 0 to 40 tokens, and the same with blanks."""
    generator = np.random.default_rng(0)
    source = np.full((4000, 41), PAD, np.int32)
    for row, length in enumerate(generator.integers(0, 41, 4000)):
        source[row, : length + 1] = [*generator.integers(UNK + 1, VOCABULARY, length), EOS]
    return source, masked(source, VOCABULARY, np.random.default_rng(1))


def test_fifteen_of_a_hundred_tokens_are_asked_for_and_one_at_least(batch):
    source, blanks = batch
    tokens = (source > UNK).sum(1)
    expected = np.where(tokens == 0, 0, np.maximum(np.round(0.15 * tokens), 1))
    np.testing.assert_array_equal((blanks.target_out != PAD).sum(1), expected)


def test_what_is_unknown_already_is_not_asked_for():
    source = np.full((100, 20), UNK, np.int32)
    source[:, -2:] = [7, EOS]
    blanks = masked(source, VOCABULARY, np.random.default_rng(0))
    assert (blanks.target_out[:, -2] == 7).all() and (blanks.target_out != PAD).sum() == 100


def test_what_is_asked_for_is_what_stood_there_and_nothing_else_has_changed(batch):
    source, blanks = batch
    asked = blanks.target_out != PAD
    np.testing.assert_array_equal(blanks.target_out[asked], source[asked])
    np.testing.assert_array_equal(blanks.source[~asked], source[~asked])
    assert (source[asked] > UNK).all() and blanks.target_in is None
    assert blanks.source.dtype == blanks.target_out.dtype == np.int32


def test_eight_of_ten_are_hidden_one_is_another_word_and_one_stays(batch):
    source, blanks = batch
    asked = blanks.target_out != PAD
    before, after = source[asked], blanks.source[asked]
    others = (after != before) & (after != UNK)
    assert np.mean(after == UNK) == pytest.approx(0.8, abs=0.02)
    assert np.mean(others) == pytest.approx(0.1 * 45 / 46, abs=0.015)
    assert set(after[others]) == set(range(UNK + 1, VOCABULARY))


def test_every_place_is_as_likely_and_other_chances_choose_others(batch):
    source, blanks = batch
    long = (source > UNK).sum(1) == 40
    shares = (blanks.target_out[long][:, :40] != PAD).mean(0)
    assert shares.min() > 0.02 and shares.max() < 0.4
    again = masked(source, VOCABULARY, np.random.default_rng(1))
    other = masked(source, VOCABULARY, np.random.default_rng(2))
    np.testing.assert_array_equal(again.source, blanks.source)
    assert (other.target_out != blanks.target_out).any()
