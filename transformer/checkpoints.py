"""Checkpoints by Orbax: save in the background, restore, fall back, choose, average.

Parameters and optimizer state are separate items, so that translating never reads Adam's moments.
"""

import logging
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, SingleDeviceSharding

from transformer.checkpoint_folder import (
    NewestAndBest,
    bleu_of,
    first_line,
    open_checkpoints,
    open_to_read,
)
from transformer.config import Config, UserError
from transformer.model.params import Params, init_params
from transformer.training.step import TrainState, init_state

logging.getLogger("absl").setLevel(logging.ERROR)  # Orbax tells of every step it takes


@dataclass(frozen=True)
class Progress:
    """What a checkpoint knows besides the state: where the data stream stands, and the score.

    epoch, batch  the next batch to train on
    plan          digest of the batches that the first two count
    seconds       time spent on updates so far, validation and saving excluded
    bleu          on the validation set; None for a checkpoint saved without a validation
    """

    epoch: int = 0
    batch: int = 0
    plan: str = ""
    seconds: float = 0.0
    bleu: float | None = None


class Checkpoints:
    """The checkpoints of one run, saved in the background; the newest and the best are kept."""

    def __init__(self, folder: Path, config: Config):
        self.config = config
        self.folder = folder.absolute() / "checkpoints"
        self.manager = open_checkpoints(
            self.folder,
            ocp.CheckpointManagerOptions(
                best_fn=bleu_of,
                preservation_policy=NewestAndBest(config.train.keep_last, config.train.keep_best),
                enable_async_checkpointing=True,
                cleanup_tmp_directories=True,
            ),
        )

    def save(self, state: TrainState, progress: Progress) -> None:
        """Saves in the background; waits first for the save before it.

        Raises UserError when the disk refuses, or when a parameter is not a number: the
        checkpoints before stay good.
        """
        step = int(state.step)
        if not all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(state.params)):
            raise UserError(
                f"update {step} left parameters that are not numbers, and was not saved: lower "
                "optimizer.scale, lengthen optimizer.warmup_steps or set optimizer.clip_norm"
            )
        with self._explained():
            saved = self.manager.save(
                step,
                args=ocp.args.Composite(
                    params=ocp.args.StandardSave(state.params),
                    optimizer=ocp.args.StandardSave(_optimizer_item(state)),
                    progress=ocp.args.JsonSave(asdict(progress)),
                ),
                metrics=None if progress.bleu is None else {"bleu": progress.bleu},
            )
        if not saved and step not in self.manager.all_steps():
            raise UserError(
                f"{self.folder} has a checkpoint beyond step {step}, so this one was not saved: "
                "move it away and start again"
            )

    def restore(self, sharding: NamedSharding) -> tuple[TrainState, Progress] | None:
        """The newest intact state; None where there are no checkpoints.

        Damaged ones that are newer are moved aside, and named. Raises UserError, and moves
        nothing, when none can be read.
        """
        errors: dict[int, Exception] = {}
        for step in sorted(self.manager.all_steps(), reverse=True):
            try:
                restored = self.manager.restore(step, args=self._restore_args(sharding))
                progress = _progress(restored.progress)
            except Exception as error:  # whatever Orbax meets in a damaged file
                errors[step] = error
                continue
            for damaged, error in errors.items():
                self._move_aside(damaged, error)
            state = _join(restored.params, restored.optimizer)
            return state, progress
        if errors:
            reasons = "; ".join(f"{step}: {first_line(error)}" for step, error in errors.items())
            raise UserError(
                f"no checkpoint of {self.folder} can be read ({reasons}): "
                "move the folder away to start anew"
            )
        return None

    def _restore_args(self, sharding: NamedSharding) -> ocp.args.Composite:
        shapes = jax.eval_shape(partial(init_state, self.config))
        item = {"params": shapes.params, "optimizer": jax.eval_shape(_optimizer_item, shapes)}
        target = _with_sharding(item, sharding)
        return ocp.args.Composite(
            params=ocp.args.StandardRestore(target["params"]),
            optimizer=ocp.args.StandardRestore(target["optimizer"]),
            progress=ocp.args.JsonRestore(),
        )

    def _move_aside(self, step: int, error: Exception) -> None:
        """Orbax saves nothing below the highest step that it sees."""
        aside = self.folder.parent / "damaged" / f"{step}-{time.time_ns()}"
        if jax.process_index() == 0:
            aside.parent.mkdir(exist_ok=True)
            shutil.move(self.folder / str(step), aside)
            print(f"checkpoint {step} is damaged ({first_line(error)}): moved to {aside}")
        multihost_utils.sync_global_devices("a damaged checkpoint is moved aside")
        self.manager.reload()

    def close(self) -> None:
        """Waits until the last save is on disk. Raises UserError when it failed."""
        with self._explained():
            self.manager.wait_until_finished()
            self.manager.close()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError) as error:
            raise UserError(
                f"cannot save to {self.folder} ({first_line(error)}): make room, then give the "
                "same command to go on from the last checkpoint"
            ) from error


