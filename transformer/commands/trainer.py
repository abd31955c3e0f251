"""What train.py does around updates: describe the run, report, validate, save, finish."""

import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from typing import NoReturn

from jax.sharding import Mesh

from transformer import __version__
from transformer.commands.command_line import TrainCommand, is_config
from transformer.commands.start import Log, StartingPoint
from transformer.config import DecodeConfig
from transformer.config.advice import task_of
from transformer.config.settings import DERIVED_FROM_PAIRS, changed_settings
from transformer.data.batching import (
    Position,
    arrangement,
    batches,
    first_uses,
    one_epoch,
    sample,
)
from transformer.data.corpus import read_pairs, text_digest
from transformer.data.prepare import Prepared
from transformer.data.summary import data_summary, sample_of
from transformer.data.vocabularies import texts_of
from transformer.decoding.translator import best_hypotheses, make_translator, truncation
from transformer.errors import UserError
from transformer.evaluation.validation import ValidationScorer
from transformer.machine import devices, distributed
from transformer.machine.malloc import return_memory
from transformer.model.batch import Batch
from transformer.model.params import Params, count_params
from transformer.runs.checkpoint_files import selection_score
from transformer.runs.checkpoints import Checkpoints, Progress
from transformer.runs.folder import Launch, record_launch, still_there
from transformer.runs.metrics import Metrics, open_writers
from transformer.runs.skipped import forget_skipped, keep_skipped
from transformer.training import loop, sharding
from transformer.training.profiling import profiled
from transformer.training.programs import jit_sentence_sums
from transformer.training.reporter import REMEDY, Reporter
from transformer.training.step import StepMetrics, TrainState
from transformer.training.validation import losses_of

EXAMPLES = 3
"""Validation sentences that are printed with their translations."""


