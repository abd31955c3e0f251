"""Orbax's folder of checkpoints: how it is opened, what is kept in it, what is damaged in it."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orbax.checkpoint as ocp

from transformer.config import UserError

ITEMS = ("params", "optimizer", "progress")


def open_checkpoints(folder: Path, options: ocp.CheckpointManagerOptions) -> ocp.CheckpointManager:
    """Orbax describes all checkpoints first, and cannot go on where it cannot read one.

    Raises UserError that names such a file.
    """
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is not a folder: move it away")
    for name, check in DESCRIPTIONS.items():
        for path in sorted(folder.glob(f"*/{name}")):
            if path.relative_to(folder).parts[0].isdecimal():  # else train.py is about to save it
                _check_description(path, check)
    try:
        return ocp.CheckpointManager(folder, item_names=ITEMS, options=options)
    except OSError:
        raise
    except Exception as error:  # whatever Orbax meets in a damaged file
        raise UserError(
            f"a checkpoint in {folder} is damaged ({first_line(error)}): move one after the other "
            "away, until the rest can be read"
        ) from error


def open_to_read(run: Path) -> tuple[ocp.CheckpointManager, list[int]]:
    """The checkpoints of a run, and their steps; train.py may be at work there.

    Raises UserError when there are none.
    """
    folder = run.absolute() / "checkpoints"
    steps = []
    if folder.exists():
        options = ocp.CheckpointManagerOptions(best_fn=bleu_of, read_only=True)
        manager = open_checkpoints(folder, options)
        steps = sorted(manager.all_steps())
    if not steps:
        raise UserError(f"{run} has no checkpoint yet: train.py saves one after each validation")
    return manager, steps


def _check_description(path: Path, check: Callable[[Any], object]) -> None:
    try:
        check(json.loads(path.read_text()))
    except FileNotFoundError:  # train.py has just deleted it
        return
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError(
            f"{path} is damaged ({first_line(error)}): delete this file, which only says when "
            "its checkpoint was saved or how well it scored"
        ) from error


def _score(metrics: dict) -> float:
    """Raises KeyError, TypeError or ValueError when there is none."""
    bleu = bleu_of(metrics)
    if type(bleu) is not float or not math.isfinite(bleu):
        raise ValueError("bleu is not a score")
    return bleu


def bleu_of(metrics: dict[str, float]) -> float:
    return metrics["bleu"]


DESCRIPTIONS = {"metrics/metrics": _score, "_CHECKPOINT_METADATA": dict}
"""JSON files that Orbax reads when it lists checkpoints, and what fails on damaged ones."""


@dataclass(frozen=True)
class NewestAndBest:
    """Which checkpoints Orbax keeps: of the validated ones the newest and the best; the newest."""

    newest: int
    best: int

    def should_preserve(self, checkpoints: Sequence, *, context: object) -> list[bool]:
        validated = [point for point in checkpoints if point.metrics]
        by_bleu = sorted(validated, key=lambda point: bleu_of(point.metrics))
        kept = [*validated[-self.newest :], *by_bleu[-self.best :], checkpoints[-1]]
        return [any(point is other for other in kept) for point in checkpoints]


def first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:120]}" if lines else type(error).__name__
