"""RUN/skipped/STEP: an update that was skipped, kept so that it can be looked at.

batch.npz      what it read, as token ids
sentences.tsv  the same as text
checkpoints/   the state that it found
"""

import shutil
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from zipfile import BadZipFile

import jax
import numpy as np

from transformer.config import Config
from transformer.errors import UserError, naming, one_line
from transformer.model.batch import Batch
from transformer.runs.checkpoints import Checkpoints, Progress, restore
from transformer.training.step import TrainState


def forget_skipped(folder: Path, step: int) -> None:
    """Removes what is kept of this update from before the run was begun anew, or resumed; called by
    the first process."""
    shutil.rmtree(folder / "skipped" / str(step), ignore_errors=True)


def keep_skipped(
    folder: Path, config: Config, state: TrainState, batch: Batch, sentences: Sequence[str]
) -> None:
    """Keeps the update that changed only the step of `state`, after the first process has called
    `forget_skipped`; called by all processes."""
    place = folder / "skipped" / str(int(state.step))
    checkpoints = Checkpoints(place, config)
    checkpoints.save(state, Progress())
    checkpoints.close()
    if jax.process_index() == 0:
        ids = {name: value for name, value in vars(batch).items() if value is not None}
        np.savez(place / "batch.npz", **ids)
        text = "".join(f"{sentence}\n" for sentence in sentences)
        (place / "sentences.tsv").write_text(text, encoding="utf-8")


def load_skipped(folder: Path, config: Config, step: int) -> tuple[TrainState, Batch]:
    """The state before an update that was skipped, and what it read. Raises UserError naming those
    that are kept."""
    place = folder / "skipped" / str(step)
    kept = sorted(int(path.parent.name) for path in folder.glob("skipped/*/batch.npz"))
    if step not in kept:
        names = ", ".join(map(str, kept)) or "none"
        raise UserError(f"--replay: there is no skipped update {place}; kept are: {names}")
    state, _ = restore(place, config)
    path = place / "batch.npz"
    try:
        with naming(path), np.load(path) as ids:
            batch = Batch(**{field.name: ids.get(field.name) for field in fields(Batch)})
    except (ValueError, EOFError, BadZipFile) as error:
        raise UserError(
            f"{path} is damaged ({one_line(error)}), so this update cannot be computed again"
        ) from error
    return state.replace(step=state.step - 1), batch
