"""BLEU against minutes of training, from the folder of a run.

    python -m benchmarks.learning_curve runs/multi30k
    python -m benchmarks.learning_curve runs/multi30k --test

Needs nothing besides the project (for --test also the run's test set). Measures nothing anew:
train.py has written it all to RUN/metrics.jsonl, and the table can be made while it still trains.

Minutes are spent on updates, compiling included, validation and saving excluded. Target
tokens/s are those that are not padding, since the validation before. With --test the checkpoints
that are left (the newest `train.keep_last` and the best `train.keep_best`) are scored on the test
set as eval.py would, and so is the average of the last `train.average_last`.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import orbax.checkpoint as ocp
import tyro

from benchmarks.measure import machine, table, versions
from transformer.commands.command_line import parse_script
from transformer.commands.program import run_command
from transformer.config import Config
from transformer.config.settings import BeamSize
from transformer.data.corpus import read_pairs
from transformer.data.vocabularies import load_tokenizers
from transformer.decoding.translator import make_translator, translate
from transformer.evaluation.scores import References, score
from transformer.runs.checkpoint_files import open_to_read
from transformer.runs.checkpoints import Progress, load_params
from transformer.runs.folder import load_run_config
from transformer.runs.metrics import read_metrics


@dataclass(frozen=True)
class LearningCurve:
    """Print BLEU against minutes of training."""

    run: tyro.conf.Positional[Path]
    """The run folder that train.py made."""
    test: bool = False
    """Score the checkpoints that are left on the test set too."""
    beam_size: BeamSize = 5
    """Beam for the test set."""


def main(words: list[str]) -> None:
    command = parse_script(LearningCurve, words, "python -m benchmarks.learning_curve")
    config = load_run_config(command.run)
    print(f"{command.run}, on this machine now: {machine()}, {versions('jax')}\n")
    lines = read_metrics(command.run)
    print(table(validation_rows(lines)))
    print(f"\nvalidation: {search_name(config.train.validation_beam_size)}")
    if command.test:
        print(f"test: {config.data.dataset or 'files'}, {search_name(command.beam_size)}", end=", ")
        print(table(test_rows(command, config, lines)))


def validation_rows(lines: list[dict[str, float]]) -> list[dict[str, str]]:
    """A row for each validation."""
    rows, seconds, tokens, last_report = [], 0.0, 0.0, 0.0
    for line in lines:
        if "tokens_per_second" in line:
            elapsed = line["seconds"] - last_report
            seconds, tokens = seconds + elapsed, tokens + elapsed * line["tokens_per_second"]
            last_report = line["seconds"]
        if "validation_bleu" in line:
            rows.append(
                {
                    "minutes": minutes(line["seconds"]),
                    "epoch": epoch_of(lines, line["step"]),
                    "update": f"{line['step']:,}",
                    "target tokens/s": f"{tokens / seconds:,.0f}" if seconds else "-",
                    "validation BLEU": f"{line['validation_bleu']:.1f}",
                }
            )
            seconds = tokens = 0.0
    return rows


def search_name(beam_size: int) -> str:
    return "greedy search" if beam_size == 1 else f"beam {beam_size}"


def minutes(seconds: float) -> str:
    return f"{seconds / 60:.1f}"


def epoch_of(lines: list[dict[str, float]], step: int) -> str:
    """How often an update had seen the corpus: epochs grow evenly with updates."""
    reports = [line for line in lines if "epoch" in line]
    return f"{reports[-1]['epoch'] / reports[-1]['step'] * step:.1f}" if reports else "-"


def test_rows(
    command: LearningCurve, config: Config, lines: list[dict[str, float]]
) -> list[dict[str, str]]:
    """A row for each checkpoint that is left, and one for their average."""
    config = replace(config, decode=replace(config.decode, beam_size=command.beam_size))
    references = References.of(config.data, list(read_pairs(config.data, "test")))
    tokenizers = load_tokenizers(command.run / "tokenizer", config.data)
    progress = progress_of_checkpoints(command.run)
    # The average is of validated checkpoints; one that was saved on the way out is not among them.
    last = max((step for step, item in progress.items() if item.scores), default=max(progress))
    rows = []
    for checkpoint in [*map(str, progress), "average"]:
        params, label = load_params(command.run, config, checkpoint)
        translations = translate(make_translator(config, params, tokenizers), references.sources)
        bleu = score(translations, references)[0]
        step = last if checkpoint == "average" else int(checkpoint)
        rows.append(
            {
                "minutes": minutes(progress[step].seconds),
                "epoch": epoch_of(lines, step),
                "checkpoint": label.partition(": ")[2],
                "test BLEU": f"{bleu.value:.1f}",
                "95 % interval": "-" if bleu.low is None else f"{bleu.low:.1f} to {bleu.high:.1f}",
            }
        )
    print(f"{len(references.sources):,} sentences, {bleu.signature}\n")
    return rows


def progress_of_checkpoints(run: Path) -> dict[int, Progress]:
    """What each checkpoint that is left knows of its training, by update."""
    manager, steps = open_to_read(run)
    item = ocp.args.Composite(progress=ocp.args.JsonRestore())
    found = {step: Progress(**manager.restore(step, args=item).progress) for step in steps}
    manager.close()
    return found


if __name__ == "__main__":
    run_command(main)
