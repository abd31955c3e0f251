"""Masks for a masked language model (Devlin et al., 2019, section 3.1)."""

import numpy as np
from jaxtyping import Int

from transformer.model.batch import EOS, PAD, UNK, Batch

CHOSEN = 0.15
"""The fraction of a sentence's tokens that are to be predicted; at least one."""

MASKED, RANDOM = 0.8, 0.1
"""The fractions of the chosen ones that become UNK and a random token; the others stay."""


def masked(
    source: Int[np.ndarray, "B S"], vocab_size: int, generator: np.random.Generator
) -> Batch:
    """The sentences with some tokens replaced, and the original tokens, PAD at all other positions.

    The mask is UNK, which every vocabulary has: to the model, an unknown word and a masked one are
    the same. EOS and UNK are never chosen.
    """
    text = (source != PAD) & (source != EOS) & (source != UNK)
    wanted = np.maximum(np.round(CHOSEN * text.sum(1)), 1)
    order = np.where(text, generator.random(source.shape), 2).argsort(1).argsort(1)
    chosen = text & (order < wanted[:, None])
    chance = generator.random(source.shape)
    random = generator.integers(UNK + 1, vocab_size, source.shape)
    replaced = np.where(chance < MASKED, UNK, np.where(chance < MASKED + RANDOM, random, source))
    return Batch(
        source=np.where(chosen, replaced, source).astype(np.int32),
        target_in=None,
        target_out=np.where(chosen, source, PAD).astype(np.int32),
    )
