"""Checkpoints by Orbax: save in the background, restore, fall back, choose, average.

Parameters and optimizer state are separate items, so that translating never reads Adam's moments.
Beside them lie the digests of all arrays, and what is read is compared with them.
"""

import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any
from warnings import warn

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp
from jax import Array
from jaxtyping import Bool

from transformer.config import Config, TrainConfig
from transformer.errors import UserError
from transformer.model.params import Params, init_params
from transformer.runs.checkpoint_files import (
    DATA_FILE,
    DamageError,
    NewestAndBest,
    OnDisk,
    any_score,
    digests,
    files_in,
    first_line,
    is_changing,
    open_checkpoints,
    open_to_read,
    read,
    selection_score,
)
from transformer.runs.folder import check_settings, kept_settings
from transformer.training.step import TrainState, state_shapes

NAMES = ("best", "last", "average", "average-best")

TRIES = 10
"""How often a checkpoint is chosen again while train.py deletes those that were chosen."""


@dataclass(frozen=True)
class Progress:
    """What a checkpoint knows besides the state: where the data stream stands, and the scores.

    epoch, batch  the next batch to train on
    plan          digest of the batches that the first two count
    training      digest of the training tokens
    seconds       time spent on updates so far, validation and saving excluded
    scores        on the validation set, by name; none for a checkpoint saved without a validation
    unreported    sums of the updates since the last line of metrics.jsonl (`Reporter.unreported`)
    best, waited  the best selection score so far, and validations since (`EarlyStopping`)
    validation    digest of the validation set and of how it is scored
    since         the update after which all scores are of that validation
    settings      those of the run (`kept_settings`), added when it is saved
    """

    epoch: int = 0
    batch: int = 0
    plan: str = ""
    seconds: float = 0.0
    scores: dict[str, float] = field(default_factory=dict)
    unreported: dict[str, float] = field(default_factory=dict)
    best: float | None = None
    waited: int = 0
    settings: dict[str, object] = field(default_factory=dict)
    training: str = ""
    validation: str = ""
    since: int = 0


class Checkpoints:
    """Saves the checkpoints of one run in the background; the newest and the best are kept.

    Scores of the updates up to `since` are not compared with later ones.
    """

    def __init__(self, folder: Path, config: Config, since: int = 0):
        self.folder = folder.absolute() / "checkpoints"
        self.settings = kept_settings(config)
        self.manager = open_checkpoints(
            self.folder,
            ocp.CheckpointManagerOptions(
                best_fn=any_score,
                preservation_policy=NewestAndBest(config.train, since),
                enable_async_checkpointing=True,
                cleanup_tmp_directories=True,
                temporary_path_class=OnDisk,
            ),
        )

    def save(self, state: TrainState, progress: Progress) -> None:
        """Saves in the background; waits first for the save before it.

        Raises UserError when the disk refuses, or when a parameter is NaN or infinite: the
        checkpoints before stay good.
        """
        step = int(state.step)
        held = state.params, state.opt_state, state.average
        if not _all_finite(held):
            raise UserError(
                f"after update {step} some parameters are NaN or infinite, although no update was "
                "non-finite, and nothing was saved: check the machine's memory; the same command "
                "resumes from the last checkpoint"
            )
        progress = replace(progress, settings=self.settings)
        with self._explained():
            saved = _save(self.manager, step, _items(state), progress)
        if not saved and step not in self.manager.all_steps():
            raise UserError(
                f"{self.folder} has a checkpoint after update {step}, so this one was not saved: "
                "move the later one away and start again"
            )

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
                f"cannot save to {self.folder} ({first_line(error)}): check free space and "
                "permissions; the same command then resumes from the last checkpoint"
            ) from error


def save_params(folder: Path, config: Config, params: Params) -> None:
    """A checkpoint of parameters alone, at step 0, of a model that comes from elsewhere: enough to
    translate, and to begin with (--from)."""
    at_once = ocp.CheckpointManagerOptions(
        enable_async_checkpointing=False,  # copies nothing
        temporary_path_class=OnDisk,
    )
    with closing(open_checkpoints(folder.absolute() / "checkpoints", at_once)) as manager:
        try:
            _save(manager, 0, {"params": params}, Progress(settings=kept_settings(config)))
        except ValueError as error:  # what Orbax makes of a full disk
            raise OSError(None, first_line(error), str(folder)) from error


