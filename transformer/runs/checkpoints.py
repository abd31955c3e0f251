"""Checkpoints by Orbax: save in the background, restore, fall back, choose, average.

Parameters and optimizer state are separate items, so that translating never reads Adam's moments.
Beside them lie the digests of all arrays: whatever reads a checkpoint holds it against them.
"""

import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from warnings import warn

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp

from transformer.config import Config, TrainConfig
from transformer.errors import UserError
from transformer.model.params import Params, init_params
from transformer.runs.checkpoint_files import (
    DamageError,
    NewestAndBest,
    OnDisk,
    any_score,
    as_tree,
    files_in,
    first_line,
    is_changing,
    open_checkpoints,
    open_to_read,
    read,
    selection_score,
)
from transformer.runs.digests import digests
from transformer.runs.folder import check_settings, kept_settings
from transformer.training.step import TrainState, state_shapes

NAMES = ("best", "last", "average", "average-best")

TRIES = 10
"""How often a checkpoint is chosen anew while train.py deletes those that were chosen."""


@dataclass(frozen=True)
class Progress:
    """What a checkpoint knows besides the state: where the data stream stands, and the scores.

    epoch, batch  the next batch to train on
    plan          digest of the batches that the first two count
    training      digest of the training tokens
    seconds       time spent on updates so far, validation and saving excluded
    scores        on the validation set, by name; none for a checkpoint saved without a validation
    unreported    sums of the updates since the last line of metrics.jsonl (`Reporter.unreported`)
    best, waited  the merit of the best validation so far, and validations since (`EarlyStopping`)
    validation    what the scores are of: the validation set and how it is scored
    since         the update after which all scores are of that
    settings      those of the run (`kept_settings`), put there when it is saved
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
        self.first = jax.process_index() == 0  # the one that writes what is no array
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

        Raises UserError when the disk refuses, or when a parameter is not a number: the
        checkpoints before stay good.
        """
        step = int(state.step)
        held = state.params, state.opt_state, state.average
        if not all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(held)):
            raise UserError(
                f"after update {step} there are parameters that are not numbers, though no update "
                "has made them so, and nothing was saved: see whether the machine's memory is "
                "sound; the same command goes on from the last checkpoint"
            )
        progress = replace(progress, settings=self.settings)
        items, described = _items(state), asdict(progress)
        found = digests(items, described | {"step": step})
        with self._explained():
            saved = self.manager.save(
                step,
                args=ocp.args.Composite(
                    **{name: as_tree(item) for name, item in items.items()},
                    progress=ocp.args.JsonSave(described),
                    digests=ocp.args.JsonSave(found),
                ),
                metrics=progress.scores or None,
            )
        if not saved and step not in self.manager.all_steps():
            raise UserError(
                f"{self.folder} has a checkpoint beyond step {step}, so this one was not saved: "
                "move it away and start again"
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
                f"cannot save to {self.folder} ({first_line(error)}): make room there, or let it "
                "be written to; then give the same command to go on from the last checkpoint"
            ) from error


def save_params(folder: Path, config: Config, params: Params) -> None:
    """A checkpoint of parameters alone, at step 0, of a model that comes from elsewhere: enough to
    translate, and to begin with (--from)."""
    progress, items = asdict(Progress(settings=kept_settings(config))), {"params": params}
    found = digests(items, progress | {"step": 0})
    at_once = ocp.CheckpointManagerOptions(
        enable_async_checkpointing=False,  # copies nothing
        temporary_path_class=OnDisk,
    )
    with closing(open_checkpoints(folder.absolute() / "checkpoints", at_once)) as manager:
        try:
            manager.save(
                0,
                args=ocp.args.Composite(
                    params=as_tree(params),
                    progress=ocp.args.JsonSave(progress),
                    digests=ocp.args.JsonSave(found),
                ),
            )
        except ValueError as error:  # what Orbax makes of a full disk
            raise OSError(None, first_line(error), str(folder)) from error


def restore(folder: Path, config: Config) -> tuple[TrainState, Progress]:
    """The newest intact state of a run, in numpy.

    Damaged ones that are newer are moved aside by the first process, and named. Raises UserError,
    and moves nothing, when none can be read.
    """
    manager, steps = open_to_read(folder)
    errors: list[DamageError] = []
    with closing(manager):
        for step in reversed(steps):
            try:
                state, progress = _read_state(manager, config, step)
            except DamageError as error:
                errors.append(error)
                continue
            check_settings(folder, step, progress.settings)
            for error in errors:
                _move_aside(folder, error)
            return state, progress
    reasons = "; ".join(map(str, errors))
    raise UserError(
        f"no checkpoint of {folder / 'checkpoints'} can be read ({reasons}): move the folder away "
        "to start anew"
    )


def _read_state(manager, config: Config, step: int) -> tuple[TrainState, Progress]:
    items, described = read(manager, step, jax.eval_shape(_items, state_shapes(config)))
    state = _join(state_shapes(config), items["params"], items["optimizer"])
    return state, _progress(step, described)


def _move_aside(folder: Path, error: DamageError) -> None:
    """Orbax saves nothing below the highest step that it sees."""
    if jax.process_index() > 0:
        return
    aside = folder / "damaged" / f"{error.step}-{time.time_ns()}"
    aside.parent.mkdir(exist_ok=True)
    shutil.move(folder / "checkpoints" / str(error.step), aside)
    print(f"{error}: moved to {aside}")


