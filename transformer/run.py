"""The run folder: everything that scoring and translating need.

    runs/NAME/
        config.json            every setting of the run
        tokenizer/             SentencePiece models: source.model, and target.model if it differs
        checkpoints/STEP/      params, optimizer and progress, by Orbax
        metrics.jsonl          one line a report
        eval/                  translations and scores of test sets

Parameters and optimizer state are separate items, so that translating never reads Adam's moments.
"""

import logging
import os
import shutil
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp
from jax.sharding import NamedSharding, SingleDeviceSharding
from orbax.checkpoint import checkpoint_managers as policies

from transformer.command_line import load_run_config
from transformer.config import Config, UserError, differing_fields, to_json
from transformer.data.tokenizer import Tokenizers, save_tokenizers
from transformer.model.params import Params, init_params
from transformer.training.step import TrainState, init_state

logging.getLogger("absl").setLevel(logging.ERROR)  # Orbax tells of every step it takes


@dataclass(frozen=True)
class Progress:
    """What a checkpoint knows besides the state: where the data stream stands, and the score.

    epoch, batch  the next batch to train on
    seconds       time spent on updates so far, validation and saving excluded
    bleu          on the validation set; None for a checkpoint saved without a validation
    """

    epoch: int
    batch: int
    seconds: float
    bleu: float | None = None


def is_run(folder: Path) -> bool:
    """Whether a run is there. Raises UserError when something else is."""
    if (folder / "config.json").exists():
        return True
    others = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    if folder.is_file() or set(others) - {"tokenizer", "config.json.tmp"}:
        raise UserError(f"{folder} exists and is not a run: choose another folder with --run")
    return False


def create_run(folder: Path, config: Config, tokenizers: Tokenizers) -> None:
    """Makes a run folder. The config comes last: where it stands, the rest does too."""
    try:
        save_tokenizers(tokenizers, folder / "tokenizer")
        write_text(folder / "config.json", to_json(config))
    except OSError as error:
        raise UserError(f"cannot write to {folder}: {error.strerror}; choose --run") from error


def refuse_other_config(folder: Path, config: Config) -> None:
    """Raises UserError naming the settings in which `config` differs from the run's."""
    differences = differing_fields(load_run_config(folder), config)
    # How its output is decoded and where raw files lie may change; what the run is may not.
    fixed = {
        name: values
        for name, values in differences.items()
        if not name.startswith("decode.") and name != "data.manual_dir"
    }
    if fixed:
        shown = "; ".join(
            f"{name} is {old!r} there, {new!r} here" for name, (old, new) in fixed.items()
        )
        raise UserError(
            f"{folder} holds a run with another config ({shown}): "
            "use the same settings to go on with it, or another folder with --run"
        )


