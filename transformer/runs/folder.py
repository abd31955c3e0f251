"""The run folder: all that scoring and translating need.

runs/NAME/
    config.json            every setting of the run
    tokenizer/             SentencePiece models: source.model, and target.model if it differs; the
                           classes of a classifier: labels.json
    checkpoints/STEP/      params, optimizer, progress and digests (checkpoints.py)
    damaged/               checkpoints that differ from what was saved
    skipped/STEP/          updates that were skipped and ended training (skipped.py)
    starts.jsonl           the launch log: where and with what it was trained
    metrics.jsonl          one line per report; tensorboard/ has the same, and wandb/ with --wandb
    profile/               the traces of `--profile`
    eval/                  translations and scores of test sets
    lock                   locked while a train.py is at work
"""

import json
import os
import shlex
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from transformer.config import Config
from transformer.config.files import from_json, to_json
from transformer.config.resuming import FILES, SCHEDULE, falls_from, identity, setting_flag
from transformer.config.rules import check_limits
from transformer.config.settings import (
    FORMER_DEFAULTS,
    Count,
    Number,
    Positive,
    by_name,
    current_name,
    differing_fields,
)
from transformer.errors import UserError
from transformer.machine.files import append_text, is_locked, sync, sync_tree, write_text


def load_run_config(folder: Path) -> Config:
    """The config of a run. Raises UserError for a folder that is not a run, listing the runs."""
    path = folder / "config.json"
    if not path.is_file():
        runs = sorted(str(p.parent) for p in folder.parent.glob("*/config.json"))
        raise UserError(
            f"{folder} is not a run (it has no config.json); "
            f"{'runs in the same place: ' + ', '.join(runs) if runs else 'train.py creates runs'}"
        )
    try:
        text = path.read_text(encoding="utf-8")
        if "model_type" in json.loads(text):
            raise UserError(
                f"{folder} is a model of Hugging Face's transformers: convert a MarianMTModel to a "
                f"run with python convert.py from-marian {folder} RUN"
            )
        return from_json(text)
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(f"{path} is damaged ({error}): restore it from the config") from error


def has_checkpoints(folder: Path) -> bool:
    """Whether training can be resumed from a run folder."""
    return bool(checkpoint_steps(folder))


def checkpoint_steps(folder: Path) -> list[int]:
    """The updates after which there is a checkpoint."""
    names = (path.name for path in (folder / "checkpoints").glob("*"))
    return sorted(int(name) for name in names if name.isdecimal())


def check_folder(folder: Path) -> None:
    """Raises UserError for a file, and for a folder that is neither a run nor the start of one."""
    if (folder / "config.json").exists():
        return
    others = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    if folder.is_file() or set(others) - {"tokenizer", "config.json.tmp", "lock"}:
        raise UserError(f"{folder} exists and is not a run: choose another folder with --run")


def create_run(folder: Path, config: Config) -> None:
    """Makes a folder a run. Called last: a run with a config also has its vocabulary."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        sync_tree(folder)
        write_text(folder / "config.json", to_json(config))
        sync(folder.parent)
    except OSError as error:
        raise UserError(
            f"cannot write to {folder}: {error.strerror}; choose another folder with --run"
        ) from error


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Locks the run, before anything is written to it, against a second train.py.

    Makes the folder, and removes it again if it stays empty. Raises UserError when a train.py is at
    work there, when it is not a run, or when it cannot be made.
    """
    check_folder(folder)
    made = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "lock").open("a")
    except OSError as error:
        where = error.filename or folder
        raise UserError(
            f"cannot write to {where}: {error.strerror}; choose another folder with --run"
        ) from error
    with lock:
        try:
            is_ours = not is_locked(lock.fileno()) and os.path.samestat(
                os.stat(lock.name), os.fstat(lock.fileno())
            )
        except FileNotFoundError:
            is_ours = False  # removed meanwhile by the process that had locked it
        if not is_ours:
            raise UserError(
                f"another train.py is running in {folder}: wait for its end, or choose another "
                "folder with --run"
            )
        try:
            yield
        finally:
            with suppress(OSError):  # must not hide the error that ended training
                if made and os.listdir(folder) == ["lock"]:
                    (folder / "lock").unlink()
                    folder.rmdir()


@contextmanager
def still_there(folder: Path) -> Iterator[None]:
    """Raises UserError when the run is gone during training: Orbax would make it again. When it
    goes while the block writes to it, this takes the place of the block's own error."""
    _check_still_there(folder)
    try:
        yield
    except (OSError, UserError):
        _check_still_there(folder)
        raise


def _check_still_there(folder: Path) -> None:
    if not (folder / "config.json").exists():
        raise UserError(
            f"{folder} was moved or deleted during training: move it back to continue from its "
            "last checkpoint, or run the same command to train from the beginning"
        )


def kept_settings(config: Config) -> dict[str, object]:
    """The settings that a checkpoint keeps: those of its run's identity that are not defaults."""
    default = by_name(Config())
    kept = {name: value for name, value in identity(config).items() if value != default[name]}
    return json.loads(json.dumps(kept))


