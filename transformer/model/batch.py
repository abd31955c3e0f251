"""A batch of token ids, the one type that data hands to model and training."""

from flax import struct
from jax import Array

PAD, BOS, EOS = 0, 1, 2
"""Padding, beginning and end of a sentence. Every tokenizer of the project has these ids."""


@struct.dataclass
class Batch:
    """Sentence pairs as int32 ids, padded on the right with PAD to one shape.

    source      [B, S]  the source, then EOS
    target_in   [B, T]  BOS, then the target: what the decoder reads
    target_out  [B, T]  the target, then EOS: what it should predict at the same positions
    """

    source: Array
    target_in: Array
    target_out: Array
