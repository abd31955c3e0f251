"""Orbax's folder of checkpoints: how it is opened, verified by digests, and which are kept."""

import asyncio
import hashlib
import json
import logging
import math
import os
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from jax.experimental import multihost_utils

from transformer.config import TrainConfig
from transformer.config.settings import LOWER_IS_BETTER
from transformer.errors import UserError, is_out_of_memory
from transformer.machine.files import publish
from transformer.model.params import by_name

for library in ("absl", "asyncio"):  # what Orbax meets, it also raises
    logging.getLogger(library).setLevel(logging.CRITICAL + 1)

ITEMS = ("params", "optimizer", "progress", "digests")

DATA_FILE = 2**23
"""Bytes of arrays that are gathered in memory before they are written to a file."""

A_MOMENT = 0.25
"""Seconds within which a folder that is being deleted changes."""


class DamageError(Exception):
    """A checkpoint that cannot be read, or does not hold what was saved."""

    def __init__(self, step: int, reason: str):
        super().__init__(f"checkpoint {step} is damaged or of another model ({reason})")
        self.step = step


def open_checkpoints(folder: Path, options: ocp.CheckpointManagerOptions) -> ocp.CheckpointManager:
    """Raises UserError naming a damaged description: Orbax reads all of them, and fails at one that
    it cannot read."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is not a folder: move it away")
    for step in sorted(folder.glob("*")):
        if step.name.isdecimal():  # others are being saved or deleted
            _check_description(step / "metrics" / "metrics")
            _check_description(step / "_CHECKPOINT_METADATA")
    try:
        return ocp.CheckpointManager(folder, item_names=ITEMS, options=options)
    except OSError:
        raise
    except Exception as error:  # whatever Orbax meets in a damaged file
        raise UserError(
            f"a checkpoint in {folder} is damaged ({first_line(error)}): move checkpoints away, "
            "one at a time, until the others can be read"
        ) from error


def open_to_read(run: Path) -> tuple[ocp.CheckpointManager, list[int]]:
    """The checkpoints of a run, and their steps; train.py may be at work there.

    Each process reads for itself and waits for no other. Raises UserError when there are none.
    """
    folder = run.absolute() / "checkpoints"
    steps = []
    if folder.exists():
        process = jax.process_index()
        alone = ocp.options.MultiprocessingOptions(
            primary_host=process,
            active_processes={process},
            barrier_sync_key_prefix=f"process {process}",
        )
        options = ocp.CheckpointManagerOptions(
            best_fn=any_score, read_only=True, multiprocessing_options=alone
        )
        manager = open_checkpoints(folder, options)
        steps = sorted(manager.all_steps())
    if not steps:
        raise UserError(f"{run} has no checkpoint yet: train.py saves one after each validation")
    return manager, steps


class OnDisk(ocp.path.atomicity.AtomicRenameTemporaryPath):
    """A checkpoint gets its name, and Orbax deletes those that it replaces, when it is on disk.

    Orbax neither syncs files nor has a hook between its last write and the renaming, which are one
    method. So that renames to another temporary name here: `_final_path` is private, tried with
    Orbax 0.12.8.
    """

    async def finalize(self) -> None:
        """Called when all arrays are written."""
        final = self._final_path
        self._final_path = final.with_name(f"{self.get().name}-written")
        await super().finalize()
        await asyncio.to_thread(publish, Path(self._final_path), Path(final))
        self._final_path = final


def read(
    manager: ocp.CheckpointManager, step: int, shapes: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Items of a checkpoint as numpy arrays of these shapes, and its progress as it was saved.

    Raises DamageError where the digests that were saved with them are others.
    """
    folder = Path(manager.directory)
    has_digests = (folder / str(step) / "digests").exists()
    if not has_digests and any(earlier <= step for earlier in steps_with_digests(folder)):
        raise DamageError(step, "its digests are missing")
    targets = jax.tree.map(lambda leaf: np.empty(leaf.shape, leaf.dtype), dict(shapes))
    restore: dict[str, Any]
    restore = {name: ocp.args.StandardRestore(target) for name, target in targets.items()}
    described = ["progress", "digests"] if has_digests else ["progress"]
    restore |= {name: ocp.args.JsonRestore() for name in described}
    try:
        restored = manager.restore(step, args=ocp.args.Composite(**restore))
        items = {name: restored[name] for name in shapes}
        jax.tree.map(_check_shape, items, targets)
        progress = dict(restored["progress"])
        found = digests(items, progress | {"step": step})
        saved = restored["digests"] if has_digests else found
        different = next((name for name in found if found[name] != saved.get(name)), None)
    except Exception as error:  # whatever Orbax meets in a damaged file
        if is_out_of_memory(error):
            raise
        raise DamageError(step, first_line(error)) from error
    if different:
        raise DamageError(step, f"{different} has changed since it was saved")
    if not has_digests:
        warnings.warn(
            f"the checkpoints of {folder.parent} are of an early version and have no digests: "
            "damage to their numbers cannot be detected",
            stacklevel=1,  # the same place for all, so that it is printed once
        )
    return items, progress


