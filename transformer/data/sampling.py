"""The pairs of each epoch: corpus weights, sampled segmentations of words, and changed text.

All depend on seed and epoch alone, so that training can resume at any batch. The shapes of batches
are the same in all epochs, since each is compiled.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from transformer.config import DataConfig
from transformer.data.augmentation import Augmentation
from transformer.data.buckets import BatchPlan, Bucket, fits, longest_targets, make_plan, refilled
from transformer.data.files import corpora, corpus_sizes, language_of
from transformer.data.progress import Log, quiet
from transformer.data.segmentation import Words, make_words
from transformer.data.token_store import Sentences, TokenPairs, offsets
from transformer.data.vocabularies import Tokenizers
from transformer.errors import UserError

SampleEpoch = Callable[[int], tuple[TokenPairs, BatchPlan]]
"""From the number of an epoch to its pairs and their plan."""

WEIGHTS, PIECES, LISTS, CHANGES = 1, 2, 3, 4
"""What is sampled, as a part of the seed."""


@dataclass(frozen=True)
class Epochs:
    """A function from the number of an epoch to its pairs and their plan.

    plan     of all pairs once, with shapes for all segmentations
    sizes    pairs in each corpus, where they have weights
    sides    the words of source and target, where there is `data.sampling`
    augment  changes shares of the pairs, where `data` has them
    """

    weights: tuple[float, ...]
    seed: int
    pairs: TokenPairs
    plan: BatchPlan
    sizes: tuple[int, ...]
    sides: tuple[Words, ...]
    augment: Augmentation | None

    def __call__(self, epoch: int) -> tuple[TokenPairs, BatchPlan]:
        pairs, numbers = self.pairs, self.numbers(epoch)
        longest = longest_targets(self.plan.buckets)
        if self.sides:
            pairs = sampled(self.sides, longest, (self.seed, epoch, PIECES))
        if self.augment:
            pairs, numbers = self.augment(pairs, numbers, longest, (self.seed, epoch, CHANGES))
        return pairs, refilled(self.plan, pairs, numbers)

    def numbers(self, epoch: int) -> np.ndarray:
        """The numbers of the pairs of an epoch, with repeats."""
        numbers = np.sort(np.concatenate(self.plan.members))
        if not self.weights:
            return numbers
        times = repeats(self.weights, self.sizes, (self.seed, epoch, WEIGHTS))
        return np.repeat(numbers, times[numbers])


def make_epochs(
    data: DataConfig, tokenizers: Tokenizers, seed: int, pairs: TokenPairs, log: Log = quiet
) -> tuple[BatchPlan, SampleEpoch | None]:
    """The plan, and a function for the pairs of each epoch if epochs differ; `log` gets the
    progress. Raises UserError if the weights leave no pairs."""
    if not (data.train_weights or data.corpus_temperature or data.sampling or data.changed):
        return make_plan(pairs, data), None
    planned, sides, augment = pairs, (), None
    longest = longest_targets([Bucket(0, data.max_length, data.max_length)])
    if data.sampling:
        generator = np.random.default_rng((seed, LISTS))
        sides = tuple(
            make_words(tokenizer, text, data.sampling, generator, log)
            for tokenizer, text in zip(tokenizers, (pairs.source, pairs.target))
        )
        planned = _longest(planned, sampled(sides, longest, (seed, 0, PIECES)))
    if data.changed:
        augment = Augmentation(data, tokenizers)
        found, numbers = augment(pairs, np.arange(len(pairs)), longest, (seed, 0, CHANGES))
        planned = _longest(planned, found, numbers)
    plan = make_plan(planned, data)
    weights, sizes = data.train_weights, ()
    if weights or data.corpus_temperature:
        sizes = tuple(corpus_sizes(data))
        weights = weights or even_weights(data, sizes)
    sample_epoch = Epochs(weights, seed, pairs, plan, sizes, sides, augment)
    if not len(sample_epoch.numbers(0)):
        raise UserError("data.train_weights leave no pair to train on: raise them")
    return plan, lru_cache(maxsize=1)(sample_epoch)


def even_weights(data: DataConfig, sizes: Sequence[int]) -> tuple[float, ...]:
    """How often an epoch has the pairs of each corpus, of these sizes, by the temperature."""
    found = corpora(data, "train")
    groups = [language_of(data, corpus) if data.targets else str(corpus) for corpus in found]
    totals = Counter[str]()
    for group, size in zip(groups, sizes):
        totals[group] += size
    largest, power = max(totals.values()), 1 - 1 / data.corpus_temperature
    return tuple((largest / max(totals[group], 1)) ** power for group in groups)


def repeats(
    weights: tuple[float, ...], sizes: tuple[int, ...], seed: tuple[int, ...]
) -> np.ndarray:
    """How often an epoch has each pair, by the weights of the corpora: with 2.5, all pairs twice,
    and a random half of them once more."""
    generator = np.random.default_rng(seed)
    times = []
    for weight, size in zip(weights, sizes):
        once_more = generator.permutation(size) < round(weight % 1 * size)
        times.append(int(weight) + once_more)
    return np.concatenate(times)


def sampled(
    sides: tuple[Words, ...], longest_targets: np.ndarray, seed: tuple[int, ...]
) -> TokenPairs:
    """The pairs with sampled segmentations; those that would be too long keep their first ones."""
    generator = np.random.default_rng(seed)
    chosen = [words.sample(generator) for words in sides]
    lengths = (words.lengths(found) for words, found in zip(sides, chosen))
    fitting = fits(*lengths, longest_targets)
    return TokenPairs(
        *(words.sentences(words.where(fitting, found)) for words, found in zip(sides, chosen))
    )


def _longest(
    pairs: TokenPairs, others: TokenPairs, numbers: slice | np.ndarray = slice(None)
) -> TokenPairs:
    """Pairs without tokens, as long as the longer of each pair and the other of its number."""
    both = (pairs.source, others.source), (pairs.target, others.target)
    lengths = (np.maximum(a.lengths, b.lengths[numbers]) for a, b in both)
    return TokenPairs(*(Sentences(np.zeros(0, np.int32), offsets(longest)) for longest in lengths))
