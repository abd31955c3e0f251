"""What is odd about a prepared corpus, at a glance: from the token ids, as training begins."""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Integer, UInt64

from transformer.config import DataConfig
from transformer.data.token_store import TokenPairs
from transformer.model.batch import UNK

AT_ONCE = 1_000_000
"""Sentences whose hashes are taken at once, so that a large corpus takes little memory."""


def first_look(data: DataConfig, pairs: TokenPairs, held_out: TokenPairs) -> str:
    """One line that names what was found; examine() of the doctor says more, from the text."""
    found = list(_findings(data, pairs, held_out))
    return f"first look  {'; '.join(found) or 'nothing odd'} (--doctor looks closer)"


def _findings(data: DataConfig, pairs: TokenPairs, held_out: TokenPairs) -> Iterator[str]:
    lengths = {side: getattr(pairs, f"{side}_lengths") for side in data.sides}
    empty = np.any([length <= 1 for length in lengths.values()], axis=0)
    long = np.any([length > data.max_length for length in lengths.values()], axis=0)
    source, target, whole = _hashes(pairs)
    known = np.unique(whole)
    *_, validation = _hashes(held_out)
    two_sides = len(data.sides) == 2
    counts = {
        "with an empty side": empty.sum(),
        f"longer than data.max_length ({data.max_length})": long.sum(),
        "that repeat an earlier one": len(whole) - len(known),
        "with equal sides": ((source == target) & ~empty).sum()
        if two_sides and data.shared_vocabulary
        else 0,
    }
    noun = "pairs" if two_sides else "texts"
    yield from (f"{noun} {name}: {count:,}" for name, count in counts.items() if count)
    if overlap := np.isin(validation, known).sum():
        yield f"validation {noun} that are in training too: {overlap:,} of {len(validation):,}"
    for side in data.sides:
        ids = getattr(pairs, f"{side}_ids")
        if unknown := int((ids == UNK).sum()):
            yield f"{side} tokens unknown: {unknown / len(ids):.3%}"


def _hashes(
    pairs: TokenPairs,
) -> tuple[UInt64[np.ndarray, "N"], UInt64[np.ndarray, "N"], UInt64[np.ndarray, "N"]]:
    """Of each source, each target and each pair; equal ones have equal hashes, and of others two in
    2^64."""
    source = _row_hashes(pairs.source_ids, pairs.source_offsets)
    target = _row_hashes(pairs.target_ids, pairs.target_offsets)
    return source, target, source * np.uint64(0x9E3779B97F4A7C15) + target


def _row_hashes(
    ids: Integer[np.ndarray, "T"], offsets: Integer[np.ndarray, "N1"]
) -> UInt64[np.ndarray, "N"]:
    """A number drawn for each token, times one drawn for its place, summed modulo 2^64."""
    of_token = _drawn(0, int(ids.max(initial=0)) + 1)
    of_place = _drawn(1, int(np.diff(offsets).max(initial=0)))
    hashes = np.zeros(len(offsets) - 1, np.uint64)
    for first in range(0, len(hashes), AT_ONCE):
        edges = offsets[first : first + AT_ONCE + 1].astype(np.int64)
        row = np.asarray(ids[edges[0] : edges[-1]])
        place = np.arange(edges[0], edges[-1]) - np.repeat(edges[:-1], np.diff(edges))
        sums = np.concatenate([[np.uint64(0)], np.cumsum(of_token[row] * of_place[place])])
        ends = edges - edges[0]
        hashes[first : first + AT_ONCE] = sums[ends[1:]] - sums[ends[:-1]]
    return hashes


def _drawn(seed: int, count: int) -> UInt64[np.ndarray, "N"]:
    """Odd numbers; more of them begin with the same."""
    return np.random.default_rng(seed).integers(2**64, size=count, dtype=np.uint64) | np.uint64(1)