def _save(manager, step: int, items: dict, progress: Progress) -> bool:
    """Whether Orbax accepts a checkpoint of this step."""
    described = asdict(progress)
    arrays = {  # file by file: by default all are gathered in memory first
        name: ocp.args.PyTreeSave(item, ocdbt_target_data_file_size=DATA_FILE)
        for name, item in items.items()
    }
    args = ocp.args.Composite(
        **arrays,
        progress=ocp.args.JsonSave(described),
        digests=ocp.args.JsonSave(digests(items, described | {"step": step})),
    )
    return manager.save(step, args=args, metrics=progress.scores or None)


def restore(folder: Path, config: Config) -> tuple[TrainState, Progress]:
    """The newest intact state of a run, in numpy.

    The first process moves damaged ones that are newer aside, and prints which. Raises UserError,
    and moves nothing, when none can be read.
    """
    manager, steps = open_to_read(folder)
    if not any(folder.glob("checkpoints/*/optimizer")):
        raise UserError(
            f"{folder} has weights alone, from convert.py: to train them further, start a new run "
            f"with --from {folder} and another --run"
        )
    shapes = state_shapes(config)
    errors: list[DamageError] = []
    with closing(manager):
        for step in reversed(steps):
            try:
                items, progress = _read(manager, step, jax.eval_shape(_items, shapes))
            except DamageError as error:
                errors.append(error)
                continue
            check_settings(folder, step, progress.settings)
            for error in errors:
                _move_aside(folder, error)
            return _join(shapes, **items), progress
    reasons = "; ".join(map(str, errors))
    raise UserError(
        f"no checkpoint of {folder / 'checkpoints'} can be read ({reasons}): move the folder away "
        "to train from the beginning"
    )


def _read(manager, step: int, shapes: Mapping) -> tuple[dict, Progress]:
    """Items of these shapes, and the progress. Raises DamageError."""
    items, described = read(manager, step, shapes)
    try:
        return items, Progress(**described)
    except TypeError as error:
        raise DamageError(step, first_line(error)) from error


def _move_aside(folder: Path, error: DamageError) -> None:
    """Orbax would save nothing below the highest step that it sees."""
    if jax.process_index() > 0:
        return
    aside = folder / "damaged" / f"{error.step}-{time.time_ns()}"
    aside.parent.mkdir(exist_ok=True)
    shutil.move(folder / "checkpoints" / str(error.step), aside)
    print(f"{error}: moved to {aside}")


def load_params(folder: Path, config: Config, checkpoint: str) -> tuple[Params, str]:
    """The parameters of a run, and a label that names their checkpoint.

    `checkpoint`: `best` by `train.best_by` on the validation set, `last`, `average` of the last
    `train.average_last` validated ones, `average-best` of the best `train.keep_best`, or a step.
    Damaged ones are skipped with a warning, unless requested by their step. Raises UserError
    naming the steps that exist, or when all are damaged.
    """
    for _ in range(TRIES):
        before, failure, damaged = files_in(folder), None, []
        try:
            params, label = _load_params(folder, config, checkpoint, damaged)
        except (UserError, OSError) as error:
            failure = error
        if not (failure or damaged) or not is_changing(folder, before):
            break
    if failure:
        raise failure
    for error in damaged:
        warn(f"{folder}: {error}: it is not used", stacklevel=2)
    return params, label