def check_settings(folder: Path, step: int, kept: Mapping[str, object]) -> None:
    """Raises UserError when config.json has changed since a checkpoint kept these settings."""
    path = folder / "config.json"
    if not kept or not path.exists():  # of an early version, or moved out of its run
        return
    config = load_run_config(folder)
    kept = {current_name(name): value for name, value in kept.items()}
    there, default = kept_settings(config), by_name(Config())
    for name in sorted((there.keys() | kept.keys()) & identity(config).keys()):
        before, now = (settings.get(name, default.get(name)) for settings in (kept, there))
        if before != now:
            raise UserError(
                f"{path} has changed since checkpoint {step} was saved: set {name} back from "
                f"{now!r} to {before!r}"
            )


def with_former_defaults(folder: Path, config: Config) -> Config:
    """`config` for resuming a run; where a default has changed since it started, the run's value
    holds."""
    if not has_checkpoints(folder):
        return config
    there, here, default = map(by_name, (load_run_config(folder), config, Config()))
    for name, former in FORMER_DEFAULTS.items():
        if there[name] == former and here[name] == default[name]:
            config = config.with_settings({name: former})
    return config


FLAGS_SHOWN = 5
"""With more differences than this, a command was meant for another run."""


def check_same_run(folder: Path, config: Config) -> None:
    """Raises UserError naming settings with which the past updates would have been different."""
    before = load_run_config(folder)
    differences = {
        name: values
        for name, values in differing_fields(before, config).items()
        if name in identity(config) and not (name == "train.origin" and _is_moved(*values))
    }
    _refuse(folder, differences)


def _is_moved(before: str, now: str) -> bool:
    """Whether `now` may be the run folder that was `before`: the same, or that one is gone."""
    if not (before and now):
        return False
    return not Path(before, "config.json").exists() or Path(before).resolve() == Path(now).resolve()


def take_up_run(folder: Path, config: Config, done: int, same_files: Set[str]) -> str:
    """Makes `config` the run's after `done` updates, and returns a description of what changed.

    `same_files`: settings of `FILES` whose files have the same content as before. Raises UserError
    for settings with which the past updates would have been different.
    """
    before = load_run_config(folder)
    differences = differing_fields(before, config)
    falling = min(falls_from(before), falls_from(config))
    schedule = SCHEDULE & differences.keys()
    if config.train.steps < done and schedule:
        named = {name: differences[name] for name in sorted(schedule)}
        _refuse(folder, named, f"{done:,} updates are done")
    if done >= falling:
        would = "would have" if falls_from(before) > done else "has"
        reason = f"the learning rate {would} been falling since update {falling:,}"
        earlier = [step for step in checkpoint_steps(folder) if step < falling]
        if earlier:
            reason += f" (to undo this, move the checkpoints after {earlier[-1]:,} away)"
        _refuse(folder, {name: differences[name] for name in sorted(schedule)}, reason)
    others = sorted((FILES - same_files) & differences.keys())
    _refuse(folder, {name: differences[name] for name in others}, "the files have other contents")
    if differences:
        write_text(folder / "config.json", to_json(config))
    return ", ".join(f"{name} {old!r} to {new!r}" for name, (old, new) in differences.items())


def _refuse(folder: Path, differences: Mapping[str, tuple[object, object]], why: str = "") -> None:
    """Raises UserError if there are differences, with the flags that undo them."""
    if not differences:
        return
    shown = "; ".join(
        f"{name} is {there!r} in the run, {here!r} in this command"
        for name, (there, here) in differences.items()
    )
    flags = [_flag(name, there) for name, (there, _) in differences.items()]
    own = " ".join(flags) if all(flags) and len(flags) <= FLAGS_SHOWN else "its own settings"
    weights = f" (add --from {folder} to start from its weights)" if why else ""
    raise UserError(
        f"{folder} is a run with other settings ({shown}){why and f', and {why}'}: "
        f"resume it with {own}, or choose another folder with --run{weights}"
    )


def _flag(name: str, value: object) -> str:
    """The words of a command that give a setting, or the run to start from, its value."""
    if name == "train.origin":
        return f"--from {shlex.quote(str(value))}" if value else "no --from"
    return setting_flag(name, value)


PACKAGES = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "sentencepiece", "numpy")
"""Their versions are logged."""


@dataclass(frozen=True)
class Launch:
    """A start of train.py: a line of starts.jsonl.

    step, seconds  how many updates had been done, and in which time
    unit, count    "core" or "device", and how many of them work
    name           which processor or device
    looked         the data summary
    changed        settings that a resumed run has changed
    """

    step: Count
    seconds: Number
    unit: Literal["core", "device"]
    count: Positive
    name: str
    looked: str = ""
    changed: str = ""


def record_launch(folder: Path, launch: Launch, program: str) -> None:
    """Adds a line, with the versions of this program and of its libraries."""
    versions = {"program": program} | {name: version(name) for name in PACKAGES}
    append_text(folder / "starts.jsonl", json.dumps(asdict(launch) | {"versions": versions}) + "\n")


def read_launches(folder: Path) -> list[Launch]:
    """Those of a run; damaged lines are skipped, and runs of early versions have none."""
    path, launches = folder / "starts.jsonl", []
    for line in path.read_bytes().splitlines() if path.exists() else []:
        with suppress(ValueError, TypeError, KeyError, AttributeError, RecursionError, UserError):
            values = json.loads(line)
            values.pop("versions")
            launch = Launch(**values)
            check_limits(launch)
            launches.append(launch)
    return launches