def _progress(read: dict) -> Progress:
    """Raises TypeError or ValueError when it is not what was saved."""
    progress = Progress(**read)
    if not all(type(number) is int and number >= 0 for number in (progress.epoch, progress.batch)):
        raise ValueError("epoch and batch are not numbers of batches")
    if type(progress.seconds) is not float:
        raise ValueError("seconds is not a time")
    return progress


def load_params(folder: Path, config: Config, checkpoint: str) -> tuple[Params, str]:
    """The parameters of a run, and a few words that say which.

    `checkpoint`: `best` by validation BLEU, `last`, `average` of the last `train.average_last`
    validated ones, or a step. Raises UserError naming the steps that exist.
    """
    for _ in range(10):
        try:
            return _load_params(folder, config, checkpoint)
        except FileNotFoundError:  # train.py is at work, and has deleted it since: choose again
            continue
    return _load_params(folder, config, checkpoint)


def _load_params(folder: Path, config: Config, checkpoint: str) -> tuple[Params, str]:
    manager, steps = open_to_read(folder)
    chosen = _choose_steps(manager, config, steps, checkpoint)
    params = average(_restore_params(manager, config, step) for step in chosen)
    manager.close()
    label = f"step {chosen[0]}" if len(chosen) == 1 else f"average of steps {chosen}"
    return params, f"{checkpoint}: {label}"


def average(trees: Iterable[Params]) -> Params:
    """The mean of several sets of parameters (section 6.1), with one set in memory beside it."""
    trees = iter(trees)
    total, count = next(trees), 1
    for tree in trees:
        total, count = jax.tree.map(jnp.add, total, tree), count + 1
    return jax.tree.map(lambda leaf: leaf / count, total)


def _choose_steps(manager, config: Config, steps: list[int], checkpoint: str) -> list[int]:
    scores = {step: manager.metrics(step) for step in steps}
    validated = [step for step in steps if scores[step]]
    if checkpoint == "last" or (checkpoint in ("best", "average") and not validated):
        return steps[-1:]
    if checkpoint == "average":
        return validated[-config.train.average_last :]
    if checkpoint == "best":
        return [max(validated, key=lambda step: (bleu_of(scores[step]), step))]
    if checkpoint.isdecimal() and int(checkpoint) in steps:
        return [int(checkpoint)]
    raise UserError(
        f"no checkpoint {checkpoint!r}: choose best, last, average or a step of "
        f"{', '.join(map(str, steps))}"
    )


def _with_sharding(tree, sharding):
    """The shapes of a tree, to be restored with that sharding."""
    return jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), tree
    )


def _restore_params(manager, config: Config, step: int) -> Params:
    shapes = jax.eval_shape(partial(init_params, config.model), jax.random.key(0))
    target = _with_sharding(shapes, SingleDeviceSharding(jax.local_devices()[0]))
    try:
        args = ocp.args.Composite(params=ocp.args.StandardRestore(target))
        return manager.restore(step, args=args).params
    except Exception as error:  # whatever Orbax meets in a damaged file
        if not (Path(manager.directory) / str(step)).exists():
            raise FileNotFoundError(f"checkpoint {step} is gone") from error
        raise UserError(
            f"checkpoint {step} is damaged or of another model ({first_line(error)}): "
            "choose another checkpoint, and leave the model settings as that run has them"
        ) from error


def _optimizer_item(state: TrainState) -> dict:
    """What Orbax stores beside the parameters; a random key travels as its two words."""
    key = jax.random.key_data(state.key)
    return {"step": state.step, "opt_state": state.opt_state, "key": key}


def _join(params: Params, optimizer: dict) -> TrainState:
    key = jax.random.wrap_key_data(optimizer["key"])
    return TrainState(optimizer["step"], params, optimizer["opt_state"], key)