def write_text(path: Path, text: str) -> None:
    """Writes a file whole or not at all."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)


class Checkpoints:
    """The checkpoints of one run, saved in the background; the newest and the best are kept."""

    def __init__(self, folder: Path, config: Config):
        self.config = config
        self.folder = folder.absolute() / "checkpoints"
        newest = policies.LatestN(config.train.keep_last)
        best = policies.BestN(
            get_metric_fn=lambda metrics: metrics["bleu"],
            n=config.train.keep_best,
            keep_checkpoints_without_metrics=False,
        )
        self.manager = ocp.CheckpointManager(
            self.folder,
            item_names=("params", "optimizer", "progress"),
            options=ocp.CheckpointManagerOptions(
                preservation_policy=policies.AnyPreservationPolicy([newest, best]),
                enable_async_checkpointing=True,
            ),
        )

    def save(self, state: TrainState, progress: Progress) -> None:
        """Saves in the background; waits first for the save before it."""
        step = int(state.step)
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
        """The newest intact state, or None. Damaged checkpoints are moved aside, and named."""
        shapes = jax.eval_shape(partial(init_state, self.config))
        item = {"params": shapes.params, "optimizer": _optimizer_shapes(shapes)}
        target = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), item
        )
        for step in sorted(self.manager.all_steps(), reverse=True):
            try:
                restored = self.manager.restore(
                    step,
                    args=ocp.args.Composite(
                        params=ocp.args.StandardRestore(target["params"]),
                        optimizer=ocp.args.StandardRestore(target["optimizer"]),
                        progress=ocp.args.JsonRestore(),
                    ),
                )
            except (ValueError, KeyError, OSError) as error:
                self._move_aside(step, error)
                continue
            return _join(restored.params, restored.optimizer), Progress(**restored.progress)
        return None

    def _move_aside(self, step: int, error: Exception) -> None:
        aside = self.folder.parent / "damaged" / str(step)
        print(f"checkpoint {step} is damaged ({_first_line(error)}): moved to {aside}")
        aside.parent.mkdir(exist_ok=True)
        shutil.rmtree(aside, ignore_errors=True)
        shutil.move(self.folder / str(step), aside)
        self.manager.reload()

    def wait(self) -> None:
        """Until the last save is on disk."""
        self.manager.wait_until_finished()

    def close(self) -> None:
        self.manager.close()


def load_params(folder: Path, config: Config, checkpoint: str) -> tuple[Params, str]:
    """The parameters of a run, and a few words that say which.

    `checkpoint`: `best` by validation BLEU, `last`, `average` of the last `train.average_last`,
    or a step. Raises UserError naming the steps that exist.
    """
    path = folder.absolute() / "checkpoints"
    if not path.is_dir():
        raise UserError(f"{folder} has no checkpoint yet: train.py saves one after each validation")
    with ocp.CheckpointManager(path, item_names=("params", "optimizer", "progress")) as manager:
        steps = sorted(manager.all_steps())
        if not steps:
            raise UserError(
                f"{folder} has no checkpoint yet: train.py saves one after each validation"
            )
        chosen = _choose_steps(manager, config, steps, checkpoint)
        loaded = [_restore_params(manager, config, step) for step in chosen]
    label = f"step {chosen[0]}" if len(chosen) == 1 else f"average of steps {chosen}"
    return average(loaded), f"{checkpoint}: {label}"


def average(trees: list[Params]) -> Params:
    """The mean of several sets of parameters (section 6.1)."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves).mean(0), *trees)


def _choose_steps(manager, config: Config, steps: list[int], checkpoint: str) -> list[int]:
    if checkpoint == "last":
        return steps[-1:]
    if checkpoint == "average":
        return steps[-config.train.average_last :]
    if checkpoint == "best":
        scores = {step: (manager.metrics(step) or {}).get("bleu") for step in steps}
        scored = [step for step in steps if scores[step] is not None]
        return [max(scored, key=lambda step: (scores[step], step))] if scored else steps[-1:]
    if checkpoint.isdigit() and int(checkpoint) in steps:
        return [int(checkpoint)]
    raise UserError(
        f"no checkpoint {checkpoint!r}: choose best, last, average or a step of "
        f"{', '.join(map(str, steps))}"
    )


def _restore_params(manager, config: Config, step: int) -> Params:
    shapes = jax.eval_shape(partial(init_params, config.model), jax.random.key(0))
    device = SingleDeviceSharding(jax.local_devices()[0])
    target = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=device), shapes
    )
    try:
        args = ocp.args.Composite(params=ocp.args.StandardRestore(target))
        return manager.restore(step, args=args).params
    except (ValueError, KeyError, OSError) as error:
        raise UserError(
            f"checkpoint {step} is damaged or of another model ({_first_line(error)}): "
            "choose another with --checkpoint"
        ) from error


def _optimizer_item(state: TrainState) -> dict:
    """What Orbax stores beside the parameters; a random key travels as its two words."""
    key = jax.random.key_data(state.key)
    return {"step": state.step, "opt_state": state.opt_state, "key": key}


def _optimizer_shapes(shapes: TrainState) -> dict:
    return jax.eval_shape(_optimizer_item, shapes)


def _join(params: Params, optimizer: dict) -> TrainState:
    key = jax.random.wrap_key_data(optimizer["key"])
    return TrainState(optimizer["step"], params, optimizer["opt_state"], key)


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:120]}" if lines else type(error).__name__
