"""Sentences of all lengths in batches of few shapes."""

import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Int

from transformer.config import DecodeConfig, ModelConfig
from transformer.data.batching import pad, pad_sources
from transformer.model.batch import PAD

LENGTHS = (16, 24, 32, 48, 64, 96, 128, 192, 256)
"""Source lengths to pad to, so that few shapes are compiled; above the last, powers of two."""

SEARCH_LENGTHS = (32, 64, 128, 256)
"""The same for the search, which costs more to compile, and less to pad."""

LONGEST = 2**31 - 1
"""Tokens of an output, where nothing else limits them."""

MANY = 32
"""A batch of so many sentences rather ends than that all of them are padded to a longer shape."""


class SearchBatch(NamedTuple):
    """What is searched for at once: sentences by their numbers, and a row for each of its source
    and of what its translation begins with. Rows behind them are padding."""

    numbers: list[int]
    source: Int[np.ndarray, "B S"]
    prefix: Int[np.ndarray, "B P"] | None

    @property
    def reach(self) -> int:
        """The source length that the search is compiled for."""
        given = 0 if self.prefix is None else self.prefix.shape[1]
        return round_up(max(self.source.shape[1], given), SEARCH_LENGTHS)


def last_position(models: Sequence[ModelConfig]) -> int:
    """How many positions all of the models know."""
    return min(m.max_positions if m.positions == "learned" else sys.maxsize for m in models)


def longest_text(models: Sequence[ModelConfig], settings: DecodeConfig) -> int:
    """Tokens that are read of a text, when one more stands beside them: BOS or EOS."""
    return min(last_position(models) - 1, settings.max_source_length)


def longest_prefix(models: Sequence[ModelConfig], settings: DecodeConfig) -> int:
    """Tokens that may be given of a translation, so that one more fits: EOS."""
    return min(last_position(models), settings.max_length or sys.maxsize) - 1


def longest_output(
    models: Sequence[ModelConfig],
    settings: DecodeConfig,
    tokens: int | Int[Array, "B"],
    prefix: int | Int[Array, "B"] = 0,
) -> int | Int[Array, "B"]:
    """Most tokens of a translation, EOS included, of so many source tokens, EOS apart, where so
    many of its tokens are given. Numbers give a number, traced arrays an array."""
    xp = jnp if isinstance(tokens, Array) else np
    usual = tokens
    if settings.length_ratio > 1:
        by_ratio = xp.ceil(settings.length_ratio * tokens).astype(np.int32)
        usual = xp.maximum(tokens, xp.minimum(by_ratio, settings.longest_target))
    limit = xp.maximum(usual, prefix) + settings.max_extra_length
    limit = xp.maximum(limit, settings.min_length + 1)  # EOS
    limit = xp.minimum(limit, min(settings.max_length or LONGEST, last_position(models), LONGEST))
    return limit if xp is jnp else int(limit)


def in_batches(
    settings: DecodeConfig, sources: list[list[int]], order: list[int]
) -> list[list[int]]:
    """`order`, longest last, cut into batches; long sentences travel in smaller ones.

    A batch ends where the next sentence would be padded to another length, if it has MANY.
    """
    batches: list[list[int]] = []
    capacity = settings.batch_sentences * 128
    while order:
        rows = settings.batch_sentences
        while rows > 1 and rows * len(sources[order[min(rows, len(order)) - 1]]) > capacity:
            rows //= 2
        lengths = [_padded_length(sources[i]) for i in order[:rows]]
        rows = next((n for n in range(MANY, len(lengths)) if lengths[n] > lengths[n - 1]), rows)
        batches.append(order[:rows])
        order = order[rows:]
    return batches


def pad_batch(
    models: Sequence[ModelConfig], settings: DecodeConfig, sources: list[list[int]]
) -> Int[np.ndarray, "B S"]:
    """One of few shapes: the rows a power of two, the length one of LENGTHS."""
    length = min(max(map(_padded_length, sources)), last_position(models))
    rows = min(1 << (len(sources) - 1).bit_length(), settings.batch_sentences)
    return pad_sources(sources, rows, length)


def search_batches(
    models: Sequence[ModelConfig],
    settings: DecodeConfig,
    sources: list[list[int]],
    prefixes: list[list[int]],
) -> list[SearchBatch]:
    """All sentences that have a token, the shortest ones first."""
    order = sorted((n for n, ids in enumerate(sources) if ids), key=lambda n: len(sources[n]))
    batches = []
    for numbers in in_batches(settings, sources, order):
        source = pad_batch(models, settings, [sources[n] for n in numbers])
        prefix = pad_prefixes([prefixes[n] for n in numbers], len(source))
        batches.append(SearchBatch(numbers, source, prefix))
    return batches


def in_shares(batches: list[SearchBatch], count: int) -> list[list[SearchBatch]]:
    """The batches in at most `count` shares of about as many tokens, in each the longest first: so
    few places are idle while the last sentences end."""
    shares: list[list[SearchBatch]] = [[] for _ in range(min(count, len(batches)))]
    tokens = [0] * len(shares)
    for batch in reversed(batches):
        least = tokens.index(min(tokens))
        shares[least].append(batch)
        tokens[least] += np.count_nonzero(batch.source)
    return shares


def in_series(batches: list[SearchBatch]) -> Iterator[list[SearchBatch]]:
    """The batches in series of one shape, which one search can have one after the other."""

    def shape(batch: SearchBatch):
        return batch.reach, None if batch.prefix is None else batch.prefix.shape[1]

    for _, alike in groupby(batches, shape):
        series = list(alike)
        rows = max(len(batch.source) for batch in series)
        yield [_with_rows(batch, rows) for batch in series]


def _with_rows(batch: SearchBatch, rows: int) -> SearchBatch:
    def padded(table):
        return np.pad(table, ((0, rows - len(table)), (0, 0)), constant_values=PAD)

    prefix = None if batch.prefix is None else padded(batch.prefix)
    return batch._replace(source=padded(batch.source), prefix=prefix)


def teacher_forced_batches(
    models: Sequence[ModelConfig],
    settings: DecodeConfig,
    sources: list[list[int]],
    targets: list[list[int]],
) -> Iterator[tuple[list[int], Int[np.ndarray, "B S"], Int[np.ndarray, "B T"]]]:
    """The numbers of the pairs, their sources and their targets, in batches of few shapes; pairs of
    which one is empty are in none."""
    order = [number for number, source in enumerate(sources) if source and targets[number]]
    longer = [max(pair, key=len) for pair in zip(sources, targets)]
    order.sort(key=lambda number: len(longer[number]))
    for numbers in in_batches(settings, longer, order):
        source = pad_batch(models, settings, [sources[number] for number in numbers])
        length = round_up(max(len(targets[number]) for number in numbers), LENGTHS)
        length = min(length, last_position(models))
        yield numbers, source, pad([targets[number] for number in numbers], len(source), length)


def _padded_length(source: list[int]) -> int:
    """The length, EOS included, that a sentence is padded to."""
    return round_up(len(source) + 1, LENGTHS)


def round_up(length: int, lengths: Sequence[int]) -> int:
    """The next of `lengths`; above the last, the next power of two."""
    return next((n for n in lengths if n >= length), 1 << (length - 1).bit_length())


def pad_prefixes(prefixes: list[list[int]], rows: int) -> Int[np.ndarray, "B P"] | None:
    """What translations begin with, as a table of few lengths; None where there is nothing."""
    longest = max(map(len, prefixes))
    return pad(prefixes, rows, round_up(longest, LENGTHS)) if longest else None
