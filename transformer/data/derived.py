"""What the training pairs say of translations: how long they become."""

import math
from dataclasses import replace

import numpy as np

from transformer.config import Config
from transformer.data.spilled import parts
from transformer.data.token_store import TokenPairs

COVERED = 0.999
"""Share of the training pairs that the limit of an output's length must allow: the longest of a
corpus are often no translations."""

TENTHS = 10
"""A ratio of lengths is rounded up to tenths."""


def with_derived(config: Config, pairs: TokenPairs) -> Config:
    """The config of a translator with the derived fields of `decode`."""
    ratio, longest = length_limits(config, pairs)
    decode = replace(config.decode, length_ratio=ratio, longest_target=longest)
    return replace(config, decode=decode)


def length_limits(config: Config, pairs: TokenPairs) -> tuple[float, int]:
    """`decode.length_ratio` and `decode.longest_target`, so that nearly all training targets are
    within the limit; (1.0, 0) where `decode.max_extra_length` suffices."""
    counts, longest = np.zeros(1, np.int64), 0
    for part in parts(len(pairs)):
        source, target = (lengths.astype(np.int64) for lengths in pairs.lengths(part))
        usable = (np.maximum(source, target) <= config.data.max_length) & (source > 1)
        source, target = source[usable] - 1, target[usable]  # a source without EOS
        needed = -(-TENTHS * (target - config.decode.max_extra_length) // source)
        found = np.bincount(np.maximum(needed, TENTHS))
        counts = np.pad(counts, (0, max(0, len(found) - len(counts))))
        counts[: len(found)] += found
        longest = max(longest, target.max(initial=0))
    covering = np.searchsorted(counts.cumsum(), math.ceil(COVERED * counts.sum()))
    ratio = max(int(covering), TENTHS) / TENTHS
    return ratio, int(longest) if ratio > 1 else 0
