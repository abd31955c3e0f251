"""The words of convert.py: which way, from where, to where."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import tyro

from transformer.commands.command_line import parse_script, parse_with_run
from transformer.config import DecodeConfig
from transformer.config.settings import Count
from transformer.errors import UserError

PROGRAM = "python convert.py"
Quantization = Literal["none", "int8", "int16", "float16", "bfloat16"]


@dataclass(frozen=True)
class FromMarian:
    """A folder of Hugging Face's MarianMTModel, such as OPUS-MT's, becomes a run."""

    folder: tyro.conf.Positional[Path]
    """Holds config.json, model.safetensors or pytorch_model.bin, source.spm, target.spm and
    vocab.json."""
    run: tyro.conf.Positional[Path]
    """The run folder to make."""
    source: str = ""
    """Source language, such as en; what the folder says by default."""
    target: str = ""
    """Target language."""


@dataclass(frozen=True)
class ToMarian:
    """A run becomes a folder that transformers loads as MarianMTModel and MarianTokenizer."""

    run: tyro.conf.Positional[Path]
    """The run folder."""
    folder: tyro.conf.Positional[Path] = tyro.MISSING
    """The folder to make."""
    checkpoint: str = "best"
    """best (by the validation set), last, average (of the last few), average-best or a step."""
    decode: DecodeConfig = field(default_factory=DecodeConfig)
    """How it will search; the run's own settings by default."""


@dataclass(frozen=True)
class ToCTranslate2:
    """A run, or a MarianMTModel's folder, becomes a model of CTranslate2; then both translate a
    sample."""

    run: tyro.conf.Positional[Path]
    """The run folder, or the folder of a MarianMTModel."""
    folder: tyro.conf.Positional[Path]
    """The folder to make."""
    checkpoint: str = "best"
    """best (by the validation set), last, average (of the last few), average-best or a step."""
    quantization: Quantization = "none"
    """Precision of the weights; none: float32."""
    target: str = ""
    """Of a model with target tags the language that it is to have alone, such as deu; by default
    each text begins with its tag."""
    sample: tuple[str, ...] = ()
    """A file of sentences to compare on, and one of references or none; by default the run's
    validation sentences."""
    sentences: Count = 200
    """How many of them; 0: no comparison. Where, without quantization, less than 95 % of the
    translations are the same, the model is not kept."""


@dataclass(frozen=True)
class ToArgos:
    """A run, or a MarianMTModel's folder, becomes a package that Argos Translate and LibreTranslate
    install."""

    run: tyro.conf.Positional[Path]
    """The run folder, or the folder of a MarianMTModel."""
    file: tyro.conf.Positional[Path]
    """The file to make, NAME.argosmodel."""
    target: str = ""
    """Of a model with target tags the language of the package, such as deu."""
    checkpoint: str = "best"
    """best (by the validation set), last, average (of the last few), average-best or a step."""
    quantization: Quantization = "int8"
    """Precision of the weights; none: float32."""


@dataclass(frozen=True)
class ToSafetensors:
    """The weights of a run by our names, with its settings and tokenizers, for anything to read."""

    run: tyro.conf.Positional[Path]
    """The run folder."""
    folder: tyro.conf.Positional[Path]
    """The folder to make."""
    checkpoint: str = "best"
    """best (by the validation set), last, average (of the last few), average-best or a step."""


@dataclass(frozen=True)
class FromSafetensors:
    """What to-safetensors wrote becomes a run again."""

    folder: tyro.conf.Positional[Path]
    """Holds model.safetensors, config.json and tokenizer/."""
    run: tyro.conf.Positional[Path]
    """The run folder to make."""


COMMANDS = {
    "from-marian": FromMarian,
    "to-marian": ToMarian,
    "to-ctranslate2": ToCTranslate2,
    "to-argos": ToArgos,
    "to-safetensors": ToSafetensors,
    "from-safetensors": FromSafetensors,
}
Command = FromMarian | ToMarian | ToCTranslate2 | ToArgos | ToSafetensors | FromSafetensors


def parse_convert(words: list[str]) -> Command:
    """Raises UserError for a way that there is not."""
    name, rest = (words[0], words[1:]) if words else ("", [])
    if name in ("-h", "--help"):
        ways = "\n".join(
            f"  {name:17}{' '.join(kind.__doc__.split())}" for name, kind in COMMANDS.items()
        )
        print(f"usage: {PROGRAM} WAY FROM TO [--settings]\n\n{ways}\n\n{PROGRAM} WAY --help: more")
        raise SystemExit(0)
    if name not in COMMANDS:
        ways = ", ".join(COMMANDS)
        raise UserError(f"{name!r} is no way to convert: {PROGRAM} followed by one of {ways}")
    program, kind = f"{PROGRAM} {name}", COMMANDS[name]
    if kind is ToMarian and rest and not rest[0].startswith("-"):
        if len(rest) < 2 or rest[1].startswith("-"):
            raise UserError(f"{program} RUN FOLDER: the folder to make is missing")
        return parse_with_run(kind, rest, program)[0]
    return parse_script(kind, rest, program)
