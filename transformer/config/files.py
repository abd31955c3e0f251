"""Configs as files: a Python file that people write, JSON that a run keeps."""

import dataclasses
import json
import runpy
import typing
from pathlib import Path

from transformer.config.settings import FORMER_DEFAULTS, Config
from transformer.errors import UserError


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


def to_json(config: Config) -> str:
    """A config as the text of RUN/config.json, which `from_json` reads."""
    return json.dumps(dataclasses.asdict(config), indent=2) + "\n"


def from_json(text: str) -> Config:
    """The inverse of `to_json`. Raises UserError naming the field that does not fit."""
    kinds, sections = typing.get_type_hints(Config), {}
    for section, values in json.loads(text).items():
        if section not in kinds:
            raise UserError(f"unknown section {section} in the saved config")
        if not isinstance(values, dict):
            raise UserError(f"{section} must hold settings in the saved config")
        unknown = set(values) - {f.name for f in dataclasses.fields(kinds[section])}
        if unknown:
            raise UserError(f"unknown setting {section}.{min(unknown)} in the saved config")
        former = {
            name.partition(".")[2]: value
            for name, value in FORMER_DEFAULTS.items()
            if name.startswith(f"{section}.")
        }
        sections[section] = kinds[section](
            **{
                name: tuple(v) if isinstance(v, list) else v
                for name, v in (former | values).items()
            }
        )
    return Config(**sections)
