"""What a run starts from: a new state, the weights of another run, or its last checkpoint."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from jax.sharding import Mesh

from transformer import __version__
from transformer.commands.command_line import TrainCommand
from transformer.config import Config
from transformer.config.rules import doubts
from transformer.config.settings import by_name
from transformer.data.corpus import check_corpora
from transformer.data.prepare import (
    Prepared,
    prepare_tokenizers,
    prepare_training,
    prepare_validation,
)
from transformer.data.vocabularies import same_models, save_tokenizers
from transformer.evaluation.scores import check_metrics
from transformer.evaluation.validation import metrics_of
from transformer.machine import distributed
from transformer.model.params import with_classifier
from transformer.runs.checkpoints import Progress, digests_of, restore
from transformer.runs.folder import (
    check_same_run,
    create_run,
    has_checkpoints,
    load_run_config,
    take_up_run,
)
from transformer.runs.load import Run, load_run
from transformer.training import sharding
from transformer.training.programs import new_state
from transformer.training.step import TrainState

Log = Callable[[str], Any]


@dataclass(frozen=True)
class StartingPoint:
    """What a run starts from.

    restored  the state of its last checkpoint, None in a new run
    other     the run of `--from`, None without it
    changed   the settings that have changed since the run was begun
    """

    progress: Progress
    restored: TrainState | None = None
    other: Run | None = None
    changed: str = ""


def check_settings(config: Config, log: Log) -> None:
    """Warns of settings that would waste the run; all processes must have the same."""
    known = by_name(config) | {"data.manual_dir": "", "this program": __version__}
    distributed.assert_equal("settings", known)
    for doubt in doubts(config):
        log(f"warning: {doubt}")


def prepare(command: TrainCommand, log: Log) -> Prepared:
    """Vocabulary, training and validation set: the run's, or new ones."""
    folder, config, first = command.run, command.settings, distributed.is_first()

    def log_progress(line: str) -> None:
        log(line)
        distributed.report_progress(line.partition(":")[0])

    check_corpora(config.data)
    if len(config.data.sides) == 2:
        check_metrics(config.data, metrics_of(config.train.best_by))
    resuming = has_checkpoints(folder)
    home, new_classes = command.vocabulary
    home = home if first else folder
    if not first and not resuming:  # the first process has saved the vocabulary, which may be new
        config = replace(config, data=replace(config.data, vocabulary=""))
    config, tokenizers = prepare_tokenizers(config, home, new_classes, log_progress)
    if resuming:
        config = config.with_derived_of(load_run_config(folder))
        if first:
            check_same_run(folder, config)
    config, training = prepare_training(config, tokenizers, log_progress, derive=not resuming)
    validation = prepare_validation(config, tokenizers, log_progress)
    return Prepared(config, tokenizers, training, validation)


def find_starting_point(command: TrainCommand, data: Prepared) -> StartingPoint:
    """The last checkpoint, or the run of `--from`. The folder of a new run is created last, after
    the settings and the data have been checked."""
    folder, config = command.run, data.config
    if has_checkpoints(folder):
        (state, progress), changed = restore(folder, config), ""
        if distributed.is_first():
            known = progress.training or progress.plan  # early versions kept only the plan
            same = same_models(config.data, data.tokenizers)
            if known in (data.training.pairs.digest, data.training.plan.digest):
                same |= {"data.train_files"}
            changed = take_up_run(folder, config, int(state.step), same)
        return StartingPoint(progress, state, changed=changed)
    other = None
    if command.from_run:
        earlier = load_run_config(command.from_run)
        model = replace(config.model, classes=earlier.model.classes)
        earlier = replace(earlier, model=model)
        other = load_run(command.from_run, command.from_checkpoint, earlier)
    if distributed.is_first():
        save_tokenizers(data.tokenizers, folder / "tokenizer")
        create_run(folder, config)
    return StartingPoint(Progress(plan=data.training.plan.digest), other=other)


def initial_state(
    command: TrainCommand, data: Prepared, start: StartingPoint, mesh: Mesh, log: Log
) -> TrainState:
    """The state on all devices, the same in all processes."""
    config = data.config
    if start.restored is not None:
        state = sharding.shard(mesh, config, start.restored)
    elif start.other is None:
        state = new_state(mesh, config)
    else:
        params = start.other.params
        if config.data.vocabulary != start.other.config.data.vocabulary:  # its classes are new
            params = with_classifier(params, new_state(mesh, config).params.classifier)
        state = new_state(mesh, config, sharding.shard(mesh, config, params))
        log(f"starts from the weights of {command.from_run}, checkpoint {start.other.label}")
    if distributed.count() > 1:
        known = {"pairs": data.training.pairs.digest, "vocabulary": config.data.vocabulary}
        distributed.assert_equal("data", known | {"batches": data.training.plan.digest})
        distributed.assert_equal("state", digests_of(state, start.progress))
    return state
