"""The commands of convert.py: the direction, what to read, what to write."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro
from tyro.conf import Positional, subcommand

from transformer.commands.command_line import (
    Checkpoint,
    Decode,
    RunFolder,
    parse_script,
    parse_with_run,
)
from transformer.config import DecodeConfig
from transformer.config.settings import Count
from transformer.errors import UserError

PROGRAM = "python convert.py"
Quantization = Literal["none", "int8", "int16", "float16", "bfloat16"]


@dataclass(frozen=True)
class FromMarian:
    """A folder of Hugging Face's MarianMTModel, such as OPUS-MT's, becomes a run."""

    folder: Positional[Path]
    """Holds config.json, model.safetensors or pytorch_model.bin, source.spm, target.spm and
    vocab.json."""
    run: Positional[Path]
    """The run folder to make."""
    source: str = ""
    """Source language, such as en; what the folder says by default."""
    target: str = ""
    """Target language."""


@dataclass(frozen=True)
class ToMarian:
    """A run becomes a folder that transformers loads as MarianMTModel and MarianTokenizer."""

    run: RunFolder
    folder: Positional[Path] = tyro.MISSING
    """The folder to make."""
    checkpoint: Checkpoint = "best"
    decode: Decode = field(default_factory=DecodeConfig)


@dataclass(frozen=True)
class ToCTranslate2:
    """A run, or a MarianMTModel's folder, becomes a model of CTranslate2; then both translate a
    sample."""

    run: Positional[Path]
    """The run folder, or the folder of a MarianMTModel."""
    folder: Positional[Path]
    """The folder to make."""
    checkpoint: Checkpoint = "best"
    quantization: Quantization = "none"
    """Precision of the weights; none: float32."""
    target: str = ""
    """The only language of the exported model, such as deu, if the run has target tags; by default
    each text begins with its tag."""
    sample: tuple[str, ...] = ()
    """A file of sentences to compare on, and one of references or none; by default the run's
    validation sentences."""
    sentences: Count = 200
    """Number of sentences to compare; 0: none. A model without quantization is not kept if less
    than 95 % of the translations are the same."""


@dataclass(frozen=True)
class ToArgos:
    """A run, or a MarianMTModel's folder, becomes a package that Argos Translate and LibreTranslate
    install."""

    run: Positional[Path]
    """The run folder, or the folder of a MarianMTModel."""
    file: Positional[Path]
    """The file to make, NAME.argosmodel."""
    target: str = ""
    """The language of the package, such as deu, if the run has target tags."""
    checkpoint: Checkpoint = "best"
    quantization: Quantization = "int8"
    """Precision of the weights; none: float32."""


@dataclass(frozen=True)
class ToSafetensors:
    """The weights of a run by our names, with its settings and tokenizers, for anything to read."""

    run: RunFolder
    folder: Positional[Path]
    """The folder to make."""
    checkpoint: Checkpoint = "best"


@dataclass(frozen=True)
class FromSafetensors:
    """What to-safetensors wrote becomes a run again."""

    folder: Positional[Path]
    """Holds model.safetensors, config.json and tokenizer/."""
    run: Positional[Path]
    """The run folder to make."""


Command = (
    FromMarian
    | ToMarian
    | Annotated[ToCTranslate2, subcommand("to-ctranslate2")]
    | ToArgos
    | ToSafetensors
    | FromSafetensors
)


def parse_convert(words: list[str]) -> Command:
    """The command that the words name, checked. Raises UserError."""
    if words[:1] == ["to-marian"] and len(words) > 1 and not words[1].startswith("-"):
        if len(words) < 3 or words[2].startswith("-"):
            raise UserError(f"{PROGRAM} to-marian RUN FOLDER: the folder to make is missing")
        return parse_with_run(ToMarian, words[1:], f"{PROGRAM} to-marian")[0]
    return parse_script(Command, words, PROGRAM)
