"""The options of a model of the Marian toolkit and of its search, as our settings.

Each option is used, or has no effect on translations, or must have a value that changes nothing;
any other is refused by its name. Marian writes those of src/models/encoder_decoder.cpp
(https://github.com/marian-nmt/marian-dev).
"""

import math
import re
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from transformer.config import DecodeConfig, ModelConfig
from transformer.errors import UserError, one_line
from transformer.model.batch import UNK

MOST_POSITIONS = 1024
"""Tokens of a text, EOS included, for which sinusoids are computed: as a table, since Marian's have
other frequencies than ours."""

EPSILON = 1e-6
"""Of Marian's layer normalisation; it is no option."""

ONLY: dict[str, tuple[str, ...]] = {
    "type": ("transformer",),
    "transformer-decoder-autoreg": ("self-attention",),
    "transformer-ffn-activation": ("relu", "swish"),
    "transformer-ffn-depth": ("2",),
    "transformer-decoder-ffn-depth": ("0", "2"),
    "transformer-postprocess-emb": ("", "d"),
}
"""Options that must have one of these values."""

NORMS: dict[tuple[str, str, str], Literal["post", "pre"]] = {
    ("", "dan", ""): "post",
    ("n", "da", "n"): "pre",
}
"""The place of norms, by the next three options."""

PROCESSING = ("transformer-preprocess", "transformer-postprocess", "transformer-postprocess-top")

SIZES = {
    "dim-emb": "d_model", "enc-depth": "encoder_layers", "dec-depth": "decoder_layers",
    "transformer-heads": "num_heads", "transformer-dim-ffn": "d_ff",
}  # fmt: skip
"""Options that are sizes, and our setting for each."""

TIED = ("tied-embeddings", "tied-embeddings-src", "tied-embeddings-all")

LEARNED = ("transformer-train-positions", "transformer-train-position-embeddings")

USED = {*ONLY, *PROCESSING, *SIZES, *TIED, *LEARNED, "dim-vocabs", "transformer-decoder-dim-ffn"}

WITHOUT_EFFECT = {
    "version", "enc-cell", "enc-cell-depth", "enc-type", "dec-cell", "dec-cell-base-depth",
    "dec-cell-high-depth", "dim-rnn", "skip", "layer-normalization", "transformer-dim-aan",
    "transformer-aan-depth", "transformer-aan-activation", "transformer-aan-nogate",
    "transformer-guided-alignment-layer", "transformer-depth-scaling", "ulr-dim-emb",
    "ulr-trainable-transformation", "factors-combine", "factors-dim-emb", "output-omit-bias",
    "bert-train-type-embeddings", "bert-type-vocab-size",
}  # fmt: skip
"""Options of training and of models of other types, and what the arrays say."""

WITHOUT_EFFECT_IN_SEARCH = {
    "models", "vocabs", "relative-paths", "mini-batch", "mini-batch-words", "maxi-batch",
    "maxi-batch-sort", "workspace", "cpu-threads", "devices", "num-devices", "log", "log-level",
    "quiet", "quiet-translation", "alignment", "n-best", "skip-cost", "fp16", "precision",
    "max-length", "max-length-crop", "version", "weights", "word-scores", "seed", "optimize",
}  # fmt: skip
"""Settings of decoder.yml without effect on translations, and those that name files."""

DECIMAL = re.compile(r"\d{1,9}(\.\d{0,9})?")

USED_IN_SEARCH = {"beam-size", "normalize", "allow-unk", "max-length-factor"}

MARIANS_BEAM, MARIANS_RATIO = 12, 3.0
"""Its defaults for beam-size and max-length-factor; without `normalize` it does not normalise."""

OFF = ("", "0", "0.0", "false", "none", "~", "null", [], [""])
"""Values of all other options that mean that something is not done."""


@dataclass(frozen=True)
class Options:
    """What is used of the options of a model: `model` without what vocabularies and positions say,
    and the sizes of its tables of embeddings, `rows`."""

    model: ModelConfig
    has_one_table: bool
    learns_positions: bool
    rows: tuple[int, int]


