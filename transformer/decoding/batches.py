"""Sentences of all lengths in batches of few shapes."""

import sys
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Int, Shaped

from transformer.config import DecodeConfig, ModelConfig
from transformer.data.batching import pad, pad_sources
from transformer.decoding.terms import COUNTS, Term, TermTable
from transformer.decoding.terms import LENGTHS as TERM_LENGTHS
from transformer.model.batch import PAD

LENGTHS = (16, 24, 32, 48, 64, 96, 128, 192, 256)
"""Source lengths to pad to, so that few shapes are compiled; above the last, powers of two."""

SEARCH_LENGTHS = (32, 64, 128, 256)
"""The same for searches, which cost more to compile and less to pad."""

LONGEST = 2**31 - 1
"""Tokens of an output without another limit."""

MANY = 32
"""Sentences that make it worth to end a batch, rather than pad all of them to a longer shape."""

FEW_BATCHES, SHORT = 4, 64
"""Sentences that fit into this many batches, and have at most this many tokens, EOS included, are
all padded to one length: others would take longer to compile than they save."""


class SearchInput(NamedTuple):
    """What is searched for together, a row for each sentence, then rows of padding: the sources,
    and where they are given the prefixes of the translations, the terms that these must have, and
    the tokens that they may have."""

    source: Int[np.ndarray | Array, "B S"]
    prefix: Int[np.ndarray | Array, "B P"] | None = None
    terms: TermTable | None = None
    shortlist: Int[np.ndarray | Array, "B C"] | None = None

    @property
    def length(self) -> int:
        """The length that sources and prefixes are padded to for the search."""
        prefix = 0 if self.prefix is None else self.prefix.shape[1]
        return search_length(max(self.source.shape[1], prefix))

    @property
    def shape(self) -> tuple:
        """What the search is compiled for: its length, and the sizes of each row."""
        tables = map(jax.tree.leaves, self[1:])
        return self.length, *(tuple(leaf.shape[1:] for leaf in table) for table in tables)


class SearchBatch(NamedTuple):
    """Sentences that are searched for together, by their numbers."""

    numbers: list[int]
    inputs: SearchInput


def last_position(models: Sequence[ModelConfig]) -> int:
    """The positions that all models have."""
    return min(m.max_positions if m.positions == "learned" else sys.maxsize for m in models)


def longest_text(models: Sequence[ModelConfig], settings: DecodeConfig) -> int:
    """The most tokens that are read of a text, without BOS or EOS."""
    return min(last_position(models) - 1, settings.max_source_length)


def longest_prefix(models: Sequence[ModelConfig], settings: DecodeConfig) -> int:
    """The most tokens of a prefix, such that EOS fits after it."""
    return min(last_position(models), settings.max_length or sys.maxsize) - 1


def longest_output(
    models: Sequence[ModelConfig],
    settings: DecodeConfig,
    tokens: int | Int[Array, "B"],
    prefix: int | Int[Array, "B"] = 0,
) -> int | Int[Array, "B"]:
    """The most tokens of a translation, EOS included, from the numbers of source tokens, without
    EOS, and of prefix tokens. Numbers give a number, traced arrays an array."""
    xp: Any = jnp if isinstance(tokens, Array) else np
    usual = tokens
    if settings.length_ratio > 1:
        by_ratio = xp.ceil(settings.length_ratio * tokens).astype(np.int32)
        usual = xp.maximum(tokens, xp.minimum(by_ratio, settings.longest_target))
    limit = xp.maximum(usual, prefix) + settings.max_extra_length
    limit = xp.maximum(limit, settings.min_length + 1)  # EOS
    limit = xp.minimum(limit, min(settings.max_length or LONGEST, last_position(models), LONGEST))
    return limit if xp is jnp else int(limit)


def cut_into_batches(
    settings: DecodeConfig, sources: list[list[int]], order: list[int], least: int = 0
) -> list[list[int]]:
    """`order`, longest last, cut into batches: smaller ones of long sentences.

    A batch of MANY sentences ends where the next one would be padded to another length; all are
    padded to the length of `least` tokens at least.
    """
    batches: list[list[int]] = []
    capacity = settings.batch_sentences * 128
    while order:
        rows = settings.batch_sentences
        while rows > 1 and rows * len(sources[order[min(rows, len(order)) - 1]]) > capacity:
            rows //= 2
        lengths = [_padded_length(max(least, len(sources[i]))) for i in order[:rows]]
        rows = next((n for n in range(MANY, len(lengths)) if lengths[n] > lengths[n - 1]), rows)
        batches.append(order[:rows])
        order = order[rows:]
    return batches


def pad_batch(
    models: Sequence[ModelConfig],
    settings: DecodeConfig,
    sources: list[list[int]],
    least: int = 0,
) -> Int[np.ndarray, "B S"]:
    """A table of one of few shapes: the rows a power of two, the length one of LENGTHS that holds
    the longest sentence, and `least` tokens."""
    longest = max(least, *map(len, sources))
    length = min(_padded_length(longest), last_position(models))
    rows = min(power_of_two(len(sources)), settings.batch_sentences)
    return pad_sources(sources, rows, length)


