"""Settings that may change when a run is resumed: those that leave the updates so far the same."""

import math
import shlex

from transformer.config.settings import Config, annotations, by_name, is_derived

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
"""Settings that change no update; nor do those of `decode`."""

SCHEDULE = frozenset({"train.steps", "optimizer.cooldown_steps"})
"""Settings that change the updates from `falls_from` on."""

FILES = frozenset({"data.train_files", "data.source_tokenizer", "data.target_tokenizer"})
"""Settings that change no update if the files that they name have the same contents."""


def identity(config: Config) -> dict[str, object]:
    """The settings that may not change when a run is resumed, by name."""
    return {
        name: value
        for name, value in by_name(config).items()
        if not name.startswith("decode.") and name not in FREE | SCHEDULE | FILES
    }


def falls_from(config: Config) -> float:
    """The first update whose learning rate is lowered by optimizer.cooldown_steps."""
    length = config.optimizer.cooldown_steps
    return config.train.steps - length + 2 if length else math.inf


def setting_flag(name: str, value: object) -> str:
    """The words of a command that give a setting a value; "" for a derived field."""
    if is_derived(annotations()[name]):
        return ""
    flag = f"--{name.replace('_', '-')}"
    if isinstance(value, bool):
        return flag if value else flag.replace(".", ".no-")
    values = value if isinstance(value, tuple) else (value,)
    return f"{flag}=" if value == "" else shlex.join([flag, *map(str, values)])