class Trainer:
    """The hooks of `loop.train`, for one launch of train.py."""

    reporter: Reporter
    checkpoints: Checkpoints

    def __init__(
        self,
        command: TrainCommand,
        data: Prepared,
        start: StartingPoint,
        state: TrainState,
        mesh: Mesh,
        log: Log,
    ):
        """Prints what is trained, on what, and remarks on it."""
        self.command, self.data, self.log = command, data, log
        self.config, self.mesh = data.config, mesh
        self.start_step, progress = int(state.step), start.progress
        log(self._summary(state))
        if start.changed:
            log(f"changed     {start.changed}")
        self.position, note = next_position(data, progress)
        if note:
            log(note)
        validation, train = data.validation, self.config.train
        self.scorer = ValidationScorer(self.config.data, train.best_by, validation.pairs)
        self.scored_on = scored_on(data, self.scorer)
        if progress.validation not in ("", self.scored_on):
            progress = replace(progress, best=None, waited=0, since=self.start_step)
            log(
                f"validation  scores up to update {self.start_step:,} are not compared with later "
                "ones: the validation set, metric, BLEU tokenizer or beam size has changed"
            )
        self.progress = progress
        if distributed.is_first():
            self._record_launch(start)
        self.clock = loop.Clock(progress.seconds)
        self.early_stopping = loop.EarlyStopping(train.patience, progress.best, progress.waited)
        self.sentence_sums = jit_sentence_sums(self.mesh, self.config.model)
        self.should_stop = lambda: False

    def _summary(self, state: TrainState) -> str:
        data, config = self.data, self.config
        plan, epoch = data.training.plan, data.training.first_epoch
        noun = "pairs" if data.validation.pairs else "texts"
        padding = plan.padding(self.mesh.size * config.train.micro_batches)
        names = ", ".join(data.tokenizers.target.names) if config.model.classes else ""
        return (
            f"run folder  {self.command.run}\n"
            f"devices     {devices.describe()}, {config.model.dtype}\n"
            + f"settings    for {task_of(config.data).model}, chosen by the amount of text "
            "(--print-config prints all)\n"
            * (not is_config(self.command.inputs[0]))
            + f"model       {count_params(state.params):,} parameters\n"
            f"data        {len(data.training.pairs):,} {noun} "
            f"({plan.left_out:,} left out), {epoch.batches_per_epoch:,} updates an epoch, "
            f"{len(plan.buckets)} batch shapes, {padding:.0%} padding\n"
            + (f"classes     {names}\n" if names else "")
            + f"updates     {int(state.step):,} of {config.train.steps:,} done, each on about "
            f"{epoch.target_tokens / epoch.batches_per_epoch:,.0f} tokens"
        )

    def _record_launch(self, start: StartingPoint) -> None:
        """Prints remarks on scores and, in a new run, on data; adds the launch to the log."""
        data = self.data
        if data.validation.pairs:
            for remark in self.scorer.remarks(data.tokenizers.target.reproduce):
                self.log(f"scores      {remark}")
        summary = ""
        if start.restored is None:
            sentences = sample_of(read_pairs(self.config.data, "train"))
            tags = data.tokenizers.source.tag_rows
            summary = data_summary(
                self.config.data, data.training.pairs, data.validation.tokens, tags, sentences
            )
            self.log(summary)
        launch = Launch(
            self.start_step, self.progress.seconds, *devices.counted(), summary, start.changed
        )
        record_launch(self.command.run, launch, __version__)

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Opens metrics, progress bar and checkpoints for training."""
        folder, metrics = self.command.run, None
        if distributed.is_first():
            writers = open_writers(folder, self.start_step, self.command.wandb, asdict(self.config))
            metrics = Metrics(folder, self.start_step, writers)

        def write(values: Mapping[str, float]) -> None:
            with still_there(folder):
                metrics.write(values)

        per_epoch = self.data.training.first_epoch.batches_per_epoch
        self.reporter = Reporter(
            write if metrics else None,
            self.config,
            self.start_step,
            self.clock,
            epoch=lambda step: step / per_epoch,
            unreported=self.progress.unreported,
        )
        self.checkpoints = Checkpoints(folder, self.config, self.progress.since)
        try:
            yield
        except BaseException as error:
            if distributed.count() == 1:  # several processes would wait for each other
                # A save that fails too, as when the run is deleted, does not hide the reason.
                with suppress(UserError if isinstance(error, UserError) else ()):
                    self.checkpoints.close()
            raise
        finally:
            self.reporter.close()
            if metrics:
                metrics.close()
        self.checkpoints.close()

    def stop_on_signals(self) -> None:
        """From now on these signals save and stop; before, there is nothing to save."""
        self.should_stop = sharding.in_any_process(loop.stop_on_signals())

    def samples(self) -> list[Batch]:
        """A batch of each shape, in the order of their first use; none if training is over."""
        if self.start_step >= self.config.train.steps or self.is_over():
            return []
        shapes = first_uses(self.data.training.plan, self.config.train.seed, self.position)
        return [sample(self.config, shape) for shape in shapes]

    def stream(self) -> Iterator[tuple[Batch, Position]]:
        """The next batches."""
        training, seed = self.data.training, self.config.train.seed
        arrange = arrangement(self.config)
        stream = batches(
            training.pairs, training.plan, seed, self.position, arrange, training.sample_epoch
        )
        if self.command.profile and distributed.is_first():
            left = self.config.train.steps - self.start_step
            stream = profiled(stream, self.command.run / "profile", left)
        return distributed.report_each(stream, "update", self.start_step)

    def report(self, step: int, metrics: StepMetrics) -> None:
        """To the progress bar and metrics.jsonl."""
        self.reporter.update(step, metrics)

    def is_over(self) -> bool:
        """Whether `train.patience` has run out."""
        return self.early_stopping.should_stop

    def give_up(self, state: TrainState, batch: Batch) -> NoReturn:
        """Keeps the last skipped update, for --replay; raises UserError."""
        sentences = texts_of(self.data.tokenizers, batch)
        with distributed.first_process_first("the folder of the skipped update"):
            if distributed.is_first():
                forget_skipped(self.command.run, int(state.step))
        keep_skipped(self.command.run, self.config, state, batch, sentences)
        raise UserError(
            f"{loop.MOST_SKIPPED} updates in a row were skipped: examine the last one with "
            f"{same_command()} --replay {int(state.step)}; in a new run, {REMEDY}"
            + ", or raise optimizer.spike_threshold"
            * (self.config.optimizer.spike_threshold > 0)
        )

    def checkpoint(self, state: TrainState, position: Position, validate: bool) -> None:
        """Validates and saves."""
        distributed.report_progress(f"the checkpoint of update {int(state.step):,}")
        scores = self._validate(state) if validate else {}
        if validate:
            self.early_stopping.validated(selection_score(scores, self.config.train.best_by))
        with still_there(self.command.run):
            self.checkpoints.save(
                state,
                Progress(
                    *position,
                    self.data.training.plan.digest,
                    self.clock.seconds,
                    scores,
                    self.reporter.unreported,
                    self.early_stopping.best,
                    self.early_stopping.waited,
                    training=self.data.training.pairs.digest,
                    validation=self.scored_on,
                    since=self.progress.since,
                ),
            )
        return_memory()  # that of compiling and translating

    def _validate(self, state: TrainState) -> dict[str, float]:
        """The scores of the validation set; prints them with some translations."""
        validation, step = self.data.validation, int(state.step)
        stream = one_epoch(self.config, validation.tokens, validation.plan)
        stream = distributed.report_each(stream, "batch of the validation")
        params = sharding.gather(self.mesh, state.result)
        losses = losses_of(self.sentence_sums, params, stream)
        self.reporter.check("validation loss", step, losses.loss[0])
        found, truncated = self._translate(params) if validation.pairs else ([], "")
        scores = losses.scores | self.scorer.scores(found)
        self.reporter.validation(step, scores, losses.loss[1], self.scorer.labels)
        if truncated:
            self.reporter.say(f"  {truncated}")
        for (source, target), output in list(zip(validation.pairs, found))[:EXAMPLES]:
            lines = f"  source     {source}\n  reference  {target}\n  output     {output}\n"
            self.reporter.say(lines)
        return scores

    def _translate(self, params: Params) -> tuple[list[str], str]:
        """Translations of the validation set, and a sentence on those that are truncated."""
        config, sources = self.config, [source for source, _ in self.data.validation.pairs]
        decode = replace(config.decode, beam_size=config.train.validation_beam_size)
        local = sharding.local_copy(params)
        translator = make_translator(replace(config, decode=decode), local, self.data.tokenizers)
        found = best_hypotheses(translator, sources)
        count = sum(one.truncated for one in found)
        sentence = truncation(translator, count, len(found)) if count else ""
        return [one.text for one in found], sentence

    def print_outcome(self, state: TrainState) -> None:
        """Prints how to continue, or how to score."""
        step, steps = int(state.step), self.config.train.steps
        if step < steps and not self.is_over():
            self.log(f"stopped after update {step:,}; continue with: {same_command()}")
            return
        if step < steps:
            self.log(
                f"ended early: no better {self.scorer.chosen_by} in the last "
                f"{self.early_stopping.waited} validations (train.patience)"
            )
        self.log(
            f"done: {step:,} updates in {self.clock.seconds / 60:.1f} minutes; "
            f"score it with: python eval.py {shlex.quote(str(self.command.run))}"
        )
        if self.reporter.warning:
            self.log(self.reporter.warning)


def same_command() -> str:
    """The command that resumes this run."""
    return shlex.join(["python", *sys.argv])


def next_position(data: Prepared, progress: Progress) -> tuple[Position, str]:
    """The position in the stream of batches at which a run continues, and a sentence if that is not
    where it stopped."""
    training = data.training
    position = Position(progress.epoch, progress.batch)
    same = progress.training in ("", training.pairs.digest)
    if progress.plan == training.plan.digest and same:
        return position, ""
    position = Position(progress.epoch + 1)
    return position, (
        "the batches of this run have changed (other data, or another version of this program): "
        f"continuing with the next epoch, number {position.epoch + 1}"
    )


def scored_on(data: Prepared, scorer: ValidationScorer) -> str:
    """What validation scores depend on; scores are compared only if it is the same."""
    config, validation = data.config, data.validation
    text = text_digest(validation.pairs) if validation.pairs else validation.tokens.digest
    beam = config.train.validation_beam_size
    facts = [text, scorer.chosen_by, config.data.bleu_tokenizer, beam]
    return " ".join(map(str, [*facts, *unusual_search(config.decode)]))


UNSCORED = {
    "beam_size", "batch_sentences", "dtype", "shortlist", "frequent", "term_bonus",
    *DERIVED_FROM_PAIRS,
}  # fmt: skip
"""Settings of `decode` that change no score on the validation set, or are the same for a run."""


def unusual_search(decode: DecodeConfig) -> list[str]:
    """The settings that change translations of the validation set and have no default value."""
    return [f"{name}={value}" for name, value in changed_settings(decode, UNSCORED).items()]
