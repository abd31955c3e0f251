"""Compare recipes: lists of settings that are trained by train.py and judged on the validation set.

    python -m benchmarks.recipes configs/quickstart.py benchmarks/optimizers.txt --runs runs/recipes

Each line of the file is a recipe: a name, then settings as on the command line of train.py.
{0.5,1,2} stands for values to try. With seed 0 all combinations of these values are trained; the
best, by the score that ends the run, is trained with the other seeds too. `--common` has settings
of all recipes. The test set is never read.

Needs nothing besides the project. A run that is complete is not trained again, and one that was
interrupted is resumed, so the same command continues a search. The table has the final validation
score of the best settings of each recipe, and the first validation that reached the final score of
the first recipe (a mean over seeds): its update and the minutes of training before it. Minutes of
runs that had other work beside them are no measurement.
"""

import itertools
import re
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import tyro

from benchmarks.measure import machine, run_script, table, versions
from transformer.commands.command_line import parse_script
from transformer.commands.program import run_command
from transformer.config.settings import BestBy, Positive
from transformer.errors import UserError, naming
from transformer.runs.checkpoint_files import selection_score
from transformer.runs.metrics import read_metrics

CHOICES = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True)
class Recipes:
    """Train recipes, and compare them on the validation set."""

    config: tyro.conf.Positional[Path]
    """The config file of all recipes."""
    file: tyro.conf.Positional[Path]
    """The recipes, one per line: a name and settings of train.py."""
    runs: Path
    """The folder for the run folders."""
    common: str = ""
    """Settings of all recipes, in one string."""
    metric: BestBy = "bleu"
    """The validation metric that compares the runs."""
    seeds: Positive = 3
    """Runs of the best settings of each recipe, with seeds from 0 on."""

    def rank(self, score: float) -> float:
        """The score, or its negative, so that higher is better."""
        return selection_score({self.metric: score}, self.metric)


@dataclass(frozen=True)
class Run:
    """One run of train.py: its settings, and its validations as (update, minutes of training,
    score)."""

    settings: str
    validations: tuple[tuple[int, float, float], ...]

    @property
    def final(self) -> float:
        return self.validations[-1][2]


def main(words: list[str]) -> None:
    command = parse_script(Recipes, words, "python -m benchmarks.recipes")
    recipes = read_recipes(command.file)
    tried: dict[str, list[Run]] = {}
    for name, settings in recipes:
        tried.setdefault(name, []).append(train(command, name, settings, seed=0))
    seeds = {}
    for name, runs in tried.items():
        best = max(runs, key=lambda run: command.rank(run.final))
        others = range(1, command.seeds)
        seeds[name] = [best, *(train(command, name, best.settings, seed) for seed in others)]
    print(f"{command.config}, {machine()}, {versions('jax')}\n")
    print(table([row for name, runs in tried.items() for row in tried_rows(name, runs)]))
    print()
    print(table(list(best_rows(command, seeds))))


def read_recipes(path: Path) -> list[tuple[str, str]]:
    """Name and settings of all combinations that a file asks for. Raises UserError if it cannot be
    read, or has no recipe."""
    with naming(path):
        lines = [line.partition("#")[0].split() for line in path.read_text("utf-8").splitlines()]
    recipes = [(name, way) for name, *words in filter(None, lines) for way in ways(" ".join(words))]
    if not recipes:
        raise UserError(f"{path}: no recipes; each line is a name and settings of train.py")
    return recipes


def ways(settings: str) -> Iterator[str]:
    """The settings with each choice of values."""
    choices = [found.split(",") for found in CHOICES.findall(settings)]
    pattern = CHOICES.sub("{}", settings)
    return (pattern.format(*values) for values in itertools.product(*choices))


def train(command: Recipes, name: str, settings: str, seed: int) -> Run:
    """Trains in a folder named after recipe, settings and seed. Raises UserError with what train.py
    said if it failed."""
    label = re.sub(r"--\w+\.|[^\w.,-]+", " ", settings)
    home = command.runs / "-".join([name, *label.split(), f"seed{seed}"])
    words = [str(command.config), "--run", str(home), *command.common.split(), *settings.split()]
    run_script("train.py", *words, "--train.seed", str(seed))
    key = f"validation_{command.metric}"
    found = tuple(
        (int(line["step"]), line["seconds"] / 60, line[key])
        for line in read_metrics(home)
        if key in line
    )
    if not found:
        raise UserError(f"{home}: metrics.jsonl has no {key} (--metric)")
    print(f"{home.name}: {command.metric} {found[-1][2]:.4g}", file=sys.stderr, flush=True)
    return Run(settings, found)


def tried_rows(name: str, runs: list[Run]) -> Iterator[dict[str, str]]:
    """What seed 0 reached with each of a recipe's values."""
    for run in runs:
        yield {"recipe": name, "settings": run.settings, "seed 0": f"{run.final:.4g}"}


def best_rows(command: Recipes, seeds: dict[str, list[Run]]) -> Iterator[dict[str, str]]:
    """A row for the best settings of each recipe."""
    target = statistics.mean(run.final for run in next(iter(seeds.values())))
    for name, runs in seeds.items():
        reached = [
            next(((step, minutes) for step, minutes, value in run.validations
                  if command.rank(value) >= command.rank(target)), None)
            for run in runs
        ]  # fmt: skip
        steps, minutes = zip(*reached) if all(reached) else ((), ())
        yield {
            "recipe": name,
            "settings": runs[0].settings,
            command.metric: ", ".join(f"{run.final:.4g}" for run in runs),
            "mean": f"{statistics.mean(run.final for run in runs):.4g}",
            f"updates to {target:.4g}": f"{statistics.mean(steps):,.0f}" if steps else "-",
            "minutes": f"{statistics.mean(minutes):.1f}" if minutes else "-",
            "minutes of all": f"{statistics.mean(run.validations[-1][1] for run in runs):.1f}",
        }


if __name__ == "__main__":
    run_command(main)