def steps_with_digests(folder: Path) -> list[int]:
    """Checkpoints of early versions of this program have none."""
    names = (path.parent.name for path in folder.glob("*/digests"))
    return [int(name) for name in names if name.isdecimal()]


def _check_shape(found: np.ndarray, expected: np.ndarray) -> None:
    if (found.shape, found.dtype) != (expected.shape, expected.dtype):
        raise ValueError(f"{found.dtype}{found.shape} instead of {expected.dtype}{expected.shape}")


def digests(items: Mapping[str, Any], described: Mapping[str, Any]) -> dict[str, str]:
    """The SHA-256 of every array of some trees, by item and path, and of a JSON object.

    Dtype and shape count too. Where arrays are split over processes, all must call this.
    """
    of_arrays = {name: _digest(leaf) for name, leaf in by_name(dict(items)).items()}
    text = json.dumps(described, sort_keys=True)
    return of_arrays | {"described": hashlib.sha256(text.encode()).hexdigest()}


def _digest(leaf: np.ndarray | jax.Array) -> str:
    if isinstance(leaf, jax.Array) and not (leaf.is_fully_addressable or leaf.is_fully_replicated):
        leaf = multihost_utils.process_allgather(leaf, tiled=True)
    array = np.asarray(leaf)
    sha256 = hashlib.sha256(f"{array.dtype} {array.shape} ".encode())
    sha256.update(np.ascontiguousarray(array).view(np.uint8))
    return sha256.hexdigest()


def files_in(run: Path) -> set[str]:
    """All files of a run's checkpoints, of which some may disappear meanwhile."""
    walk = os.walk(run / "checkpoints")
    return {os.path.join(path, name) for path, _, names in walk for name in names}


def is_changing(run: Path, before: set[str]) -> bool:
    """Whether the files are others than before: train.py saves and deletes there."""
    time.sleep(A_MOMENT)
    return files_in(run) != before


def _check_description(path: Path) -> None:
    try:
        described = json.loads(path.read_text())
        if not isinstance(described, dict):
            raise ValueError("it is not a JSON object")
        scores = described.values() if path.name == "metrics" else [0.0]
        if not scores or not all(type(one) is float and math.isfinite(one) for one in scores):
            raise ValueError("a score is not a number")
    except (FileNotFoundError, NotADirectoryError):  # not validated, or just deleted
        return
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(
            f"{path} is damaged ({first_line(error)}): delete this file, which only says when "
            "its checkpoint was saved or how well it scored"
        ) from error


def selection_score(scores: Mapping[str, float], best_by: str) -> float | None:
    """The score by which checkpoints are compared, higher being better; None without it.

    With `auto` it is chrF if that was computed instead of BLEU, otherwise BLEU, or the loss if
    there is neither."""
    if not scores:
        return None
    if best_by == "auto":
        best_by = next(name for name in ("chrf", "bleu", "loss") if name in scores)
    score = scores.get(best_by)
    return -score if score is not None and best_by in LOWER_IS_BETTER else score


def any_score(scores: Mapping[str, float]) -> float:
    """Required by Orbax to keep scores at all; `NewestAndBest` does not use it."""
    return next(iter(scores.values()))


@dataclass(frozen=True)
class NewestAndBest:
    """Which checkpoints Orbax keeps: of the validated ones the newest and the best; the newest.

    Scores of the updates up to `since` are of another validation set.
    """

    settings: TrainConfig
    since: int = 0

    def should_preserve(self, checkpoints: Sequence[Any], *, context: object) -> list[bool]:
        """For each checkpoint, oldest first, whether Orbax keeps it."""
        settings = self.settings
        validated = [point for point in checkpoints if point.metrics]
        scored = [p for p in validated if selection_score(p.metrics, settings.best_by) is not None]
        comparable = [point for point in scored if point.step > self.since] or scored
        comparable.sort(key=lambda p: selection_score(p.metrics, settings.best_by) or 0.0)
        newest, best = validated[-settings.keep_last :], comparable[-settings.keep_best :]
        kept = [*newest, *best, checkpoints[-1]]
        return [any(point is other for other in kept) for point in checkpoints]


def first_line(error: Exception) -> str:
    """A library's long message in short: how it begins, and the cause at its end."""
    line = next(iter(str(error).strip().splitlines()), "")
    shown = line if len(line) <= 160 else f"{line[:80]} ... {line[-80:]}"
    return f"{type(error).__name__}: {shown}" if shown else type(error).__name__
