"""Rows of tokens to batches of few fixed shapes, in an order determined by seed and epoch."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from transformer.config import Config
from transformer.data.buckets import BatchPlan, Bucket
from transformer.data.masking import masked
from transformer.data.sampling import SampleEpoch
from transformer.data.storage import memory_mapped
from transformer.data.token_store import Sentences, TokenPairs
from transformer.model.batch import BOS, EOS, PAD, UNK, Batch

Arrange = Callable[[np.ndarray, np.ndarray, np.random.Generator], Batch]
"""From rows of source [B, S] and target [B, T] with EOS, and a random generator, to a batch."""


class Position(NamedTuple):
    """The next batch of the endless stream."""

    epoch: int = 0
    batch: int = 0


def paired(source: np.ndarray, target: np.ndarray, generator: np.random.Generator) -> Batch:
    """What encoder and decoder read, and what is to be predicted: the token after each."""
    target_in = np.full_like(target, PAD)
    target_in[:, 1:] = np.where(target[:, 1:] == PAD, PAD, target[:, :-1])
    target_in[:, 0] = np.where(target[:, 0] == PAD, PAD, BOS)
    return Batch(source if source.shape[1] else None, target_in, target)


def labelled(source: np.ndarray, target: np.ndarray, generator: np.random.Generator) -> Batch:
    """Sentences and their classes."""
    return Batch(source, None, target)


def arrangement(config: Config) -> Arrange:
    """How a model of this configuration is trained."""
    if config.data.label_column:
        return labelled
    if config.model.decoder_layers:
        return paired
    vocab_size = config.model.source_vocab_size
    return lambda source, _, generator: masked(source, vocab_size, generator)


def batches(
    pairs: TokenPairs,
    plan: BatchPlan,
    seed: int,
    position: Position,
    arrange: Arrange = paired,
    sample_epoch: SampleEpoch | None = None,
) -> Iterator[tuple[Batch, Position]]:
    """An endless stream of batches from `position` on, each with the position after it.

    The order is a function of seed and epoch alone: pairs are shuffled inside their buckets, and
    then the batches. So any position can be resumed. An epoch has every pair once, unless
    `sample_epoch` makes other pairs and another plan for it. The random numbers of `arrange` depend
    on seed, epoch and the number of the batch.
    """
    epoch, start = position
    while True:
        if sample_epoch is not None:
            pairs, plan = sample_epoch(epoch)
        order = _epoch_order(plan, seed, epoch)
        for number in range(start, len(order)):
            generator = np.random.default_rng((seed, epoch, number + 1))  # a last 0 is ignored
            (rows, *lengths), chosen = order[number]
            sides = zip((pairs.source, pairs.target), lengths)
            tables = (_gather(text, chosen, rows, length) for text, length in sides)
            batch = arrange(*tables, generator)
            is_last = number + 1 == len(order)
            yield batch, Position(epoch + 1, 0) if is_last else Position(epoch, number + 1)
        epoch, start = epoch + 1, 0


def one_epoch(config: Config, pairs: TokenPairs, plan: BatchPlan) -> Iterator[Batch]:
    """All batches of a text that is only read, in a fixed order. Masks depend on the plan, as which
    sentences are in a batch does."""
    stream = batches(pairs, plan, 0, Position(), arrangement(config))
    return (batch for batch, _ in itertools.islice(stream, plan.batches_per_epoch))


def sample(config: Config, bucket: Bucket) -> Batch:
    """A batch of one shape without padding, to compile or measure with."""
    rows, source, target = bucket
    generator = np.random.default_rng(0)
    filled = (np.full((rows, length), UNK, np.int32) for length in (source, target))
    return arrangement(config)(*filled, generator)


def first_uses(plan: BatchPlan, seed: int, position: Position) -> list[Bucket]:
    """The shapes of a plan in the order in which `batches` first uses them."""
    order = _epoch_order(plan, seed, position.epoch)
    later = [bucket for bucket, _ in order[position.batch :] + order]
    return list(dict.fromkeys([*later, *plan.buckets]))


@lru_cache(maxsize=1)  # called for the shapes of an epoch, and then for its batches
def _epoch_order(plan: BatchPlan, seed: int, epoch: int) -> list[tuple[Bucket, np.ndarray]]:
    """The batches of an epoch: (shape, numbers of the pairs), in order."""
    generator = np.random.default_rng((seed, epoch))
    cut = []
    for bucket, members in zip(plan.buckets, plan.members):
        shuffled = memory_mapped([generator.permutation(members)], members.dtype.type, len(members))
        parts = range(0, len(shuffled), bucket.rows)
        cut += [(bucket, shuffled[start : start + bucket.rows]) for start in parts]
    return [cut[i] for i in generator.permutation(len(cut))]


def _gather(text: Sentences, chosen: np.ndarray, rows: int, length: int) -> np.ndarray:
    """The chosen sentences as int32 [rows, length], padded with PAD."""
    starts, ends = text.offsets[chosen, None], text.offsets[chosen + 1, None]
    places = starts + np.arange(length)
    table = np.full((rows, length), PAD, np.int32)
    inside = np.minimum(places, len(text.ids) - 1)
    table[: len(chosen)] = np.where(places < ends, text.ids[inside], PAD)
    return table


def pad(
    sequences: Sequence[Sequence[int]], rows: int, length: int, left: bool = False
) -> Int[np.ndarray, "rows length"]:
    """Sequences of token ids as a table, padded on the right, or with `left` on the left.

    Raises IndexError or ValueError when they do not fit.
    """
    table = np.full((rows, length), PAD, np.int32)
    for row, ids in enumerate(sequences):
        start = length - len(ids) if left else 0
        table[row, start : start + len(ids)] = ids
    return table


def pad_sources(
    sentences: Sequence[Sequence[int]], rows: int, length: int
) -> Int[np.ndarray, "rows length"]:
    """`pad` of sentences as the encoder reads them, with EOS; `length` counts it."""
    return pad([[*ids, EOS] for ids in sentences], rows, length)
