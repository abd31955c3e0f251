"""The model shapes that the speed benchmarks have in common."""

from typing import Literal, NamedTuple

from transformer.config import ModelConfig

VOCABULARY = 8000
LENGTH = 32
"""Tokens in every source and every target sentence: nothing is padded."""

ShapeName = Literal["A", "B", "tiny"]


class Shape(NamedTuple):
    """`layers` in the encoder and as many in the decoder; `sentences` in a training batch."""

    layers: int
    d_model: int
    d_ff: int
    num_heads: int
    sentences: int

    def __str__(self) -> str:
        return (
            f"{self.layers}+{self.layers} layers, d_model {self.d_model}, d_ff {self.d_ff}, "
            f"{self.num_heads} heads"
        )


SHAPES: dict[ShapeName, Shape] = {
    "A": Shape(layers=4, d_model=256, d_ff=1024, num_heads=4, sentences=32),
    "B": Shape(layers=6, d_model=512, d_ff=2048, num_heads=8, sentences=16),
    "tiny": Shape(layers=1, d_model=32, d_ff=64, num_heads=2, sentences=4),
}
"""`tiny` is for trying a script; its times mean nothing."""


def model_config(shape: Shape, dropout: float = 0.0, attention_bias: bool = False) -> ModelConfig:
    """The paper's model (post-norm, one shared embedding) in this shape.

    `dropout` goes everywhere the paper has it, on attention weights, and into the feed-forward
    layers, as in torch.nn's Transformer layers.
    """
    return ModelConfig(
        source_vocab_size=VOCABULARY,
        target_vocab_size=VOCABULARY,
        encoder_layers=shape.layers,
        decoder_layers=shape.layers,
        d_model=shape.d_model,
        d_ff=shape.d_ff,
        num_heads=shape.num_heads,
        dropout=dropout,
        attention_dropout=dropout,
        activation_dropout=dropout,
        attention_bias=attention_bias,
    )
