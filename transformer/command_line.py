"""From the words of a command to a checked Config, and from a mistake to one sentence.

Imports neither jax nor flax, so that `--help` answers at once.
"""

import contextlib
import dataclasses
import io
import os
import re
import runpy
import sys
import typing
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import tyro

from transformer.config import Config, DecodeConfig, UserError, from_json

Command = TypeVar("Command")


def run_command(main: Callable[[list[str]], None]) -> None:
    """Run a command's main; a UserError becomes one sentence on stderr and exit code 2."""
    sys.stdout.reconfigure(line_buffering=True)  # a log file shows each line at once
    try:
        main(sys.argv[1:])
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # The reader has gone (`| head`): send what is left nowhere, so that exiting is quiet too.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


@dataclass(frozen=True)
class TrainCommand:
    """Train a translator. The same command on the same run folder resumes it."""

    config_file: tyro.conf.Positional[Path]
    """A Python file that defines `config = Config(...)`, such as configs/quickstart.py."""
    settings: Annotated[Config, tyro.conf.arg(name="")]
    """The settings of the config file, each of which can be changed here."""
    run: Path | None = None
    """The run folder; runs/NAME for configs/NAME.py by default."""


@dataclass(frozen=True)
class EvalCommand:
    """Score a run on a test set."""

    run: tyro.conf.Positional[Path]
    """The run folder that train.py made."""
    checkpoint: str = "best"
    """best (by validation BLEU), last, average (of the last few) or a step."""
    split: Literal["test", "validation"] = "test"
    """Which of the run's data sets to score."""
    test_files: tuple[str, ...] = ()
    """Another test set: source file and reference file, or one .tsv file."""
    decode: DecodeConfig = field(default_factory=DecodeConfig)
    """How to search; the run's own settings by default."""


@dataclass(frozen=True)
class TranslateCommand:
    """Translate standard input, line by line, to standard output."""

    run: tyro.conf.Positional[Path]
    """The run folder that train.py made."""
    checkpoint: str = "best"
    """best (by validation BLEU), last, average (of the last few) or a step."""
    decode: DecodeConfig = field(default_factory=DecodeConfig)
    """How to search; the run's own settings by default."""


def parse_train(words: list[str]) -> tuple[Path, Config]:
    """The run folder and the checked config. The config file's settings are the defaults."""
    path = _first_word(words, "python train.py CONFIG [--settings]")
    config = load_config(path) if path else Config()
    default = TrainCommand(path or tyro.MISSING, config)
    command = _parse(TrainCommand, words, default, prog="train.py")
    validate(command.settings)
    return command.run or Path("runs") / command.config_file.stem, command.settings


def parse_with_run(command: type[Command], words: list[str], prog: str) -> tuple[Command, Config]:
    """An EvalCommand or TranslateCommand, and the run's config with its `decode` settings."""
    path = _first_word(words, f"python {prog} RUN [--settings]")
    config = load_run_config(path) if path else Config()
    default = command(path or tyro.MISSING, decode=config.decode)
    parsed = _parse(command, words, default, prog)
    config = dataclasses.replace(config, decode=parsed.decode)
    validate(config)
    return parsed, config


def _parse(command: type[Command], words: list[str], default: Command, prog: str) -> Command:
    """tyro's reading of the words; what it draws in a box becomes one sentence."""
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            return tyro.cli(command, args=words, default=default, prog=prog)
    except SystemExit as stop:
        if not stop.code:
            raise
        body = complaint.getvalue().split("For full helptext")[0].partition("\n")[2]  # no title
        sentence = " ".join(re.sub(r"[\u2500-\u257f]|-{4,}", " ", body).split())
        raise UserError(f"{sentence} (all settings: python {prog} --help)") from None


def _first_word(words: list[str], usage: str) -> Path | None:
    """The path that the other words' defaults depend on; None when tyro is to explain itself."""
    if not words or words[0] in ("-h", "--help"):
        return None
    if words[0].startswith("-"):
        raise UserError(f"{words[0]} comes too early: {usage}")
    return Path(words[0])


