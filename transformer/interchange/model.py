"""Models of this project: run folders, and folders with plain safetensors."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from transformer.config import Config
from transformer.config.files import to_json
from transformer.config.rules import check
from transformer.data.corpus import CONVERTED
from transformer.data.vocabularies import load_tokenizers, save_tokenizers
from transformer.decoding.shortlist import FILE as SHORTLIST
from transformer.errors import UserError, one_line
from transformer.interchange.weights import checked, load_weights, save_weights
from transformer.machine.files import atomic_directory
from transformer.runs.checkpoints import save_params
from transformer.runs.folder import load_run_config
from transformer.runs.load import Run, load_run

WEIGHTS = "model.safetensors"


def origin_of(path: Path) -> str:
    """What a run that was converted from a file or folder names as its data set."""
    return CONVERTED + "".join(c if c.isprintable() else "?" for c in path.resolve().name)


@contextmanager
def new_output(
    path: Path, atomic: Callable[[Path], AbstractContextManager[Path]] = atomic_directory
) -> Iterator[Path]:
    """A path to write to, which becomes `path`, or leaves nothing after an error.

    Raises UserError when `path` exists or cannot be written.
    """
    if path.exists():
        raise UserError(f"{path} exists already: choose another name")
    missing = [parent for parent in path.parents if not parent.exists()]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic(path) as temporary:
            yield temporary
    except OSError as error:
        where = Path(str(error.filename or path)).absolute()
        if not where.is_relative_to(path.parent.absolute()) and where.exists():
            raise  # of something that was read
        raise UserError(f"cannot write to {path}: {error.strerror or one_line(error)}") from error
    finally:
        for parent in missing:
            with suppress(OSError):  # it holds something
                parent.rmdir()


def longest_sequence(config: Config) -> int:
    """Positions that sources and translations need."""
    decode = config.decode
    translation = decode.max_length or decode.max_extra_length + config.data.max_length
    return max(decode.max_source_length, translation) + 1


def load_translator(folder: Path, checkpoint: str = "best", config: Config | None = None) -> Run:
    """`load_run` of a translator; raises UserError for another kind of model."""
    config = config or load_run_config(folder)
    if not (config.model.encoder_layers and config.model.decoder_layers):
        raise UserError(f"{folder} is not a translator: export it with to-safetensors")
    return load_run(folder, checkpoint, config)


def save_run(folder: Path, model: Run) -> None:
    """A run folder, to translate with and to start training from (--from)."""
    save_tokenizers(model.tokenizers, folder / "tokenizer")
    save_params(folder, model.config, model.params)
    (folder / "config.json").write_text(to_json(model.config), encoding="utf-8")


def copy_shortlist(source: Path, folder: Path) -> None:
    """Copies the file that decode.shortlist and decode.frequent read, if there is one."""
    if (source / SHORTLIST).exists():
        shutil.copyfile(source / SHORTLIST, folder / SHORTLIST)


def save_plain(folder: Path, model: Run) -> None:
    """Weights as safetensors, by the names of our tree, with the settings and the tokenizers."""
    save_tokenizers(model.tokenizers, folder / "tokenizer")
    save_weights(folder / WEIGHTS, model.params)
    (folder / "config.json").write_text(to_json(model.config), encoding="utf-8")


def load_plain(folder: Path) -> Run:
    """The inverse of `save_plain`. Raises UserError when a file is damaged or missing."""
    checked(folder / "config.json")
    config = load_run_config(folder)
    check(config)
    tokenizers = load_tokenizers(folder / "tokenizer", config.data)
    return Run(config, load_weights(folder / WEIGHTS, config.model), tokenizers)
