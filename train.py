"""Train a model: `python train.py configs/quickstart.py`. The same command resumes it.

Reads in the order in which things happen. Every setting can be changed on the command line, as in
`--model.d-model 256`; `--help` lists them.
"""

import signal
import sys
from typing import NoReturn

if __name__ == "__main__" and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends the imports without a word

from transformer import __version__
from transformer.commands.command_line import TrainCommand, parse_train
from transformer.commands.program import run_command
from transformer.commands.verify_resume import verify_resume
from transformer.config.files import to_json
from transformer.errors import UserError
from transformer.machine.interrupts import end_cleanly
from transformer.runs.folder import has_checkpoints, load_run_config


def main(words: list[str]) -> None:
    command = parse_train(words)
    if command.print_config:
        print(to_json(command.settings), end="")
        return

    if command.verify_resume:
        verify_resume(sys.argv[0], words, command.run, print)
        return
    if command.plan is not None:
        show_plan(command)
        return

    # Slow imports come after the command line has been understood.
    from contextlib import ExitStack

    from transformer.machine import devices, processes
    from transformer.runs.folder import held

    end_cleanly()
    with ExitStack() as until_the_end:
        if command.distributed:
            timeouts = command.partner_timeout, command.stall_timeout
            until_the_end.enter_context(processes.joined(*timeouts))
        devices.demand(command.device)
        if command.doctor:
            examine_data(command)
            return
        if command.replay:
            replay(command)
            return
        if processes.is_first():
            until_the_end.enter_context(held(command.run))
        train(command)


def examine_data(command: TrainCommand) -> None:
    """Prints what the data are like, as text and as tokens."""
    from functools import partial

    from transformer.data.doctor import diagnosis
    from transformer.data.vocabularies import load_tokenizers, make_tokenizers

    home = command.from_run
    tokenizers = (
        partial(load_tokenizers, home / "tokenizer")
        if home
        else partial(make_tokenizers, tell=print)
    )
    for line in diagnosis(command.settings, tokenizers):
        print(line)


def show_plan(command: TrainCommand) -> None:
    """Prints what training will take: on these devices, or on others that are not there."""
    from transformer.data.batching import sample
    from transformer.data.corpus import check_corpora
    from transformer.data.epochs import make_epochs
    from transformer.data.token_store import cut, encode_pairs
    from transformer.data.vocabularies import load_tokenizers, make_tokenizers
    from transformer.machine import devices
    from transformer.machine.targets import mesh_of
    from transformer.training import sharding
    from transformer.training.forecast import forecast

    meshes = [(name, *mesh_of(name)) for name in command.plan]
    devices.demand("any" if meshes else command.device)
    if not meshes:
        meshes = [(devices.describe(), None, sharding.make_mesh())]

    check_corpora(command.settings.data)
    home = command.run if has_checkpoints(command.run) else command.from_run
    data = command.settings.data
    tokenizers = load_tokenizers(home / "tokenizer", data) if home else make_tokenizers(data, print)
    config = command.settings.with_vocabularies(*tokenizers.identity)
    pairs = cut(config.data, encode_pairs(config.data, tokenizers, "train"))
    plan, _ = make_epochs(config.data, tokenizers, config.train.seed, pairs, print)
    samples = [(sample(config, bucket), count) for bucket, count in plan.counts]
    for name, target, mesh in meshes:
        print(f"{name}, {config.model.dtype}, {mesh.size} devices")
        for line in forecast(config, mesh, target, samples):
            print(line)


def replay(command: TrainCommand) -> None:
    """Prints what was wrong with an update that was skipped, layer by layer."""
    from transformer.runs.skipped import load_skipped
    from transformer.training import sharding
    from transformer.training.replay import norms, replayed

    config = load_run_config(command.run)
    state, batch = load_skipped(command.run, config, command.replay)
    mesh = sharding.make_mesh()
    sums, grads = replayed(mesh, config, sharding.spread(mesh, config, state), batch)
    print(
        f"update {command.replay:,} of {command.run}: loss {float(sums.loss / sums.tokens):.4g} "
        f"nats/{config.model.unit}; length of each weight and of its gradient:"
    )
    for name, weight, gradient, not_finite in norms(state.params, grads):
        bad = f"  {not_finite:,} of them no number" if not_finite else ""
        print(f"  {name:48} {weight:10.3g} {gradient:10.3g}{bad}")


