"""The run folder: everything that scoring and translating need.

runs/NAME/
    config.json            every setting of the run
    tokenizer/             SentencePiece models: source.model, and target.model if it differs
    checkpoints/STEP/      params, optimizer and progress (checkpoints.py)
    metrics.jsonl          one line a report
    eval/                  translations and scores of test sets
    lock                   held by the train.py that is at work
"""

import os
from pathlib import Path
from typing import TextIO

from transformer.command_line import load_run_config
from transformer.config import Config, UserError, differing_fields, to_json
from transformer.data.tokenizer import Tokenizers, save_tokenizers

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None


def is_run(folder: Path) -> bool:
    """Whether a run is there. Raises UserError when something else is."""
    if (folder / "config.json").exists():
        return True
    others = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    if folder.is_file() or set(others) - {"tokenizer", "config.json.tmp"}:
        raise UserError(f"{folder} exists and is not a run: choose another folder with --run")
    return False


def create_run(folder: Path, config: Config, tokenizers: Tokenizers) -> None:
    """Makes a run folder. The config comes last: where it stands, the rest does too."""
    try:
        save_tokenizers(tokenizers, folder / "tokenizer")
        write_text(folder / "config.json", to_json(config))
    except OSError as error:
        raise UserError(f"cannot write to {folder}: {error.strerror}; choose --run") from error


def hold(folder: Path) -> TextIO:
    """Keeps a second train.py away from the run, until what is returned is closed.

    Raises UserError when one is at work there.
    """
    lock = (folder / "lock").open("w")
    try:
        if fcntl:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise UserError(
            f"another train.py is at work in {folder}: wait for it, or choose --run"
        ) from error
    return lock


def take_up_run(folder: Path, config: Config) -> None:
    """Makes sure that `config` is the run's; its `decode` settings replace the run's.

    Raises UserError naming the settings that differ.
    """
    differences = differing_fields(load_run_config(folder), config)
    # How its output is decoded and where raw files lie may change; what the run is may not.
    fixed = {
        name: values
        for name, values in differences.items()
        if not name.startswith("decode.") and name != "data.manual_dir"
    }
    if fixed:
        shown = "; ".join(
            f"{name} is {old!r} there, {new!r} here" for name, (old, new) in fixed.items()
        )
        raise UserError(
            f"{folder} holds a run with another config ({shown}): "
            "use the same settings to go on with it, or another folder with --run"
        )
    write_text(folder / "config.json", to_json(config))


def write_text(path: Path, text: str) -> None:
    """Writes a file whole or not at all."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)
