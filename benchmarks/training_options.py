"""What options of training cost, beside a plain update: python -m benchmarks.training_options
[--rounds 30]

Shape A (benchmarks/shapes.py), interleaved updates in one process: medians, and the median of their
ratios to the plain update of the same round.
"""

from dataclasses import dataclass, replace
from functools import partial

from benchmarks.measure import against_the_first, full_batch, table
from benchmarks.shapes import LENGTH, SHAPES, VOCABULARY, model_config
from benchmarks.work import our_updates
from transformer.commands.command_line import parse_script
from transformer.commands.program import run_command
from transformer.config import Config, OptimizerConfig, TrainConfig
from transformer.config.settings import Positive


@dataclass(frozen=True)
class Command:
    """Time updates with each optimizer, a moving average, word dropout and R-Drop."""

    rounds: Positive = 30
    """Updates of each, after two that are not timed."""


def main(words: list[str]) -> None:
    command = parse_script(Command, words, "python -m benchmarks.training_options")
    shape = SHAPES["A"]
    model = model_config(shape, 0.1)
    plain = Config(model=model, optimizer=OptimizerConfig(), train=TrainConfig())
    ways = {
        "plain": plain,
        **{
            name: replace(plain, optimizer=OptimizerConfig(name=name))
            for name in ("adamw", "muon", "schedule_free")
        },
        "moving average": replace(plain, train=TrainConfig(ema_decay=0.999)),
        "word dropout": replace(plain, model=replace(model, word_dropout=0.1)),
        "R-Drop": replace(plain, train=TrainConfig(r_drop=5.0)),
    }
    batch = full_batch(shape.sentences, LENGTH, LENGTH, VOCABULARY)
    turns = {name: partial(our_updates(config, batch), 1) for name, config in ways.items()}
    rows = [
        {"update": name, "ms": f"{1e3 * seconds:.0f}", "of a plain one": f"{ratio:.3f}"}
        for name, (seconds, ratio) in against_the_first(turns, command.rounds, warmup=2).items()
    ]
    print(table(rows))


if __name__ == "__main__":
    run_command(main)
