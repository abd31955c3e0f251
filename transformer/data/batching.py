"""Pairs of token rows to batches of few fixed shapes, in an order that seed and epoch decide.

A compiled update has one shape. Padding every pair to the longest would waste most of the work, so
pairs of like lengths share a bucket: one batch shape, chosen so that little is padded.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from transformer.config import DataConfig
from transformer.data.token_store import TokenPairs
from transformer.errors import UserError
from transformer.model.batch import BOS, EOS, PAD, Batch

MOST_LENGTHS = 64
"""Lengths of either side that batch shapes are chosen from."""

TARGET_COST = 2
"""What a target position costs, in source positions: it attends twice, and gets logits."""


class Bucket(NamedTuple):
    """The static shape of a batch: sentences, and positions including EOS (or BOS)."""

    rows: int
    source_length: int
    target_length: int

    def positions(self, pairs: int) -> np.ndarray:
        """Source and target positions, padding included, of an epoch of so many pairs."""
        rows = _ceiling(pairs, self.rows) * self.rows
        return rows * np.array([self.source_length, self.target_length])


@dataclass(frozen=True)
class BatchPlan:
    """Which pair is in which bucket, the same in every epoch."""

    buckets: tuple[Bucket, ...]
    """Batch shapes."""
    members: tuple[np.ndarray, ...]
    """For each bucket the numbers of its pairs."""
    left_out: int
    """Pairs that are too long, or have an empty side."""
    padding: float
    """Share of the source and target positions of an epoch that hold PAD."""

    def target_tokens(self, pairs: TokenPairs) -> int:
        """Target tokens of an epoch, EOS included, padding not."""
        lengths = pairs.target_lengths + 1
        return int(sum(lengths[members].sum() for members in self.members))

    @property
    def batches_per_epoch(self) -> int:
        return sum(_ceiling(len(m), b.rows) for m, b in zip(self.members, self.buckets))

    @property
    def digest(self) -> str:
        """Of shapes and members: a Position means the same in two plans with the same digest."""
        parts = [repr(self.buckets).encode(), *(members.tobytes() for members in self.members)]
        return hashlib.sha256(b"".join(parts)).hexdigest()[:16]


class Position(NamedTuple):
    """A place in the endless stream of batches: the next one to deliver."""

    epoch: int = 0
    batch: int = 0


def make_plan(pairs: TokenPairs, data: DataConfig, rows_multiple: int) -> BatchPlan:
    """Sort pairs into buckets whose rows are multiples of `rows_multiple`.

    Raises UserError when no pair is usable, or data.batch_tokens cannot hold `rows_multiple` of
    the longest.
    """
    source, target = pairs.source_lengths + 1, pairs.target_lengths + 1  # EOS
    usable = (source > 1) & (target > 1) & (np.maximum(source, target) <= data.max_length)
    numbers = np.flatnonzero(usable)
    if not len(numbers):
        raise UserError(
            f"none of the {len(pairs)} training pairs can be used: each has an empty side or more "
            f"than data.max_length ({data.max_length}) tokens"
        )
    source, target = source[numbers], target[numbers]
    buckets, bucket_of = plan_buckets(
        source, target, data.num_buckets, data.batch_tokens, rows_multiple
    )
    members = tuple(numbers[bucket_of == i] for i in range(len(buckets)))
    positions = sum(bucket.positions(len(m)).sum() for m, bucket in zip(members, buckets))
    tokens = int(source.sum() + target.sum())
    return BatchPlan(buckets, members, len(pairs) - len(numbers), 1 - tokens / positions)


def plan_buckets(
    source_lengths: np.ndarray,
    target_lengths: np.ndarray,
    num_buckets: int,
    batch_tokens: int,
    rows_multiple: int,
) -> tuple[tuple[Bucket, ...], np.ndarray]:
    """At most `num_buckets` batch shapes with little padding, and the bucket of each pair.

    Every pair goes to the cheapest shape that it fits into. Beginning with the one that all fit
    into, the shape that saves most is added until there are enough. It works on a table of lengths
    (EOS included), so its time hardly grows with the corpus.

    Raises UserError when `rows_multiple` of the longest pair exceed `batch_tokens`.
    """
    longest = int(max(source_lengths.max(), target_lengths.max()))
    if rows_multiple * longest > batch_tokens:
        raise UserError(
            f"data.batch_tokens ({batch_tokens}) is too small for {rows_multiple} sentences (train."
            f"micro_batches times the number of devices) of {longest} tokens: set it to at least "
            f"{rows_multiple * longest}, or lower data.max_length or train.micro_batches"
        )
    table = _LengthTable.of(source_lengths, target_lengths)
    budget = _Budget(batch_tokens, rows_multiple)
    choices = [table.buckets(shapes, budget) for shapes in _growing_sets(table, num_buckets)]
    # Rows are rounded up to `rows_multiple`: in a small corpus, fewer shapes may pad less.
    buckets, bucket_of_cell = min(choices, key=lambda choice: choice.cost)[:2]
    return buckets, bucket_of_cell[table.cells]


class _Buckets(NamedTuple):
    """Batch shapes, the number of the one that each cell belongs to, what an epoch costs."""

    buckets: tuple[Bucket, ...]
    bucket_of_cell: np.ndarray
    cost: int


class _Budget(NamedTuple):
    """What limits the rows of a batch."""

    batch_tokens: int
    rows_multiple: int

    def rows(self, pairs: int, longest: int) -> int:
        """Rows of each batch, when `pairs` of at most `longest` tokens a side share a bucket.

        No more than `batch_tokens` allow, and no more than spread the pairs evenly over the batches
        that they then need: else the last batch of every bucket would be half empty.
        """
        most = self.batch_tokens // longest // self.rows_multiple * self.rows_multiple
        even = _ceiling(pairs, _ceiling(pairs, most))
        return _ceiling(even, self.rows_multiple) * self.rows_multiple


class _LengthTable(NamedTuple):
    """How many pairs have which lengths: counts[i, j] at most source[i] and target[j] tokens."""

    source: np.ndarray
    target: np.ndarray
    counts: np.ndarray
    cells: tuple[np.ndarray, np.ndarray]
    """i and j of each pair."""

    @classmethod
    def of(cls, source_lengths: np.ndarray, target_lengths: np.ndarray) -> "_LengthTable":
        source, target = _steps(source_lengths), _steps(target_lengths)
        i, j = np.searchsorted(source, source_lengths), np.searchsorted(target, target_lengths)
        counts = np.bincount(i * len(target) + j, minlength=len(source) * len(target))
        return cls(source, target, counts.reshape(len(source), len(target)), (i, j))

    def buckets(self, shape_of_cell: np.ndarray, budget: _Budget) -> _Buckets:
        """Those of the cells that share a shape: as long as their longest pairs, no longer."""
        filled = self.counts > 0
        numbers = np.unique(shape_of_cell[filled])
        bucket_of_cell = np.searchsorted(numbers, shape_of_cell)
        buckets, cost = [], 0
        for number in range(len(numbers)):
            members = (bucket_of_cell == number) & filled
            pairs = int(self.counts[members].sum())
            i, j = (int(index.max()) for index in np.nonzero(members))
            lengths = int(self.source[i]), int(self.target[j])
            buckets.append(Bucket(budget.rows(pairs, max(lengths)), *lengths))
            cost += _cost(*buckets[-1].positions(pairs).tolist())
        return _Buckets(tuple(buckets), bucket_of_cell, cost)


def _steps(lengths: np.ndarray) -> np.ndarray:
    """The lengths that a shape may have: all that occur, or where they are many, quantiles."""
    occurring = np.unique(lengths)
    if len(occurring) <= MOST_LENGTHS:
        return occurring
    shares = np.linspace(0, 1, MOST_LENGTHS)
    return np.unique(np.quantile(lengths, shares, method="higher"))


def _growing_sets(table: _LengthTable, most: int) -> Iterator[np.ndarray]:
    """For one shape, two, and so on: the number of the cheapest shape that each cell fits into."""
    costs = _cost(table.source[:, None], table.target)
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


def _cost(source: int | np.ndarray, target: int | np.ndarray) -> int | np.ndarray:
    """What so many positions cost, in source positions."""
    return source + TARGET_COST * target


def _ceiling(a: int, b: int) -> int:
    """a / b, rounded up."""
    return -(-a // b)


def batches(
    pairs: TokenPairs, plan: BatchPlan, seed: int, position: Position
) -> Iterator[tuple[Batch, Position]]:
    """Every batch from `position` on, without end, each with the position after it.

    The order is a function of seed and epoch alone: pairs are shuffled inside their buckets, and
    then the batches. So any position can be resumed, and an epoch shows every pair once.
    """
    epoch, start = position
    while True:
        order = _epoch_order(plan, seed, epoch)
        for number in range(start, len(order)):
            bucket, chosen = order[number]
            after = Position(epoch, number + 1)
            yield (
                _batch(pairs, bucket, chosen),
                after if after.batch < len(order) else Position(epoch + 1, 0),
            )
        epoch, start = epoch + 1, 0


def _epoch_order(plan: BatchPlan, seed: int, epoch: int) -> list[tuple[Bucket, np.ndarray]]:
    """The batches of an epoch: (shape, numbers of the pairs), in order."""
    generator = np.random.default_rng((seed, epoch))
    cut = []
    for bucket, members in zip(plan.buckets, plan.members):
        shuffled = generator.permutation(members)
        parts = range(0, len(shuffled), bucket.rows)
        cut += [(bucket, shuffled[start : start + bucket.rows]) for start in parts]
    return [cut[i] for i in generator.permutation(len(cut))]


def _batch(pairs: TokenPairs, bucket: Bucket, chosen: np.ndarray) -> Batch:
    """The chosen pairs in the bucket's shape; rows that are left over are all PAD."""
    source, source_lengths = _gather(
        pairs.source_ids, pairs.source_offsets, chosen, bucket.rows, bucket.source_length
    )
    target, target_lengths = _gather(
        pairs.target_ids, pairs.target_offsets, chosen, bucket.rows, bucket.target_length
    )
    filled = np.arange(len(chosen))
    target_in = np.full_like(target, PAD)
    target_in[:, 1:] = target[:, :-1]
    target_in[filled, 0] = BOS
    source[filled, source_lengths] = EOS
    target[filled, target_lengths] = EOS
    return Batch(source=source, target_in=target_in, target_out=target)


def _gather(
    ids: np.ndarray, offsets: np.ndarray, chosen: np.ndarray, rows: int, length: int
) -> tuple[np.ndarray, np.ndarray]:
    """The chosen sentences as int32 [rows, length], padded with PAD, and their lengths."""
    starts, ends = offsets[chosen, None], offsets[chosen + 1, None]
    places = starts + np.arange(length)
    table = np.full((rows, length), PAD, np.int32)
    table[: len(chosen)] = np.where(places < ends, ids[np.minimum(places, len(ids) - 1)], PAD)
    return table, (ends - starts)[:, 0]


def pad_sources(sentences: Sequence[Sequence[int]], rows: int, length: int) -> np.ndarray:
    """Token ids as the encoder reads them: with EOS, padded with PAD to int32 [rows, length].

    `length` counts EOS. Raises IndexError or ValueError when the sentences do not fit.
    """
    table = np.full((rows, length), PAD, np.int32)
    for number, ids in enumerate(sentences):
        table[number, : len(ids) + 1] = [*ids, EOS]
    return table
