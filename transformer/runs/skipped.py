"""RUN/skipped/STEP: an update that was skipped, kept so that it can be looked at.

batch.npz      what it read, as token ids
sentences.tsv  the same as text
checkpoints/   the state that it found
"""

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

import jax
import numpy as np

from transformer.config import Config
from transformer.errors import UserError, naming
from transformer.model.batch import Batch
from transformer.runs.checkpoints import Checkpoints, Progress, restore
from transformer.training.step import TrainState


def keep_skipped(
    folder: Path, config: Config, state: TrainState, batch: Batch, sentences: Sequence[str]
) -> None:
    """Keeps the update that changed only the step of `state`; called by all processes."""
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
    kept = sorted(path.parent.name for path in folder.glob("skipped/*/batch.npz"))
    if str(step) not in kept:
        raise UserError(
            f"--replay: there is no skipped update {place}; kept are: {', '.join(kept) or 'none'}"
        )
    state, _ = restore(place, config)
    with naming(place / "batch.npz"), np.load(place / "batch.npz") as ids:
        batch = Batch(**{field.name: ids.get(field.name) for field in fields(Batch)})
    return state.replace(step=state.step - 1), batch
