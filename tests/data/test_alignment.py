"""Files whose lines do not belong together, by lengths alone."""

import numpy as np
import pytest

from transformer.data.alignment import alignment_warning


def lengths(count=2_000, ratio=0.4, noise=0.4, seed=0):
    """Of a corpus: about log-normal, as sentences are."""
    generator = np.random.default_rng(seed)
    source = np.exp(generator.normal(3.5, 0.6, count))
    target = ratio * source * np.exp(generator.normal(0, noise, count))
    return source.astype(int), target.astype(int)


@pytest.mark.parametrize("ratio", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("count", [100, 10_000])
def test_what_belongs_together_is_not_doubted(count, ratio):
    assert alignment_warning(*lengths(count, ratio)) == ""


@pytest.mark.parametrize("shift, words", [(1, "1 line further down"), (-3, "3 lines further up")])
def test_a_shift_is_reported_with_its_first_line(shift, words):
    source, target = lengths()
    assert words in alignment_warning(source, np.roll(target, shift))
    later = np.concatenate([target[:1_500], np.roll(target[1_500:], shift)])
    said = alignment_warning(source, later)
    first = int(said.split()[4].replace(",", ""))
    assert words in said and abs(first - 1_500) < 20


def test_two_neighbours_of_unusual_length_are_not_a_shift():
    source, target = lengths()
    source[700] = target[701] = 100_000
    assert alignment_warning(source, target) == ""


def test_a_reversed_or_shuffled_side_is_reported():
    source, target = lengths()
    assert "reversed order" in alignment_warning(source, target[::-1])
    shuffled = np.random.default_rng(1).permutation(target)
    assert "do not seem to belong together" in alignment_warning(source, shuffled)
    source, target = lengths(8_000)
    later = np.random.default_rng(1).permutation(target[4_000:])
    said = alignment_warning(source, np.concatenate([target[:4_000], later]))
    assert "do not seem to belong together" in said and said.startswith("lines of pairs")


@pytest.mark.parametrize(
    "sides",
    [
        (np.full(500, 7), np.arange(500)),  # a column of ids
        (np.zeros(500, int), np.zeros(500, int)),
        (np.arange(3), np.arange(3)[::-1]),
        tuple(np.tile(side, 2) for side in lengths(300)),  # files concatenated twice
        tuple(np.sort(side) for side in lengths(300)),  # sorted by length
    ],
)
def test_where_lengths_cannot_tell_nothing_is_said(sides):
    assert alignment_warning(*sides) == ""
