"""The run folder: everything that scoring and translating need.

runs/NAME/
    config.json            every setting of the run
    tokenizer/             SentencePiece models: source.model, and target.model if it differs; the
                           classes of a classifier: labels.json
    checkpoints/STEP/      params, optimizer, progress and digests (checkpoints.py)
    damaged/               checkpoints in which something was not what was saved
    skipped/STEP/          updates that were skipped and ended training (skipped.py)
    starts.jsonl           where and with what it was trained (starts.py)
    metrics.jsonl          one line a report; tensorboard/ has the same, and wandb/ with --wandb
    profile/               what `--profile` saw
    eval/                  translations and scores of test sets
    lock                   held by the train.py that is at work
"""

import json
import os
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager, suppress
from pathlib import Path

from transformer.config import Config
from transformer.config.files import from_json, to_json
from transformer.config.resuming import FILES, SCHEDULE, falls_from, identity, setting_flag
from transformer.config.settings import (
    FORMER_DEFAULTS,
    by_name,
    current_name,
    differing_fields,
)
from transformer.errors import UserError
from transformer.machine.disk import sync, sync_tree, write_text
from transformer.machine.locks import is_taken


def load_run_config(folder: Path) -> Config:
    """The config of a run. Raises UserError for a folder that is not a run, listing the runs."""
    path = folder / "config.json"
    if not path.is_file():
        runs = sorted(str(p.parent) for p in folder.parent.glob("*/config.json"))
        raise UserError(
            f"{folder} is not a run (it has no config.json); "
            f"{'runs beside it: ' + ', '.join(runs) if runs else 'train.py makes runs'}"
        )
    try:
        text = path.read_text(encoding="utf-8")
        if "model_type" in json.loads(text):
            raise UserError(
                f"{folder} is a folder of transformers: python convert.py from-marian {folder} RUN "
                "makes a run of a MarianMTModel"
            )
        return from_json(text)
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(f"{path} is damaged ({error}): restore it from the config") from error


def has_checkpoints(folder: Path) -> bool:
    """Whether there is something in a run folder that training can go on from."""
    return bool(checkpoint_steps(folder))


def checkpoint_steps(folder: Path) -> list[int]:
    """The updates after which there is a checkpoint."""
    names = (path.name for path in (folder / "checkpoints").glob("*"))
    return sorted(int(name) for name in names if name.isdecimal())


def check_folder(folder: Path) -> None:
    """Raises UserError when something else is there than a run, whole or half made."""
    if (folder / "config.json").exists():
        return
    others = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    if folder.is_file() or set(others) - {"tokenizer", "config.json.tmp", "lock"}:
        raise UserError(f"{folder} exists and is not a run: choose another folder with --run")


def create_run(folder: Path, config: Config) -> None:
    """Makes a folder a run. It comes last: where a config stands, the vocabulary does too."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        sync_tree(folder / "tokenizer")
        write_text(folder / "config.json", to_json(config))
        sync(folder.parent)
    except OSError as error:
        raise UserError(f"cannot write to {folder}: {error.strerror}; choose --run") from error


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Keeps a second train.py away from the run. Comes before anything is written to it.

    Makes the folder, and takes it away again where nothing was put into it. Raises UserError when
    a train.py is at work there, when it is something else than a run, or when it cannot be made.
    """
    check_folder(folder)
    made = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "lock").open("a")
    except OSError as error:
        where = error.filename or folder
        raise UserError(f"cannot write to {where}: {error.strerror}; choose --run") from error
    with lock:
        try:
            is_ours = not is_taken(lock.fileno()) and os.path.samestat(
                os.stat(lock.name), os.fstat(lock.fileno())
            )
        except FileNotFoundError:
            is_ours = False  # taken away meanwhile by the one that held it
        if not is_ours:
            raise UserError(
                f"another train.py is at work in {folder}: wait for it, or choose --run"
            )
        try:
            yield
        finally:
            with suppress(OSError):  # whatever it is, it must not hide what went wrong
                if made and os.listdir(folder) == ["lock"]:
                    (folder / "lock").unlink()
                    folder.rmdir()


