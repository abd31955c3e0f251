"""How train.py begins: a new model, the weights of another run, or where a run stopped."""

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
from transformer.model.params import Params, with_classifier
from transformer.runs.checkpoints import Progress, digests_of, load_params, restore
from transformer.runs.folder import (
    check_same_run,
    create_run,
    has_checkpoints,
    load_run_config,
    take_up_run,
)
from transformer.training import sharding
from transformer.training.programs import new_state
from transformer.training.step import TrainState

Log = Callable[[str], Any]


@dataclass(frozen=True)
class Start:
    """What training begins with.

    state           that of the last checkpoint, or None in a new run
    weights         those of another run (`--from`), or None
    label           the checkpoint that these are of
    new_classifier  whether these lack a classifier for the classes of this run
    changed         the settings that have changed since the run was begun
    """

    progress: Progress
    state: TrainState | None = None
    weights: Params | None = None
    label: str = ""
    new_classifier: bool = False
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

    def tell(line: str) -> None:
        log(line)
        distributed.report_progress(line.partition(":")[0])

    check_corpora(config.data)
    if len(config.data.sides) == 2:
        check_metrics(config.data, metrics_of(config.train.best_by))
    resuming = has_checkpoints(folder)
    home = folder if resuming or not first else command.from_run
    if not first and not resuming:  # the first process has saved what may be new
        config = replace(config, data=replace(config.data, vocabulary=""))
    new_classes = bool(command.from_run) and not resuming
    config, tokenizers = prepare_tokenizers(config, home, tell, new_classes)
    if resuming:
        config = config.with_derived_of(load_run_config(folder))
    if resuming and first:
        check_same_run(folder, config)
    config, training = prepare_training(config, tokenizers, tell, derive=not resuming)
    return Prepared(config, tokenizers, training, prepare_validation(config, tokenizers, tell))


def find_start(command: TrainCommand, data: Prepared) -> Start:
    """Where the run stopped, or the weights to begin with. A new run's folder is made last, when
    what could be wrong with settings and data has been found."""
    folder, config = command.run, data.config
    if has_checkpoints(folder):
        state, progress = restore(folder, config)
        changed = ""
        if distributed.is_first():
            known = progress.training or progress.plan  # early versions kept the plan alone
            training = data.training
            is_same = known in (training.pairs.digest, training.plan.digest)
            same = {"data.train_files"} if is_same else set()
            same |= same_models(config.data, data.tokenizers)
            changed = take_up_run(folder, config, int(state.step), same)
        return Start(progress, state, changed=changed)
    start = Start(Progress(plan=data.training.plan.digest))
    if command.from_run:
        earlier = load_run_config(command.from_run)
        model = replace(config.model, classes=earlier.model.classes)
        other = replace(earlier, model=model)
        weights, label = load_params(command.from_run, other, command.from_checkpoint)
        is_other = config.data.vocabulary != earlier.data.vocabulary  # other classes, or the first
        start = replace(start, weights=weights, label=label, new_classifier=is_other)
    if distributed.is_first():
        save_tokenizers(data.tokenizers, folder / "tokenizer")
        create_run(folder, config)
    return start


def place(command: TrainCommand, data: Prepared, start: Start, mesh: Mesh, log: Log) -> TrainState:
    """The state on all devices, the same in all processes."""
    config = data.config
    if start.state is not None:
        state = sharding.shard(mesh, config, start.state)
    elif start.weights is None:
        state = new_state(mesh, config)
    else:
        weights = start.weights
        if start.new_classifier:
            weights = with_classifier(weights, new_state(mesh, config).params.classifier)
        state = new_state(mesh, config, sharding.shard(mesh, config, weights))
        log(f"begins with the weights of {command.from_run}, checkpoint {start.label}")
    if distributed.count() > 1:
        known = {"pairs": data.training.pairs.digest, "vocabulary": config.data.vocabulary}
        distributed.assert_equal("data", known | {"batches": data.training.plan.digest})
        distributed.assert_equal("state", digests_of(state, start.progress))
    return state
