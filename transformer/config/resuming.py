"""What may change when a run is resumed: settings with which the updates that are done would have
been the same."""

import math
import shlex
import typing

from tyro.conf import Suppress

from transformer.config.settings import Config, by_name

FREE = frozenset(
    {
        "data.manual_dir", "data.validation_files", "data.test_files",
        "data.validation_split", "data.test_split", "data.bleu_tokenizer",
        "model.recompute", "train.shard_state",
        "train.log_every", "train.validate_every", "train.validation_beam_size",
        "train.best_by", "train.patience",
        "train.keep_last", "train.keep_best", "train.average_last",
    }
)  # fmt: skip
"""Settings that change no update, as those of `decode` do."""

SCHEDULE = frozenset({"train.steps", "optimizer.cooldown_steps"})
"""Settings that change the updates from `falls_from` on."""

FILES = frozenset({"data.train_files", "data.source_tokenizer", "data.target_tokenizer"})
"""Settings that change no update where the files that they name hold the same."""


def identity(config: Config) -> dict[str, object]:
    """The settings that make a run what it is, by name: all others may change."""
    may_change = FREE | SCHEDULE | FILES
    return {
        name: value
        for name, value in by_name(config).items()
        if not name.startswith("decode.") and name not in may_change
    }


def falls_from(config: Config) -> float:
    """The first update whose learning rate is lowered by optimizer.cooldown_steps."""
    length = config.optimizer.cooldown_steps
    return config.train.steps - length + 2 if length else math.inf


def setting_flag(name: str, value: object) -> str:
    """The words of a command that give a setting a value; none for what train.py fills in."""
    section, _, field = name.partition(".")
    kind = typing.get_type_hints(Config)[section]
    hint = typing.get_type_hints(kind, include_extras=True)[field]
    if Suppress in getattr(hint, "__metadata__", ()):
        return ""
    flag = f"--{name.replace('_', '-')}"
    if isinstance(value, bool):
        return flag if value else flag.replace(".", ".no-")
    values = value if isinstance(value, tuple) else (value,)
    return f"{flag}=" if value == "" else shlex.join([flag, *map(str, values)])