def load_config(path: str | Path) -> Config:
    """The `config` that a Python file defines.

    Raises UserError when the file is missing (listing its neighbours), fails, or defines none.
    """
    path = Path(path)
    if not path.is_file():
        folder = path.parent if path.parent.name and path.parent.is_dir() else Path("configs")
        found = sorted(str(file) for file in folder.glob("*.py"))
        raise UserError(f"no config file {path}; there are: {', '.join(found) or 'none here'}")
    try:
        config = runpy.run_path(str(path)).get("config")
    except Exception as error:
        raise UserError(f"{path} does not run: {type(error).__name__}: {error}") from error
    if not isinstance(config, Config):
        raise UserError(f"{path} must define `config = Config(...)` (from transformer.config)")
    return config


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
        return from_json(path.read_text(encoding="utf-8"))
    except (ValueError, TypeError, AttributeError) as error:
        raise UserError(f"{path} is damaged ({error}): restore it from the config") from error


def validate(config: Config) -> None:
    """Refuse settings that are out of range or do not fit together (UserError, one sentence)."""
    for section in dataclasses.fields(config):
        values = getattr(config, section.name)
        for name, hint in typing.get_type_hints(type(values), include_extras=True).items():
            value = getattr(values, name)
            refusal = _refusal(value, hint)
            if refusal:
                raise UserError(f"{section.name}.{name} ({value!r}) {refusal}")
    for subject, allowed, rule in _rules(config):
        if not allowed:
            raise UserError(f"{subject} {rule}")


def _refusal(value: object, hint: object) -> str | None:
    """Why `value` is not a value of the annotation `hint`, or None."""
    if typing.get_origin(hint) is Literal:
        choices = typing.get_args(hint)
        return None if value in choices else f"must be one of: {', '.join(choices)}"
    kind, *limits = typing.get_args(hint) if typing.get_origin(hint) is Annotated else (hint,)
    kind = typing.get_origin(kind) or kind
    accepted = (int, float) if kind is float else kind
    if not isinstance(value, accepted) or (isinstance(value, bool) and kind is not bool):
        return f"must be of type {kind.__name__}"
    return limits[0].refusal(value) if limits else None


def _rules(config: Config) -> list[tuple[str, bool, str]]:
    """Rules across settings: (setting and value, whether it keeps the rule, the rule)."""
    model, data, optimizer, train = config.model, config.data, config.optimizer, config.train
    own_tokenizers = bool(data.source_tokenizer), bool(data.target_tokenizer)
    return [
        (
            f"model.d_model ({model.d_model})",
            model.d_model % model.num_heads == 0,
            f"must be a multiple of model.num_heads ({model.num_heads})",
        ),
        (
            f"model.d_model ({model.d_model})",
            model.positions == "learned" or model.d_model % 2 == 0,
            "must be even with model.positions sinusoidal: each frequency has a sine and a cosine",
        ),
        (
            f"model.max_positions ({model.max_positions})",
            model.positions == "sinusoidal" or model.max_positions >= data.max_length,
            f"must be at least data.max_length ({data.max_length}) with model.positions learned",
        ),
        (
            "model.tying (all)",
            model.tying != "all" or data.shared_vocabulary,
            "needs data.shared_vocabulary; with two vocabularies set model.tying to target or none",
        ),
        (
            f"data.dataset ({data.dataset!r})",
            bool(data.dataset) != bool(data.train_files),
            "must be a TFDS dataset, or empty beside data.train_files",
        ),
        (
            "data.validation_files",
            not data.train_files or bool(data.validation_files),
            "must be set beside data.train_files: the best checkpoint is chosen on them",
        ),
        *(
            (name, len(files) <= 2, "must be a source and a target file, or one .tsv file")
            for name, files in vars(data).items()
            if name.endswith("_files")
        ),
        (
            "data.source_tokenizer and data.target_tokenizer",
            data.shared_vocabulary or own_tokenizers in [(True, True), (False, False)],
            "must be set together when data.shared_vocabulary is off",
        ),
        (
            f"data.batch_tokens ({data.batch_tokens})",
            data.batch_tokens >= data.max_length,
            f"must be at least data.max_length ({data.max_length}): one pair must fit in a batch",
        ),
        (
            f"optimizer.cooldown_steps ({optimizer.cooldown_steps})",
            optimizer.cooldown_steps <= train.steps,
            f"must not exceed train.steps ({train.steps})",
        ),
        (
            f"train.average_last ({train.average_last})",
            train.average_last <= train.keep_last,
            f"must not exceed train.keep_last ({train.keep_last})",
        ),
    ]
