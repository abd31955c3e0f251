"""The settings and values that an exported model can hold. All others are refused by name."""

from collections.abc import Collection, Mapping
from dataclasses import fields

from transformer.config import DecodeConfig, ModelConfig
from transformer.config.settings import changed_settings
from transformer.errors import UserError

ANY = None
"""All values."""

SHAPE: dict[str, Collection | None] = dict.fromkeys(
    ("source_vocab_size", "target_vocab_size", "encoder_layers", "decoder_layers", "d_model",
     "num_heads", "d_ff", "attention_bias", "output_bias", "tying", "embedding_scale",
     "max_positions"),
    ANY,
)  # fmt: skip
"""Of `model`: settings that show in the weights, and a factor."""
TRAINING: dict[str, Collection | None] = dict.fromkeys(
    ("dropout", "attention_dropout", "activation_dropout", "word_dropout", "recompute",
     "accelerator", "dtype", "max_offset"),
    ANY,
)  # fmt: skip
"""Of `model`: settings without effect in float32 on a trained model without relative positions."""


def check_held(model: ModelConfig, held: Mapping[str, Collection | None], holder: str) -> None:
    """Raises UserError naming a setting that `held` lacks and that is not its default, or whose
    value is not listed there. `holder` names the kind of model that is exported."""
    for field in fields(model):
        value = getattr(model, field.name)
        values = held.get(field.name, (field.default,))
        if values is not ANY and value not in values:
            only = " or ".join(map(str, values))
            raise UserError(
                f"model.{field.name} ({value}) must be {only} in {holder}: use to-safetensors "
                "instead"
            )


def not_held(decode: DecodeConfig, held: Collection[str]) -> list[str]:
    """The settings of a search that `held` lacks and that are not their defaults, with values."""
    return [f"decode.{name} {value}" for name, value in changed_settings(decode, held).items()]