def search_batches(
    models: Sequence[ModelConfig],
    settings: DecodeConfig,
    sources: list[list[int]],
    prefixes: list[list[int]],
    terms: list[list[Term]],
    continues: np.ndarray | None,
) -> list[SearchBatch]:
    """All sentences that have a token, shortest first. `continues` is that of a glossary."""
    order = sorted((n for n, ids in enumerate(sources) if ids), key=lambda n: len(sources[n]))
    least = max(map(len, sources), default=0)
    if least >= SHORT or len(order) > FEW_BATCHES * settings.batch_sentences:
        least = 0
    batches = []
    for numbers in cut_into_batches(settings, sources, order, least):
        source = pad_batch(models, settings, [sources[n] for n in numbers], least)
        given, prefix = [prefixes[n] for n in numbers], None
        if longest := max(map(len, given)):
            prefix = pad(given, len(source), round_up(longest, LENGTHS))
        table, own = None, [terms[n] for n in numbers]
        if any(own):
            table = pad_terms(own, len(source), continues)
        batches.append(SearchBatch(numbers, SearchInput(source, prefix, table)))
    return batches


def pad_terms(
    sentences: Sequence[Sequence[Term]], rows: int, continues: Bool[np.ndarray, "V"]
) -> TermTable:
    """The terms of some sentences, as a table of one of few shapes."""
    forms = [[form for term in terms for form in term] for terms in sentences]
    numbers = [[n for n, term in enumerate(terms, 1) for _ in term] for terms in sentences]
    firsts = [[terms.index(term) + 1 for term in terms for _ in term] for terms in sentences]
    count = round_up(max(map(len, forms)), COUNTS)
    length = round_up(max((len(form) for own in forms for form in own), default=0), TERM_LENGTHS)
    table = np.full((rows, count, length), PAD, np.int32)
    for row, own in enumerate(forms):
        table[row, : len(own)] = pad(own, len(own), length)
    filled = np.broadcast_to(continues, (rows, len(continues)))
    return TermTable(table, pad(numbers, rows, count), pad(firsts, rows, count), filled)


def balance(batches: list[SearchBatch], count: int) -> list[list[SearchBatch]]:
    """The batches, shortest first, balanced over at most `count` workers by their tokens; each
    begins with its longest, so that few slots are idle at the end."""
    workers: list[list[SearchBatch]] = [[] for _ in range(min(count, len(batches)))]
    tokens = [0] * len(workers)
    for batch in reversed(batches):
        least = tokens.index(min(tokens))
        workers[least].append(batch)
        tokens[least] += int(np.count_nonzero(batch.inputs.source))
    return workers


def group_by_shape(batches: list[SearchBatch]) -> Iterator[list[SearchBatch]]:
    """Neighbouring batches of one shape, padded to the same number of rows: one search has them one
    after the other."""
    for _, alike in groupby(batches, lambda batch: batch.inputs.shape):
        group = list(alike)
        rows = max(len(batch.inputs.source) for batch in group)
        pad_rows = partial(_with_rows, rows=rows)
        yield [batch._replace(inputs=jax.tree.map(pad_rows, batch.inputs)) for batch in group]


def _with_rows(table: Shaped[np.ndarray, "B ..."], rows: int) -> Shaped[np.ndarray, "R ..."]:
    added = [(0, rows - len(table)), *[(0, 0)] * (table.ndim - 1)]
    return np.pad(table, added, constant_values=PAD)


def teacher_forced_batches(
    models: Sequence[ModelConfig],
    settings: DecodeConfig,
    sources: list[list[int]],
    targets: list[list[int]],
) -> Iterator[tuple[list[int], Int[np.ndarray, "B S"], Int[np.ndarray, "B T"]]]:
    """Numbers, sources and targets of the pairs, in batches of few shapes; pairs with an empty side
    are left out."""
    order = [number for number, source in enumerate(sources) if source and targets[number]]
    longer = [max(pair, key=len) for pair in zip(sources, targets)]
    order.sort(key=lambda number: len(longer[number]))
    for numbers in cut_into_batches(settings, longer, order):
        source = pad_batch(models, settings, [sources[number] for number in numbers])
        length = round_up(max(len(targets[number]) for number in numbers), LENGTHS)
        length = min(length, last_position(models))
        yield numbers, source, pad([targets[number] for number in numbers], len(source), length)


def _padded_length(tokens: int) -> int:
    """The length, EOS included, that a sentence with this number of tokens is padded to."""
    return round_up(tokens + 1, LENGTHS)


def round_up(length: int, lengths: Sequence[int]) -> int:
    """The next of `lengths`; above the last, the next power of two."""
    return next((n for n in lengths if n >= length), power_of_two(length))


def search_length(tokens: int) -> int:
    """The length that a sentence is padded to for the search."""
    return round_up(tokens, SEARCH_LENGTHS)


def power_of_two(number: int) -> int:
    """The next one, or the number itself."""
    return 1 << (number - 1).bit_length()
