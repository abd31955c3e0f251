"""The data summary at the start of a run: what is odd about the training pairs, in one line.

It is computed from the token ids, and the text of a sample."""

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from jaxtyping import UInt64

from transformer.config import DataConfig
from transformer.data.alignment import alignment_warning
from transformer.data.size import SAMPLE
from transformer.data.storage import hash_partitions, slices
from transformer.data.token_store import Sentences, TokenPairs
from transformer.model.batch import UNK

EMPTY, LONG, REPEATED, EQUAL, UNTAGGED = (
    "with an empty side",
    "longer than data.max_length",
    "that repeat an earlier one",
    "with equal sides",
    "whose source has no target tag of the vocabulary",
)
"""What is counted of pairs."""

NOTICEABLE = 0.1
"""The fraction of them that must seem cut or escaped by another tool to be mentioned."""

MOST_ALIGNED = 1_000_000
"""Pairs whose lengths are compared."""

MARKS = {
    "cut into subwords": re.compile(r"\u2581\w|\w@@(?: |$)|(?:^| )##\w"),
    "tokenised or escaped": re.compile(
        r"[^\W\d_] [,.](?: |$)| @-@ |&(?:apos|quot|amp|lt|gt|nbsp|#\d+|#x[0-9a-fA-F]+);"
    ),
}
"""What another tool has done to a text, and its marks, which would count as errors in translations:
of SentencePiece, subword-nmt, WordPiece; of Moses, HTML."""


def data_summary(
    data: DataConfig,
    pairs: TokenPairs,
    held_out: TokenPairs,
    tags: Sequence[Sequence[int]] = (),
    sample: Sequence[tuple[str, str]] = (),
) -> str:
    """One line; the doctor finds more. `tags` are the rows of tokens with which a source should
    begin, if the vocabulary has any; `sample` is the text of some of the pairs."""
    found = [*_findings(data, pairs, held_out, tags), *_processed(sample)]
    if len(data.sides) == 2:
        first = pairs.part(slice(0, MOST_ALIGNED))
        warning = alignment_warning(first.source.lengths, first.target.lengths)
        found += [warning] * bool(warning)
    return f"summary     {'; '.join(found) or 'nothing odd'} (--doctor finds more)"


def _findings(
    data: DataConfig, pairs: TokenPairs, held_out: TokenPairs, tags: Sequence[Sequence[int]]
) -> Iterator[str]:
    counts: Counter[str] = Counter()
    validation = np.concatenate([_hashes(held_out.part(part))[2] for part in slices(len(held_out))])
    overlap = 0
    for these in hash_partitions(_examine(data, pairs, tags, counts), np.uint64, len(pairs)):
        known = np.unique(these)
        counts[REPEATED] += len(these) - len(known)
        overlap += int(np.isin(validation, known).sum())
    noun = "pairs" if len(data.sides) == 2 else "texts"
    for name in (EMPTY, LONG, REPEATED, EQUAL, UNTAGGED):
        if counts[name]:
            limit = f" ({data.max_length})" * (name == LONG)
            yield f"{noun} {name}{limit}: {counts[name]:,}"
    if overlap:
        yield f"validation {noun} that are in training too: {overlap:,} of {len(validation):,}"
    for side in data.sides:
        if counts[side]:
            yield f"{side} tokens unknown: {counts[side] / len(getattr(pairs, side).ids):.3%}"


def sample_of(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """The first of the pairs, whose text is examined."""
    return list(itertools.islice(pairs, SAMPLE))


def processing_of(text: str) -> Iterator[str]:
    """What seems to have been done to a text, as keys of MARKS."""
    return (name for name, mark in MARKS.items() if mark.search(text))


def _processed(sample: Sequence[tuple[str, str]]) -> Iterator[str]:
    counts = Counter(mark for pair in sample for mark in set().union(*map(processing_of, pair)))
    for mark, count in counts.items():
        if count > len(sample) * NOTICEABLE:
            yield f"text that seems to be {mark}: {count:,} of the first {len(sample):,} lines"


def _examine(
    data: DataConfig, pairs: TokenPairs, tags: Sequence[Sequence[int]], counts: Counter[str]
) -> Iterator[UInt64[np.ndarray, "N"]]:
    """The hashes of the pairs, slice by slice; adds to `counts` what is odd in each slice, and the
    unknown tokens of each side."""
    comparable = len(data.sides) == 2 and data.shared_vocabulary
    for part in slices(len(pairs)):
        some = pairs.part(part)
        sides = {side: getattr(some, side) for side in data.sides}
        lengths = np.array([side.lengths for side in sides.values()])
        empty, long = (lengths <= 1).any(axis=0), (lengths > data.max_length).any(axis=0)
        source, target, hashes = _hashes(some)
        counts[EMPTY] += int(empty.sum())
        counts[LONG] += int(long.sum())
        counts[EQUAL] += int(((source == target) & ~empty).sum()) if comparable else 0
        if tags:
            places = np.minimum(len(tags[0]), lengths[0]) - 1
            last = some.source.ids[some.source.offsets[:-1] + places]
            tagged = np.isin(last, [row[-1] for row in tags])
            counts[UNTAGGED] += int((~tagged & ~empty).sum())
        for side, text in sides.items():
            counts[side] += int((text.tokens == UNK).sum())
        yield hashes


def _hashes(
    pairs: TokenPairs,
) -> tuple[UInt64[np.ndarray, "N"], UInt64[np.ndarray, "N"], UInt64[np.ndarray, "N"]]:
    """Hashes of each source, each target and each pair, of 64 bits."""
    source, target = _sentence_hashes(pairs.source), _sentence_hashes(pairs.target)
    return source, target, source * np.uint64(0x9E3779B97F4A7C15) + target


def _sentence_hashes(text: Sentences) -> UInt64[np.ndarray, "N"]:
    """A random number for each token, times one for its position, summed modulo 2^64."""
    tokens, lengths = text.tokens, text.lengths
    of_token = _odd_numbers(0, int(tokens.max(initial=0)) + 1)
    of_position = _odd_numbers(1, int(lengths.max(initial=0)))
    position = np.arange(len(tokens)) - np.repeat(text.offsets[:-1] - text.offsets[0], lengths)
    sums = np.cumsum(of_token[tokens] * of_position[position])
    return np.diff(np.append(np.uint64(0), sums)[text.offsets - text.offsets[0]])


def _odd_numbers(seed: int, count: int) -> UInt64[np.ndarray, "N"]:
    """Random odd numbers; a larger `count` begins with the same ones."""
    return np.random.default_rng(seed).integers(2**64, size=count, dtype=np.uint64) | np.uint64(1)
