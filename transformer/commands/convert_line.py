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
    """Convert an OPUS-MT model, or another model of Marian, to a run."""

    folder: Positional[Path]
    """Folder of Hugging Face's MarianMTModel: config.json, model.safetensors or pytorch_model.bin,
    source.spm, target.spm and vocab.json. Or a model of the Marian toolkit: a .npz file, or the
    folder of one, with decoder.yml and the vocabularies that it names."""
    run: Positional[Path]
    """The run folder to create."""
    source: str = ""
    """Source language, such as en; "": as in tokenizer_config.json."""
    target: str = ""
    """Target language, such as de; "": as in tokenizer_config.json."""
    vocabularies: tuple[Path, ...] = ()
    """For a .npz file: the vocabularies of source and target, or the one that both share, such as
    vocab.yml (with source.spm and target.spm beside the model) or vocab.spm; by default those that
    decoder.yml names."""


@dataclass(frozen=True)
class ToMarian:
    """Convert a run to a folder that transformers loads as MarianMTModel and MarianTokenizer."""

    run: RunFolder
    folder: Positional[Path] = tyro.MISSING
    """The folder to create."""
    checkpoint: Checkpoint = "best"
    decode: Decode = field(default_factory=DecodeConfig)


@dataclass(frozen=True)
class ToCTranslate2:
    """Convert a run, or the folder of a MarianMTModel, to a CTranslate2 model, and compare the
    translations of both on a sample."""

    run: Positional[Path]
    """The run folder, or the folder of a MarianMTModel."""
    folder: Positional[Path]
    """The folder to create."""
    checkpoint: Checkpoint = "best"
    quantization: Quantization = "none"
    """Precision of the weights; none: float32."""
    target: str = ""
    """The only target language of the exported model, such as deu, if the run has target tags; "":
    all of them, and each text begins with its tag."""
    sample: tuple[str, ...] = ()
    """A file of sentences to compare on and, optionally, a file of references; by default the run's
    validation sentences."""
    sentences: Count = 200
    """Number of sentences to compare; 0: none. A model without quantization is not kept if less
    than 95 % of its translations are the same."""
    shortlist: Count = 0
    """Also write vmap.txt, with this number of target tokens for each source token (of the run's
    shortlist.npz), for use_vmap of CTranslate2; 0: none."""
    frequent: Count = 0
    """The same: this number of target tokens for all sentences, the most frequent ones; 0: eight
    for each one of --shortlist."""


@dataclass(frozen=True)
class ToArgos:
    """Convert a run, or the folder of a MarianMTModel, to a package for Argos Translate and
    LibreTranslate."""

    run: Positional[Path]
    """The run folder, or the folder of a MarianMTModel."""
    file: Positional[Path]
    """The file to create, NAME.argosmodel."""
    target: str = ""
    """The target language of the package, such as deu; required if the run has target tags."""
    checkpoint: Checkpoint = "best"
    quantization: Quantization = "int8"
    """Precision of the weights; none: float32."""


@dataclass(frozen=True)
class ToSafetensors:
    """Export the weights of a run as safetensors, under the names of this program, together with
    settings and tokenizers."""

    run: RunFolder
    folder: Positional[Path]
    """The folder to create."""
    checkpoint: Checkpoint = "best"


@dataclass(frozen=True)
class FromSafetensors:
    """Convert a folder that to-safetensors wrote back to a run."""

    folder: Positional[Path]
    """Folder with model.safetensors, config.json and tokenizer/."""
    run: Positional[Path]
    """The run folder to create."""


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
            raise UserError(f"{PROGRAM} to-marian RUN FOLDER: the folder to create is missing")
        return parse_with_run(ToMarian, words[1:], f"{PROGRAM} to-marian")[0]
    return parse_script(Command, words, PROGRAM)