def train(command: TrainCommand) -> None:
    """Trains in a run folder that is ours, together with all processes that have joined."""
    import shlex
    from dataclasses import asdict, replace

    from transformer.config.rules import doubts
    from transformer.config.settings import by_name
    from transformer.data.batching import (
        Position,
        arrangement,
        batches,
        first_uses,
        one_epoch,
        sample,
    )
    from transformer.data.corpus import check_corpora, read_pairs, text_digest
    from transformer.data.derived import with_derived
    from transformer.data.epochs import make_epochs
    from transformer.data.first_look import first_look, sample_of
    from transformer.data.plan import plan_to_score
    from transformer.data.token_store import cut, encode_pairs
    from transformer.data.vocabularies import (
        load_tokenizers,
        make_labels,
        make_tokenizers,
        same_models,
        save_tokenizers,
        texts_of,
    )
    from transformer.decoding.translator import best_hypotheses, make_translator, truncation
    from transformer.evaluation.scores import bleu_metric
    from transformer.evaluation.validation import ValidationScorer
    from transformer.machine import devices, processes
    from transformer.machine.malloc import return_blocks, return_memory
    from transformer.machine.memory import free_memory
    from transformer.model.params import count_params, with_classifier
    from transformer.runs.boards import open_boards
    from transformer.runs.checkpoint_files import merit
    from transformer.runs.checkpoints import Checkpoints, Progress, digests_of, load_params, restore
    from transformer.runs.folder import check_same_run, check_still_there, create_run, take_up_run
    from transformer.runs.metrics import Metrics
    from transformer.runs.skipped import keep_skipped
    from transformer.runs.starts import Start, record_start
    from transformer.training import loop, sharding
    from transformer.training.optimizer import learning_rate
    from transformer.training.patience import Patience
    from transformer.training.profiling import profiled
    from transformer.training.programs import Updates, jit_sentence_sums, new_state
    from transformer.training.reporter import Reporter
    from transformer.training.validation import losses_of

    def again() -> str:
        return shlex.join(["python", *sys.argv])

    folder, config = command.run, command.settings
    first = processes.is_first()
    say = print if first else lambda _: None

    def tell(line: str) -> None:
        say(line)
        processes.reached(line.partition(":")[0])

    mesh = sharding.make_mesh()
    said = by_name(config) | {"data.manual_dir": "", "this program": __version__}
    processes.agree("settings", said)
    for doubt in doubts(config):
        say(f"warning: {doubt}")

    with processes.first_process_first("the run folder"):
        # The vocabulary: the run's, another run's, or a new one.
        check_corpora(config.data)
        translates = len(config.data.sides) == 2
        if translates:
            bleu_metric(config.data.target, config.data.bleu_tokenizer)  # what it lacks is told now
        resuming = has_checkpoints(folder)
        tuning = bool(command.from_run) and not resuming
        home = folder if resuming or not first else command.from_run
        if not first and not resuming:  # the first process has saved what may be new
            config = replace(config, data=replace(config.data, vocabulary=""))
        tokenizers = (
            load_tokenizers(home / "tokenizer", config.data)
            if home
            else make_tokenizers(config.data, tell)
        )
        if tuning and config.data.label_column:
            tokenizers = tokenizers._replace(target=make_labels(config.data))
        config = config.with_vocabularies(*tokenizers.identity)
        if resuming:
            config = config.with_derived_of(load_run_config(folder))
        if resuming and first:
            check_same_run(folder, config)

        # Text becomes tokens, tokens become a plan of batches.
        pairs, held_out = (
            cut(config.data, encode_pairs(config.data, tokenizers, split, tell))
            for split in ("train", "validation")
        )
        if translates and not resuming:
            config = with_derived(config, tokenizers, pairs)
        plan, draw = make_epochs(config.data, tokenizers, config.train.seed, pairs, tell)
        held_out_plan = plan_to_score(config, held_out, "validation")
        validation = list(read_pairs(config.data, "validation")) if translates else []
        scorer = ValidationScorer(config.data, config.train.best_by, [t for _, t in validation])

        # The state before: where this run stopped, or the weights of another.
        changed = ""
        if resuming:
            state, progress = restore(folder, config)
            known = progress.training or progress.plan  # early versions kept the plan alone
            same = {"data.train_files"} if known in (pairs.digest, plan.digest) else set()
            if first:
                same |= same_models(config.data, tokenizers)
                changed = take_up_run(folder, config, int(state.step), same)
        if tuning:
            earlier = load_run_config(command.from_run)
            model = replace(config.model, classes=earlier.model.classes)
            other = replace(earlier, model=model)
            weights, label = load_params(command.from_run, other, command.from_checkpoint)

        # What could be wrong with settings and data has been found by now.
        if first and not resuming:
            save_tokenizers(tokenizers, folder / "tokenizer")
            create_run(folder, config)

    # The state on all devices.
    if resuming:
        state = sharding.spread(mesh, config, state)
    else:
        state, progress = new_state(mesh, config), Progress(plan=plan.digest)
    if tuning:
        if config.data.vocabulary != earlier.data.vocabulary:  # other classes, or the first
            weights = with_classifier(weights, state.params.classifier)
        state = new_state(mesh, config, sharding.spread(mesh, config, weights))
        say(f"begins with the weights of {command.from_run}, checkpoint {label}")
    if processes.count() > 1:
        data = {"pairs": pairs.digest, "vocabulary": config.data.vocabulary}
        processes.agree("data", data | {"batches": plan.digest})
        processes.agree("state", digests_of(state, progress))

    position = Position(progress.epoch, progress.batch)
    if progress.plan != plan.digest or progress.training not in ("", pairs.digest):
        position = Position(progress.epoch + 1)
        say(
            "the batches are not those that this run began with (other data, or another version of "
            f"this program): going on with the next epoch, number {position.epoch + 1}"
        )
    step, rows = int(state.step), mesh.size * config.train.micro_batches
    of_epoch = plan if draw is None else draw(0)[1]
    say(
        f"run folder  {folder}\n"
        f"devices     {devices.describe()}, {config.model.dtype}\n"
        f"model       {count_params(state.params):,} parameters\n"
        f"data        {len(pairs):,} {'pairs' if translates else 'texts'} "
        f"({plan.left_out:,} left out), {of_epoch.batches_per_epoch:,} updates an epoch, "
        f"{len(plan.buckets)} batch shapes, {plan.padding(rows):.0%} padding\n"
        + (f"classes     {', '.join(tokenizers.target.names)}\n" if config.model.classes else "")
        + f"updates     {step:,} of {config.train.steps:,} done, each on about "
        f"{of_epoch.target_tokens / of_epoch.batches_per_epoch:,.0f} tokens"
    )
    text = text_digest(validation) if translates else held_out.digest
    beam = config.train.validation_beam_size
    scored = f"{text} {scorer.chosen_by} {config.data.bleu_tokenizer} {beam}"
    if changed:
        say(f"changed     {changed}")
    if progress.validation not in ("", scored):
        progress = replace(progress, best=None, waited=0, since=step)
        say(
            f"validation  scores up to update {step:,} are of another validation set, or by "
            "another score, BLEU tokenizer or beam: they are compared with no later ones"
        )
    if first:
        for remark in scorer.remarks(tokenizers.target.reproduce) if translates else ():
            say(f"scores      {remark}")
        tags = [token for [token] in tokenizers.source.encode(tokenizers.source.tags)]
        looked = (
            ""
            if resuming
            else first_look(
                config.data, pairs, held_out, tags, sample_of(read_pairs(config.data, "train"))
            )
        )
        if looked:
            say(looked)
        start = Start(step, progress.seconds, *devices.counted(), looked, changed)
        record_start(folder, start, __version__)

    # What the loop calls.
    clock = loop.Clock(progress.seconds)
    metrics = None
    if first:
        boards = open_boards(folder, step, command.wandb, asdict(config))
        metrics = Metrics(folder, step, boards)
    reporter = Reporter(
        metrics and metrics.write,
        config,
        step,
        clock,
        learning_rate=lambda step: float(learning_rate(config, step)),
        epoch=lambda step: step / of_epoch.batches_per_epoch,
        unreported=progress.unreported,
    )
    validation_config = replace(
        config, decode=replace(config.decode, beam_size=config.train.validation_beam_size)
    )

    patience = Patience(config.train.patience, progress.best, progress.waited)
    sentence_sums = jit_sentence_sums(mesh, config.model)

    def validate(state) -> dict[str, float]:
        held_out_batches = one_epoch(config, held_out, held_out_plan)
        held_out_batches = processes.marked(held_out_batches, "batch of the validation")
        params = sharding.whole(mesh, state.result)
        losses = losses_of(sentence_sums, params, held_out_batches)
        reporter.check("validation loss", int(state.step), losses.loss[0])
        scores, outputs = losses.scores, []
        if translates:
            local = sharding.local_copy(params)
            translator = make_translator(validation_config, local, tokenizers)
            found = best_hypotheses(translator, [source for source, _ in validation])
            outputs, truncated = [one.text for one in found], sum(one.truncated for one in found)
            scores |= scorer.scores(outputs)
        reporter.validation(int(state.step), scores, losses.loss[1])
        if translates and truncated:
            reporter.say(f"  {truncation(translator, truncated, len(outputs))}")
        for (source, target), output in list(zip(validation, outputs))[:3]:
            reporter.say(f"  source     {source}\n  reference  {target}\n  output     {output}\n")
        return scores

    def checkpoint(state, position, with_validation) -> None:
        processes.reached(f"the checkpoint of update {int(state.step):,}")
        scores = validate(state) if with_validation else {}
        if with_validation:
            patience.validated(merit(scores, config.train.best_by))
        check_still_there(folder)
        so_far = Progress(
            *position,
            plan.digest,
            clock.seconds,
            scores,
            reporter.unreported,
            patience.best,
            patience.waited,
            training=pairs.digest,
            validation=scored,
            since=progress.since,
        )
        checkpoints.save(state, so_far)
        return_memory()  # what compiling and translating have taken

    def give_up(state, batch) -> NoReturn:
        keep_skipped(folder, config, state, batch, texts_of(tokenizers, batch))
        raise UserError(
            f"{loop.MOST_SKIPPED} updates in a row were skipped; the last of them is kept: look at "
            f"it with {again()} --replay {int(state.step)}; lower optimizer.scale, lengthen "
            "optimizer.warmup_steps or set optimizer.clip_norm in a new run"
        )

    # Training.
    stream = batches(pairs, plan, config.train.seed, position, arrangement(config), draw)
    if command.profile and first:
        stream = profiled(stream, folder / "profile")
    stream = processes.marked(stream, "update", step)
    over = step >= config.train.steps or patience.is_out
    shapes = [] if over else first_uses(plan, config.train.seed, position)
    updates = Updates(mesh, config, [sample(config, shape) for shape in shapes], free_memory)
    if updates.is_tight:
        return_blocks()
    if updates.told:
        say(f"memory      {updates.told}")
    checkpoints = Checkpoints(folder, config, progress.since)
    try:
        state = loop.train(
            config.train,
            state,
            stream=stream,
            update=updates,
            report=reporter.update,
            give_up=give_up,
            checkpoint=checkpoint,
            clock=clock,
            should_stop=sharding.agreed(loop.stop_on_signals()),
            is_over=lambda: patience.is_out,
        )
    except BaseException:
        if processes.count() == 1:  # else the others would be waited for
            checkpoints.close()
        raise
    finally:
        updates.cancel()
        reporter.close()
        if metrics:
            metrics.close()
    checkpoints.close()

    if int(state.step) < config.train.steps and not patience.is_out:
        say(f"stopped after update {int(state.step):,}; continue with: {again()}")
    else:
        if int(state.step) < config.train.steps:
            since = f"{patience.waited} validations ago (train.patience)"
            say(f"ended early: none was better by {scorer.chosen_by} than the one {since}")
        say(
            f"done: {int(state.step):,} updates in {clock.seconds / 60:.1f} minutes; "
            f"score it with: python eval.py {shlex.quote(str(folder))}"
        )
        if reporter.warning:
            say(reporter.warning)
    updates.close()  # before the processes part: they would not wait for each other for long


if __name__ == "__main__":
    run_command(main)