def _load_params(
    folder: Path, config: Config, checkpoint: str, damaged: list[DamageError]
) -> tuple[Params, str]:
    """The same at one moment; checkpoints that cannot be read are added to `damaged`."""
    manager, steps = open_to_read(folder)
    shapes = {"params": jax.eval_shape(lambda: init_params(config.model, jax.random.key(0)))}
    scores: dict[int, Mapping[str, float]] = {}
    since = 0
    with closing(manager):
        for step in steps:
            try:
                _, progress = _read(manager, step, {})
                check_settings(folder, step, progress.settings)
                scores[step] = progress.scores
                since = progress.since
            except DamageError as error:
                damaged.append(error)
        while scores and checkpoint not in (str(error.step) for error in damaged):
            chosen = _choose_steps(folder, scores, since, config.train, checkpoint)
            try:
                params = average(_read(manager, step, shapes)[0]["params"] for step in chosen)
            except DamageError as error:
                damaged.append(error)
                del scores[error.step]
                continue
            label = f"step {chosen[0]}" if len(chosen) == 1 else f"average of steps {chosen}"
            return params, f"{checkpoint}: {label}"
    requested = [error for error in damaged if str(error.step) == checkpoint]
    raise UserError(
        f"{folder}: {'; '.join(map(str, requested or damaged))}: choose another checkpoint, and "
        "leave the model settings as that run has them"
    )


def average(trees: Iterable[Params]) -> Params:
    """The mean of several sets of parameters (section 6.1), with one set in memory beside it."""
    trees = iter(trees)
    total, count = jax.tree.map(jnp.asarray, next(trees)), 1
    for tree in trees:
        total, count = jax.tree.map(jnp.add, total, tree), count + 1
    return jax.tree.map(lambda leaf: leaf / count, total) if count > 1 else total


def _choose_steps(
    folder: Path,
    scores: Mapping[int, Mapping[str, float]],
    since: int,
    settings: TrainConfig,
    checkpoint: str,
) -> list[int]:
    """`scores`: those of each step, empty if not validated; those up to `since` are of another
    validation set."""
    steps = sorted(scores)
    validated = [step for step in steps if scores[step]]
    found = {step: selection_score(scores[step], settings.best_by) for step in validated}
    selection = {step: score for step, score in found.items() if score is not None}
    comparable = [step for step in selection if step > since] or [*selection]
    by_score = sorted(comparable, key=lambda step: (selection[step], step))  # higher is better
    chosen = {
        "last": steps[-1:],
        "average": validated[-settings.average_last :],
        "average-best": sorted(by_score[-settings.keep_best :]),
        "best": by_score[-1:],
    }
    if checkpoint in NAMES:
        if validated and not chosen[checkpoint]:
            warn(
                f"{folder}: no checkpoint has a score by {settings.best_by} (train.best_by), so "
                "the last one is used",
                stacklevel=2,
            )
        return chosen[checkpoint] or steps[-1:]
    if checkpoint.isdecimal() and int(checkpoint) in steps:
        return [int(checkpoint)]
    raise UserError(
        f"{folder} has no checkpoint {checkpoint!r}: choose {', '.join(NAMES)} or a step of "
        f"{', '.join(map(str, steps))}"
    )


def digests_of(state: TrainState, progress: Progress) -> dict[str, str]:
    """The digests of all that a checkpoint holds, and of the step, its name."""
    return digests(_items(state), asdict(progress) | {"step": int(state.step)})


@jax.jit
def _all_finite(arrays) -> Bool[Array, ""]:
    """Compiled as one program: array by array there would be two for each shape."""
    return jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(arrays)]).all()


def _items(state: TrainState) -> dict:
    """What Orbax stores. If the model is an average of weights, those of the next update belong to
    the optimizer; a random key is stored as its two words."""
    parts: Any = state.opt_state
    [opt_state] = filter(jax.tree.leaves, parts)  # one part of the chain has arrays
    key = jax.random.key_data(state.key)
    optimizer = {"step": state.step, "opt_state": opt_state, "key": key}
    if state.result is not state.params:
        optimizer["params"] = state.params
    if state.norm_average is not None:
        optimizer["usual_norm"] = state.norm_average
    return {"params": state.result, "optimizer": optimizer}


def _join(shapes: TrainState, params: Params, optimizer: dict) -> TrainState:
    key = jax.random.wrap_key_data(jnp.asarray(optimizer["key"]))
    opt_state = optimizer["opt_state"]
    parts: Any = shapes.opt_state
    chain = tuple(opt_state if jax.tree.leaves(part) else part for part in parts)
    return TrainState(
        optimizer["step"],
        optimizer.get("params", params),
        chain,
        key,
        None if shapes.average is None else params,
        optimizer.get("usual_norm"),
    )