def _progress(step: int, described: dict) -> Progress:
    """Raises DamageError when it is not what was saved."""
    try:
        progress = Progress(**described)
        counts = (progress.epoch, progress.batch, progress.waited, progress.since)
        if not all(type(number) is int and number >= 0 for number in counts):
            raise ValueError("epoch, batch, waited or since is no count")
        numbers = [progress.seconds, *progress.unreported.values(), *progress.scores.values()]
        numbers += [] if progress.best is None else [progress.best]
        if not all(type(number) is float for number in numbers):
            raise ValueError("seconds or a score is not a number")
        if type(progress.settings) is not dict:
            raise ValueError("settings is no object")
    except (TypeError, ValueError, AttributeError) as error:
        raise DamageError(step, first_line(error)) from error
    return progress


def load_params(folder: Path, config: Config, checkpoint: str) -> tuple[Params, str]:
    """The parameters of a run, and a few words that say which.

    `checkpoint`: `best` by `train.best_by` on the validation set, `last`, `average` of the last
    `train.average_last` validated ones, `average-best` of the best `train.keep_best`, or a step. A
    damaged one is left out with a warning, if it
    was not asked for by its step. Raises UserError naming the steps that exist, or when all are
    damaged.
    """
    checkpoints = folder / "checkpoints"
    for _ in range(TRIES):
        before, failure = files_in(checkpoints), None
        try:
            params, label, damaged = _load_params(folder, config, checkpoint)
        except (UserError, OSError) as error:
            failure = error
        if not (failure or damaged) or not is_changing(checkpoints, before):
            break
    if failure:
        raise failure
    for error in damaged:
        warn(f"{folder}: {error}: left out", stacklevel=2)
    return params, label


def _load_params(
    folder: Path, config: Config, checkpoint: str
) -> tuple[Params, str, list[DamageError]]:
    """The parameters, which they are, and the checkpoints that were left out."""
    manager, steps = open_to_read(folder)
    shapes = {"params": jax.eval_shape(partial(init_params, config.model), jax.random.key(0))}
    scores: dict[int, float | None] = {}  # higher is better
    since = 0
    damaged: list[DamageError] = []
    with closing(manager):
        for step in steps:
            try:
                progress = _progress(step, read(manager, step, {})[1])
                check_settings(folder, step, progress.settings)
                scores[step] = selection_score(progress.scores, config.train.best_by)
                since = progress.since
            except DamageError as error:
                damaged.append(error)
        while scores and checkpoint not in (str(error.step) for error in damaged):
            chosen = _choose_steps(folder, scores, since, config.train, checkpoint)
            try:
                params = average(read(manager, step, shapes)[0]["params"] for step in chosen)
            except DamageError as error:
                damaged.append(error)
                del scores[error.step]
                continue
            label = f"step {chosen[0]}" if len(chosen) == 1 else f"average of steps {chosen}"
            return params, f"{checkpoint}: {label}", damaged
    asked = [error for error in damaged if str(error.step) == checkpoint]
    raise UserError(
        f"{folder}: {'; '.join(map(str, asked or damaged))}: choose another checkpoint, and leave "
        "the model settings as that run has them"
    )


def average(trees: Iterable[Params]) -> Params:
    """The mean of several sets of parameters (section 6.1), with one set in memory beside it."""
    trees = iter(trees)
    total, count = jax.tree.map(jnp.asarray, next(trees)), 1
    for tree in trees:
        total, count = jax.tree.map(jnp.add, total, tree), count + 1
    return jax.tree.map(lambda leaf: leaf / count, total)


def _choose_steps(
    folder: Path,
    scores: dict[int, float | None],
    since: int,
    settings: TrainConfig,
    checkpoint: str,
) -> list[int]:
    """`scores`: the merit of each step, None if not validated; those up to `since` are of another
    validation set."""
    steps = sorted(scores)
    validated = [step for step in steps if scores[step] is not None]
    comparable = [step for step in validated if step > since] or validated
    by_merit = sorted(comparable, key=lambda step: (scores[step], step))
    if checkpoint == "last" or (checkpoint in NAMES and not validated):
        return steps[-1:]
    if checkpoint == "average":
        return validated[-settings.average_last :]
    if checkpoint == "average-best":
        return sorted(by_merit[-settings.keep_best :])
    if checkpoint == "best":
        return by_merit[-1:]
    if checkpoint.isdecimal() and int(checkpoint) in steps:
        return [int(checkpoint)]
    raise UserError(
        f"{folder} has no checkpoint {checkpoint!r}: choose {', '.join(NAMES)} or a step of "
        f"{', '.join(map(str, steps))}"
    )


def digests_of(state: TrainState, progress: Progress) -> dict[str, str]:
    """The digests of all that a checkpoint holds, and of the step, its name."""
    return digests(_items(state), asdict(progress) | {"step": int(state.step)})


def _items(state: TrainState) -> dict:
    result = state.result
    return {"params": result, "optimizer": _optimizer_item(state, result is not state.params)}


def _optimizer_item(state: TrainState, is_average: bool) -> dict:
    """What Orbax stores beside the parameters; a random key travels as its two words. With
    `is_average` the model is an average of weights, and those of the next update are here too."""
    key = jax.random.key_data(state.key)
    [opt_state] = filter(jax.tree.leaves, state.opt_state)  # of the parts of the chain one has any
    item = {"step": state.step, "opt_state": opt_state, "key": key}
    if is_average:
        item["params"] = state.params
    if state.norm_average is not None:
        item["usual_norm"] = state.norm_average
    return item


def _join(shapes: TrainState, params: Params, optimizer: dict) -> TrainState:
    key = jax.random.wrap_key_data(jnp.asarray(optimizer["key"]))
    opt_state = optimizer["opt_state"]
    chain = tuple(opt_state if jax.tree.leaves(part) else part for part in shapes.opt_state)
    return TrainState(
        optimizer["step"],
        optimizer.get("params", params),
        chain,
        key,
        None if shapes.average is None else params,
        optimizer.get("usual_norm"),
    )
