"""Where a run was trained and with what: starts.jsonl, a line each time that train.py begins."""

import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from transformer.config.rules import check_limits
from transformer.config.settings import Count, Number, Positive
from transformer.errors import UserError
from transformer.machine.files import append_text

LIBRARIES = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "sentencepiece", "numpy")


@dataclass(frozen=True)
class Launch:
    """One of them.

    step, seconds  how many updates had been done, and in which time
    unit, count    "core" or "device", and how many of them work
    name           which processor or device
    looked         what the first look at the data said
    changed        settings that a resumed run has changed
    """

    step: Count
    seconds: Number
    unit: Literal["core", "device"]
    count: Positive
    name: str
    looked: str = ""
    changed: str = ""


def record_launch(folder: Path, start: Launch, program: str) -> None:
    """Adds a line, with the versions of this program and of its libraries."""
    versions = {"program": program} | {name: version(name) for name in LIBRARIES}
    line = json.dumps(asdict(start) | {"versions": versions})
    append_text(folder / "starts.jsonl", f"{line}\n")


def read_launches(folder: Path) -> list[Launch]:
    """Those of a run, but for lines that are none; runs of earlier versions have none."""
    path, starts = folder / "starts.jsonl", []
    for line in path.read_bytes().splitlines() if path.exists() else []:
        with suppress(ValueError, TypeError, KeyError, AttributeError, RecursionError, UserError):
            values = json.loads(line)
            values.pop("versions")
            start = Launch(**values)
            check_limits(start)
            starts.append(start)
    return starts
