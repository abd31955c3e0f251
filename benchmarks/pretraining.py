"""A sentence classifier on few labels, begun with a masked model's weights and without.

    python -m benchmarks.pretraining runs/mlm_quickstart

A sentence of the phrasebook's German has the class of its first noun: person, food, vehicle and so
on. Both classifiers are trained by train.py on the same few sentences with the same vocabulary,
once with each seed, and scored by eval.py on sentences of the test split. Each has the learning
rate, of a few, with which its first seed does best on the validation split.
"""

import json
import re
import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path

import tyro

from benchmarks.measure import run_script, table, versions
from transformer.commands.command_line import parse_script
from transformer.commands.program import run_command
from transformer.config import DataConfig
from transformer.config.settings import Positive
from transformer.data.corpus import read_pairs
from transformer.data.datasets.phrasebook.grammar import LEXICON
from transformer.data.files import Split
from transformer.errors import UserError
from transformer.runs.folder import load_run_config

CONFIG = "configs/mlm_quickstart.py"
CLASSES = {
    "animal", "clothing", "drink", "food", "furniture", "person", "place", "readable", "thing",
    "vehicle",
}  # fmt: skip
VALIDATION, TEST = 400, 1200
"""Sentences."""

SETTINGS = {
    "--train.steps": "300", "--train.validate-every": "50", "--train.best-by": "accuracy",
    "--optimizer.warmup-steps": "50", "--optimizer.cooldown-steps": "150",
}  # fmt: skip
"""Of all; the best checkpoint is scored, so more updates do no harm."""

SCALES = (0.25, 0.5, 1.0, 2.0)
"""Factors of the learning rate that are tried."""


@dataclass(frozen=True)
class Pretraining:
    """Compare a classifier that begins with a masked model's weights with one that does not."""

    run: tyro.conf.Positional[Path]
    """The run folder of configs/mlm_quickstart.py."""
    labels: Positive = 200
    """Sentences with a class to train on."""
    seeds: Positive = 3
    """Runs of each, with seeds from 0 on."""


def main(words: list[str]) -> None:
    command = parse_script(Pretraining, words, "python -m benchmarks.pretraining")
    data = load_run_config(command.run).data
    if data.sides != ("source",) or data.source != "de":
        raise UserError(f"{command.run} is no run of {CONFIG}")
    begins = {
        "the masked model's weights": ["--from", str(command.run)],
        "random weights": ["--data.source-tokenizer", str(command.run / "tokenizer/source.model")],
    }
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        files = write_tables(data, Path(folder), command.labels)
        for number, (name, begin) in enumerate(begins.items()):

            def trained(scale: float, seed: int, number=number, begin=begin) -> Path:
                run = Path(folder) / f"{number}-{scale}-{seed}"
                words = ["--optimizer.scale", str(scale), "--train.seed", str(seed)]
                return train(run, [*begin, *words, *files])

            on_validation = {scale: accuracy(trained(scale, 0), "validation") for scale in SCALES}
            best = max(on_validation, key=on_validation.get)
            tried = ", ".join(f"{scale}: {value:.1%}" for scale, value in on_validation.items())
            print(f"{name}, validation accuracy by optimizer.scale: {tried}", flush=True)
            found = [accuracy(trained(best, seed), "test") for seed in range(command.seeds)]
            cells = {"begun with": name, "labels": f"{command.labels}", "scale": f"{best}"}
            cells |= {f"seed {seed}": f"{value:.1%}" for seed, value in enumerate(found)}
            rows.append(cells | {"mean": f"{statistics.mean(found):.1%}"})
    print(f"\naccuracy on {TEST:,} test sentences, {versions('jax')}\n")
    print(table(rows))


def write_tables(data: DataConfig, folder: Path, labels: int) -> list[str]:
    """Tables of sentences and classes for the three splits; the settings that name them."""
    words = ["--data.dataset", "", "--data.label-column", "2"]
    for split, count in {"train": labels, "validation": VALIDATION, "test": TEST}.items():
        path = folder / f"{split}.tsv"
        lines = labelled_sentences(data, split, count)
        path.write_text("".join(f"{text}\t{label}\n" for text, label in lines), encoding="utf-8")
        words += [f"--data.{split}-files", str(path)]
    return words


def labelled_sentences(data: DataConfig, split: Split, count: int) -> list[tuple[str, str]]:
    """The first `count` sentences of a split whose first noun is of one of the classes."""
    first_class = {
        form: row.classes.split()[0]
        for row in LEXICON["noun"]
        for form in (row.german, row.german_plural)
    }
    found = []
    for text, _ in read_pairs(data, split):
        classes = [first_class[word] for word in re.findall(r"\w+", text) if word in first_class]
        if classes and classes[0] in CLASSES:
            found.append((text, classes[0]))
            if len(found) == count:
                break
    return found


def train(run: Path, words: list[str]) -> Path:
    """Trains a classifier in this run folder, if that has not been done; the folder."""
    settings = [word for setting in SETTINGS.items() for word in setting]
    run_script("train.py", CONFIG, "--run", str(run), *settings, *words)
    return run


def accuracy(run: Path, split: str) -> float:
    """The accuracy of its best checkpoint on the table of a split."""
    run_script("eval.py", str(run), "--split", split)
    [record] = (run / "eval").glob(f"{split}-*.json")
    losses = json.loads(record.read_text())["losses"]
    return next(score["value"] for score in losses if score["name"] == "accuracy")


if __name__ == "__main__":
    run_command(main)
