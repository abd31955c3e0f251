"""Configs as files: a Python file that people write, JSON that a run keeps."""

import dataclasses
import json
import runpy
from pathlib import Path

from transformer.config.settings import (
    FORMER_DEFAULTS,
    VOCABULARY_SIZES,
    Config,
    annotations,
    by_name,
    current_name,
    is_derived,
)
from transformer.errors import UserError


def load_config(path: str | Path) -> Config:
    """The `config` that a Python file defines.

    Raises UserError if the file is missing (listing its neighbours), fails, defines no config, or
    sets a derived field.
    """
    path = Path(path)
    if path.is_dir():
        raise UserError(f"{path} is a folder: name a config file, or text files to train on")
    if not path.is_file():
        folder = path.parent if path.parent.name and path.parent.is_dir() else Path("configs")
        found = sorted(str(file) for file in folder.glob("*.py"))
        raise UserError(
            f"no config file {path}; config files in {folder}: {', '.join(found) or 'none'}"
        )
    try:
        config = runpy.run_path(str(path)).get("config")
    except Exception as error:
        raise UserError(f"{path} fails with {type(error).__name__}: {error}") from error
    if not isinstance(config, Config):
        raise UserError(f"{path} must define `config = Config(...)` (from transformer.config)")
    values, defaults = by_name(config), by_name(Config())
    for name, hint in annotations().items():
        if is_derived(hint) and name not in VOCABULARY_SIZES and values[name] != defaults[name]:
            raise UserError(f"{path} sets {name}, which train.py determines itself: remove it")
    return config


def to_json(config: Config) -> str:
    """A config as the text of RUN/config.json, which `from_json` reads."""
    return json.dumps(dataclasses.asdict(config), indent=2) + "\n"


def from_json(text: str) -> Config:
    """The inverse of `to_json`. Raises UserError naming the field that does not fit."""
    known, values = by_name(Config()), {}
    sections = {name.partition(".")[0] for name in known}
    for section, saved in json.loads(text).items():
        if section not in sections:
            raise UserError(f"unknown section {section} in the saved config")
        if not isinstance(saved, dict):
            raise UserError(f"{section} must hold settings in the saved config")
        former = {n: v for n, v in FORMER_DEFAULTS.items() if n.startswith(f"{section}.")}
        values |= former | {current_name(f"{section}.{name}"): saved[name] for name in saved}
    unknown = values.keys() - known.keys()
    if unknown:
        raise UserError(f"unknown setting {min(unknown)} in the saved config")
    return Config().with_settings(
        {name: tuple(v) if isinstance(v, list) else v for name, v in values.items()}
    )
