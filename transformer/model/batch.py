"""A batch of token ids, the one type that data hands to model and training."""

from flax import struct
from jax import Array

PAD, BOS, EOS, UNK = 0, 1, 2, 3
"""Padding, beginning and end of a sentence, and text that the vocabulary does not have. Every
tokenizer of the project has these ids."""


class Batch(struct.PyTreeNode):
    """Sentence pairs as int32 ids, padded on the right with PAD to one shape.

    source      [B, S]  the source, then EOS: what the encoder reads, or None
    target_in   [B, T]  BOS, then the target: what the decoder reads, or None
    target_out  [B, T]  the target, then EOS: what should be predicted at the same positions

    For an encoder alone target_out is [B, S] and holds PAD where nothing is asked, or [B, 1], the
    classes of sentences.
    """

    source: Array | None
    target_in: Array | None
    target_out: Array