def check_still_there(folder: Path) -> None:
    """Raises UserError when a run that is at work has been deleted: Orbax would make it again."""
    if not (folder / "config.json").exists():
        raise UserError(
            f"{folder} has been deleted while train.py was at work in it: give the same command to "
            "begin anew"
        )


def kept_settings(config: Config) -> dict[str, object]:
    """What each checkpoint keeps of the settings: those of its run's identity that are not as by
    default."""
    default = by_name(Config())
    kept = {name: value for name, value in identity(config).items() if value != default[name]}
    return json.loads(json.dumps(kept))


def check_settings(folder: Path, step: int, kept: Mapping[str, object]) -> None:
    """Raises UserError when config.json has changed since a checkpoint was saved that kept these
    settings."""
    path = folder / "config.json"
    if not kept or not path.exists():  # of an early version, or aside from its run
        return
    config = load_run_config(folder)
    kept = {current_name(name): value for name, value in kept.items()}
    there, default = kept_settings(config), by_name(Config())
    for name in sorted((there.keys() | kept.keys()) & identity(config).keys()):
        before, now = (settings.get(name, default.get(name)) for settings in (kept, there))
        if before != now:
            raise UserError(
                f"{path} is not what checkpoint {step} was saved with: {name} was {before!r} and "
                f"is {now!r} there: put it back"
            )


def as_begun(folder: Path, config: Config) -> Config:
    """`config` for going on with a run; where a default has changed since it was begun, the run's
    own value holds."""
    if not has_checkpoints(folder):
        return config
    there, here, default = map(by_name, (load_run_config(folder), config, Config()))
    for name, former in FORMER_DEFAULTS.items():
        if there[name] == former and here[name] == default[name]:
            config = config.with_settings({name: former})
    return config


FLAGS_SHOWN = 5
"""A command with more differences than this was meant for another run."""


def check_same_run(folder: Path, config: Config) -> None:
    """Raises UserError naming the settings of `config` with which the updates that are done would
    have been others."""
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
    """Makes `config` the run's, of which so many updates are done; says what has changed.

    `same_files` are those settings of `FILES` whose files hold what the run was trained with.
    Raises UserError for settings with which the updates that are done would have been others.
    """
    before = load_run_config(folder)
    differences = differing_fields(before, config)
    falling = min(falls_from(before), falls_from(config))
    schedule = SCHEDULE & differences.keys()
    if config.train.steps < done and schedule:
        _refuse(folder, {"train.steps": differences["train.steps"]}, f"{done:,} updates are done")
    if done >= falling:
        reason = f"the learning rate has been falling since update {falling:,}"
        earlier = [step for step in checkpoint_steps(folder) if step < falling]
        if earlier:
            reason += f" (not so if the checkpoints after {earlier[-1]:,} are moved away)"
        _refuse(folder, {name: differences[name] for name in sorted(schedule)}, reason)
    others = sorted((FILES - same_files) & differences.keys())
    _refuse(folder, {name: differences[name] for name in others}, "the files do not hold the same")
    if differences:
        write_text(folder / "config.json", to_json(config))
    return ", ".join(f"{name} {old!r} to {new!r}" for name, (old, new) in differences.items())


def _refuse(folder: Path, differences: Mapping[str, tuple[object, object]], why: str = "") -> None:
    """Raises UserError where there are differences, with the flags that undo them."""
    if not differences:
        return
    shown = "; ".join(
        f"{name} is {there!r} there, {here!r} here" for name, (there, here) in differences.items()
    )
    flags = [setting_flag(name, there) for name, (there, _) in differences.items()]
    own = " ".join(flags) if all(flags) and len(flags) <= FLAGS_SHOWN else "its own settings"
    weights = f", there with its weights by --from {folder}" if why else ""
    raise UserError(
        f"{folder} holds a run with other settings ({shown}){why and f', and {why}'}: "
        f"resume it with {own}, or choose another folder with --run{weights}"
    )