def read_yaml(text: bytes, file: Path | str) -> dict[str, Any]:
    """A YAML mapping whose values are text, lists and mappings. Raises UserError when damaged."""
    try:
        import yaml
    except ModuleNotFoundError:
        raise UserError(f"{file} needs PyYAML: pip install -e '.[convert]'") from None
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    try:
        value = yaml.load(text.decode(), loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UserError(f"cannot read {file}: {one_line(error)}") from error
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        raise UserError(f"cannot read {file}: it has no names with values")
    return value


def read_options(text: bytes, file: Path) -> Options:
    """The options of a model. Raises UserError naming the first one that cannot be converted."""
    fields = read_yaml(text, f"the options in {file}")
    for name, values in ONLY.items():
        value = fields.get(name, values[0])
        if value not in values:
            raise _refused(file, name, value, values)
    for name, value in fields.items():
        if name not in USED | WITHOUT_EFFECT and value not in OFF:
            raise _refused(file, name, value, ())
    processing = tuple(fields.get(name, "") for name in PROCESSING)
    if processing not in NORMS:
        known = " or ".join(" ".join(map(repr, one)) for one in NORMS)
        raise UserError(
            f"{file}: {', '.join(PROCESSING)} are {' '.join(map(repr, processing))}, but must be "
            f"{known}"
        )
    sizes = [_size(file, name, fields.get(name)) for name in SIZES]
    rows = fields.get("dim-vocabs")
    if not isinstance(rows, list) or len(rows) != 2:
        raise _refused(file, "dim-vocabs", rows, ("two sizes",))
    of_decoder = fields.get("transformer-decoder-dim-ffn", "0")
    if of_decoder not in ("0", fields["transformer-dim-ffn"]):
        only = (fields["transformer-dim-ffn"],)
        raise _refused(file, "transformer-decoder-dim-ffn", of_decoder, only)
    target, source, every = (_flag(file, fields, name) for name in TIED)
    learned = [_flag(file, fields, name) for name in LEARNED]
    learns_positions = any(learned)
    width, heads = sizes[0], sizes[3]
    if width % heads or (not learns_positions and (width % 2 or width < 4)):
        raise UserError(
            f"{file}: the option dim-emb is {width}, but must be an even multiple of "
            f"transformer-heads ({heads}), and at least 4"
        )
    has_one_table = source or every
    is_output = target or every
    model = ModelConfig(
        **dict(zip(SIZES.values(), sizes)),
        norm=NORMS[processing],
        norm_epsilon=EPSILON,
        activation=fields.get("transformer-ffn-activation", "swish"),
        attention_bias=True,
        output_bias=True,
        tying="none" if not is_output else "all" if has_one_table else "target",
        embedding_scale=not learns_positions,
        positions="learned",
    )
    rows = _size(file, "dim-vocabs", rows[0]), _size(file, "dim-vocabs", rows[1])
    return Options(model, has_one_table, learns_positions, rows)


def _flag(file: Path, fields: Mapping[str, Any], name: str) -> bool:
    """An option that is true or false, by default false."""
    value = fields.get(name, "false")
    if value not in ("true", "false"):
        raise _refused(file, name, value, ("true", "false"))
    return value == "true"


def _size(file: Path, name: str, value: object) -> int:
    if not isinstance(value, str) or not value.isdecimal() or not 0 < int(value) < 2**20:
        raise _refused(file, name, value, ("an integer from 1 to 1,048,575",))
    return int(value)


def _refused(file: Path, name: str, value: object, values: tuple[str, ...]) -> UserError:
    supported = f" (supported: {' or '.join(filter(None, values))})" if values else ""
    shown = reprlib.repr(value)
    return UserError(f"{file}: the option {name} is {shown}, which is not supported{supported}")


def listed_names(settings: Mapping[str, Any], name: str, file: Path) -> list[str]:
    """The files that a setting of decoder.yml names."""
    found = settings.get(name, [])
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise _refused(file, name, found, ("a list of files",))
    return found


def decode_config(settings: Mapping[str, Any], file: Path) -> DecodeConfig:
    """How it translates by its decoder.yml; without one, as our models do by default, except that
    Marian never writes unknown tokens."""
    for name, value in settings.items():
        if name not in USED_IN_SEARCH | WITHOUT_EFFECT_IN_SEARCH and value not in OFF:
            raise _refused(file, name, value, ())
    unknown = () if _flag(file, settings, "allow-unk") else (UNK,)
    if not settings:
        return DecodeConfig(forbidden=unknown)
    number = partial(_number, file, settings)
    return DecodeConfig(
        beam_size=int(number("beam-size", MARIANS_BEAM, range(1, 1001))),
        alpha=number("normalize", 0.0, range(11)),
        normalisation="length",
        stop="full",
        forbidden=unknown,
        length_ratio=max(number("max-length-factor", MARIANS_RATIO, range(1001)), 1.0),
        longest_target=MOST_POSITIONS,
    )


def _number(
    file: Path, settings: Mapping[str, Any], name: str, default: float, limits: range
) -> float:
    """A setting of decoder.yml that is a number within these limits."""
    text = settings.get(name, str(default))
    text = {"true": "1", "false": "0"}.get(text, text) if isinstance(text, str) else ""
    value = float(text) if DECIMAL.fullmatch(text) else math.nan
    if not limits[0] <= value <= limits[-1] or (isinstance(default, int) and value % 1):
        raise _refused(file, name, settings[name], (f"{limits[0]} to {limits[-1]:,}",))
    return value
