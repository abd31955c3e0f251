"""Which pairs share which batch shape.

A compiled update has one shape. Padding every pair to the longest would waste most of the work, so
pairs of similar lengths share a bucket, a batch shape that is chosen for little padding.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from transformer.config import Config, DataConfig
from transformer.data.storage import memory_mapped, slices
from transformer.data.token_store import TokenPairs
from transformer.errors import UserError

MOST_LENGTHS = 64
"""Number of lengths of a side among which batch shapes are chosen."""

FEW_BATCHES = 4
"""A text that is only read, and fits into this many batches, has one batch shape: others would take
longer to compile than they save."""

SHAPES_TO_SCORE = 4
"""Batch shapes of a text that is only read: few, since each must be compiled."""

UNUSED = -1
"""In place of the lengths of a pair that is too long or has an empty sentence."""

TARGET_COST = 2
"""What a target position costs, in source positions: it attends twice, and gets logits."""


class Bucket(NamedTuple):
    """The static shape of a batch: sentences, and positions including EOS (or BOS)."""

    rows: int
    source_length: int
    target_length: int

    def positions(self, pairs: int, rows_multiple: int = 1) -> np.ndarray:
        """Source and target positions, padding included, in an epoch of this many pairs, if rows
        are padded to a multiple."""
        rows = _ceiling(self.rows, rows_multiple) * rows_multiple
        batches = _ceiling(pairs, self.rows)
        return batches * rows * np.array([self.source_length, self.target_length])


@dataclass(frozen=True, eq=False)
class BatchPlan:
    """Which pair is in which bucket, the same in every epoch and for any number of devices.

    Caches use its identity as a key; `digest` is equal for equal plans.
    """

    buckets: tuple[Bucket, ...]
    """Batch shapes."""
    members: tuple[np.ndarray, ...]
    """For each bucket the numbers of its pairs."""
    left_out: int
    """Pairs that are too long, or have an empty sentence."""
    tokens: int
    """Source and target tokens of all members, EOS included."""
    target_tokens: int
    """Tokens of an epoch that can be predicted: of the target, or of the source alone."""

    def padding(self, rows_multiple: int = 1) -> float:
        """The fraction of an epoch's source and target positions that are PAD, if rows are padded
        to a multiple of the number of devices, each of which gets equally many."""
        positions = sum(
            bucket.positions(len(m), rows_multiple).sum()
            for m, bucket in zip(self.members, self.buckets)
        )
        return float(1 - self.tokens / positions)

    @property
    def counts(self) -> list[tuple[Bucket, int]]:
        """Each shape, and the number of its batches in an epoch; the last one may not be full."""
        return [(b, _ceiling(len(m), b.rows)) for m, b in zip(self.members, self.buckets)]

    @property
    def batches_per_epoch(self) -> int:
        """Batches of all shapes."""
        return sum(count for _, count in self.counts)

    @cached_property
    def digest(self) -> str:
        """Identity: a Position is the same batch in plans with the same digest."""
        sha256 = hashlib.sha256(repr(self.buckets).encode())
        for members in self.members:
            for part in slices(len(members)):
                sha256.update(members[part].astype(np.int64))
        return sha256.hexdigest()[:16]


def make_plan(
    pairs: TokenPairs, data: DataConfig, split: str = "training", limit: str = ""
) -> BatchPlan:
    """Sort pairs into buckets.

    Raises UserError when no pair is usable, or the longest does not fit in data.batch_tokens; it
    names the `split`, and the `limit` on lengths if that is not `data.max_length`.
    """
    counted: Counter[int] = Counter()
    for part in slices(len(pairs)):
        found, times = np.unique(_lengths(pairs, data, part), return_counts=True)
        counted.update(dict(zip(found.tolist(), times.tolist())))
    left_out = counted.pop(UNUSED, 0)
    if not counted:
        what = f"{len(pairs):,} {split} {'pairs' if len(data.sides) == 2 else 'texts'}"
        raise UserError(
            f"none of the {what} can be used: each has an empty side, or more tokens than "
            f"{limit or f'data.max_length ({data.max_length})'}"
        )
    lengths = np.array(sorted(counted))
    counts = np.array([counted[both] for both in lengths.tolist()])
    source, target = np.divmod(lengths, data.max_length + 1)
    buckets, bucket_of = plan_buckets(source, target, counts, data.num_buckets, data.batch_tokens)
    members = _members(pairs, data, lengths, bucket_of, counts)
    tokens = int(counts @ (source + target))
    return BatchPlan(buckets, members, left_out, tokens, int(counts @ target) or tokens)


def _lengths(pairs: TokenPairs, data: DataConfig, part: slice) -> np.ndarray:
    """Both lengths of each pair as one number that sorts like them, or UNUSED."""
    some = pairs.part(part)
    source, target = some.source.lengths, some.target.lengths
    usable = np.maximum(source, target) <= data.max_length
    for side in data.sides:
        usable &= {"source": source, "target": target}[side] > 1  # more than EOS
    return np.where(usable, source * (data.max_length + 1) + target, UNUSED)


def _members(
    pairs: TokenPairs,
    data: DataConfig,
    lengths: np.ndarray,
    bucket_of: np.ndarray,
    counts: np.ndarray,
) -> tuple[np.ndarray, ...]:
    """For each bucket the numbers of its pairs; `bucket_of` is the bucket of each of `lengths`."""
    lengths, bucket_of = np.append(UNUSED, lengths), np.append(UNUSED, bucket_of)
    buckets = memory_mapped(
        (
            bucket_of[np.searchsorted(lengths, _lengths(pairs, data, part))]
            for part in slices(len(pairs))
        ),
        np.int16,
        len(pairs),
    )
    sizes = np.bincount(bucket_of[1:], counts).astype(int)
    return tuple(
        memory_mapped(
            (part.start + np.flatnonzero(buckets[part] == bucket) for part in slices(len(pairs))),
            np.uint32 if len(pairs) < 2**32 - 1 else np.int64,
            size,
        )
        for bucket, size in enumerate(sizes.tolist())
    )


def refilled(plan: BatchPlan, pairs: TokenPairs, numbers: np.ndarray) -> BatchPlan:
    """The same shapes for an epoch of the pairs `numbers`, each in the cheapest shape that it fits
    into. Each must fit into one."""
    source, target = pairs.source.lengths[numbers], pairs.target.lengths[numbers]
    bucket_of, cheapest = np.full(len(numbers), -1), np.full(len(numbers), np.inf)
    for index, bucket in enumerate(plan.buckets):
        cost = _cost(bucket.source_length, bucket.target_length)
        better = (source <= bucket.source_length) & (target <= bucket.target_length)
        better &= cost < cheapest
        bucket_of[better], cheapest[better] = index, cost
    members = tuple(numbers[bucket_of == index] for index in range(len(plan.buckets)))
    tokens = int(source.sum() + target.sum())
    return replace(plan, members=members, tokens=tokens, target_tokens=int(target.sum()) or tokens)


def longest_targets(buckets: Sequence[Bucket]) -> np.ndarray:
    """For each length of a source, the longest target that fits with it."""
    longest = np.zeros(max(bucket.source_length for bucket in buckets) + 1, int)
    for bucket in buckets:
        upto = slice(bucket.source_length + 1)
        longest[upto] = np.maximum(longest[upto], bucket.target_length)
    return longest


def fits(source: np.ndarray, target: np.ndarray, longest_targets: np.ndarray) -> np.ndarray:
    """Whether pairs of these lengths fit into one of the buckets of `longest_targets`."""
    within = np.minimum(source, len(longest_targets) - 1)
    return (source == within) & (target <= longest_targets[within])


def plan_to_score(config: Config, pairs: TokenPairs, split: str = "test") -> BatchPlan:
    """A plan with few shapes, for text that is only read. It leaves out empty sentences, and those
    longer than `data.max_length` and `decode.max_source_length`, or than learned positions."""
    parts = [
        side.part(part) for side in (pairs.source, pairs.target) for part in slices(len(pairs))
    ]
    longest = max((int(part.lengths.max()) for part in parts), default=0)
    if longest < 2:
        raise UserError(f"there is nothing to score: all {len(pairs):,} {split} texts are empty")
    trained, decoded = config.data.max_length, config.decode.max_source_length
    limit = f"data.max_length ({trained}) and decode.max_source_length ({decoded})"
    longest = min(longest, max(trained, decoded))
    if config.model.positions == "learned":
        longest = min(longest, config.model.max_positions)
        limit += f" or model.max_positions ({config.model.max_positions})"
    tokens = max(config.data.batch_tokens // config.train.micro_batches, longest)
    are_few = len(pairs) * longest <= FEW_BATCHES * tokens
    buckets = 1 if are_few else SHAPES_TO_SCORE
    shapes = {"max_length": longest, "batch_tokens": tokens, "num_buckets": buckets}
    return make_plan(pairs, replace(config.data, **shapes), split, limit)


def plan_buckets(
    source_lengths: np.ndarray,
    target_lengths: np.ndarray,
    counts: np.ndarray,
    num_buckets: int,
    batch_tokens: int,
) -> tuple[tuple[Bucket, ...], np.ndarray]:
    """At most `num_buckets` batch shapes with little padding, given the number of pairs of each
    length; and the bucket of each length.

    Every pair goes to the cheapest shape that it fits into. The first shape holds all; then the
    shape that saves most is added, again and again. It works on a table of lengths (EOS included),
    so its time does not grow with the corpus.

    Raises UserError when the longest pair exceeds `batch_tokens`.
    """
    longest = int(max(source_lengths.max(), target_lengths.max()))
    if longest > batch_tokens:
        raise UserError(
            f"data.batch_tokens ({batch_tokens}) is too small for a sentence of {longest} tokens: "
            f"set it to at least {longest}, or lower data.max_length"
        )
    table = _LengthTable(source_lengths, target_lengths, counts)
    choices = [table.buckets(shapes, batch_tokens) for shapes in _growing_sets(table, num_buckets)]
    # The last batch of a bucket need not be full: in a small corpus, fewer shapes may pad less.
    _, buckets, bucket_of_cell = min(choices, key=lambda choice: choice[0])
    return buckets, bucket_of_cell[table.cells]


class _LengthTable:
    """The number of pairs of which lengths: counts[i, j] of at most source[i] and target[j] tokens,
    but more than in the cells before. `cells` has i and j of each pair of lengths."""

    def __init__(self, source_lengths: np.ndarray, target_lengths: np.ndarray, times: np.ndarray):
        self.source, self.target = _steps(source_lengths, times), _steps(target_lengths, times)
        self.cells = (
            np.searchsorted(self.source, source_lengths),
            np.searchsorted(self.target, target_lengths),
        )
        self.counts = np.zeros((len(self.source), len(self.target)), int)
        np.add.at(self.counts, self.cells, times)

    def buckets(
        self, shape_of_cell: np.ndarray, batch_tokens: int
    ) -> tuple[int, tuple[Bucket, ...], np.ndarray]:
        """The cost of an epoch, a bucket for the cells of each shape, as long as its longest pairs,
        and the bucket of each cell."""
        filled = self.counts > 0
        numbers = np.unique(shape_of_cell[filled])
        bucket_of_cell = np.searchsorted(numbers, shape_of_cell)
        buckets, cost = [], 0
        for number in range(len(numbers)):
            members = (bucket_of_cell == number) & filled
            pairs = int(self.counts[members].sum())
            i, j = (int(index.max()) for index in np.nonzero(members))
            lengths = int(self.source[i]), int(self.target[j])
            buckets.append(Bucket(_rows(pairs, batch_tokens // max(lengths)), *lengths))
            cost += int(_cost(*buckets[-1].positions(pairs).tolist()))
        return cost, tuple(buckets), bucket_of_cell


def _steps(lengths: np.ndarray, times: np.ndarray) -> np.ndarray:
    """The lengths that a shape may have: all that occur, or their quantiles if these are many."""
    occurring, which = np.unique(lengths, return_inverse=True)
    if len(occurring) <= MOST_LENGTHS:
        return occurring
    upto = np.cumsum(np.bincount(which, times))
    places = np.ceil(np.linspace(0, 1, MOST_LENGTHS) * (upto[-1] - 1))
    return np.unique(occurring[np.searchsorted(upto, places, side="right")])


def _growing_sets(table: _LengthTable, most: int) -> Iterator[np.ndarray]:
    """With one shape, with two, and so on: the cheapest shape that each cell fits into."""
    costs: Any = _cost(table.source[:, None], table.target)
    shape_of_cell = np.zeros(costs.shape, int)
    cost_of_cell = np.full(costs.shape, costs[-1, -1])
    for number in range(most):
        if number:
            savings = [
                np.vdot(
                    table.counts[: i + 1, : j + 1],
                    np.maximum(cost_of_cell[: i + 1, : j + 1] - cost, 0),
                )
                for (i, j), cost in np.ndenumerate(costs)
            ]
            if max(savings) == 0:
                break
            i, j = np.unravel_index(np.argmax(savings), costs.shape)
            inside = np.s_[: i + 1, : j + 1]
            gains = cost_of_cell[inside] > costs[i, j]
            shape_of_cell[inside][gains] = number
            cost_of_cell[inside][gains] = costs[i, j]
        yield shape_of_cell.copy()


def _rows(pairs: int, most: int) -> int:
    """Rows of the batches of a bucket with `pairs`: at most `most`, and such that all batches are
    equally full."""
    return _ceiling(pairs, _ceiling(pairs, most))


def _cost(source: int | np.ndarray, target: int | np.ndarray) -> int | np.ndarray:
    """The cost of this many positions, in source positions."""
    return source + TARGET_COST * target


def _ceiling(a: int, b: int) -> int:
    """a / b, rounded up."""
    return -(-a // b)
