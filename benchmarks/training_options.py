"""What options of training cost, beside a plain update: python -m benchmarks.training_options
[--rounds 30]

Shape A (benchmarks/shapes.py), updates in turns in one process: medians, and the median of their
ratios to the plain update of the same round.
"""

import statistics
import time
from dataclasses import dataclass, replace

import jax
import numpy as np

from benchmarks.measure import full_batch
from benchmarks.shapes import LENGTH, SHAPES, VOCABULARY, model_config
from transformer.commands.command_line import parse_script
from transformer.commands.program import run_command
from transformer.config import Config, OptimizerConfig, TrainConfig
from transformer.config.settings import Positive
from transformer.training import sharding


@dataclass(frozen=True)
class Command:
    """Time updates with a moving average, word dropout and R-Drop."""

    rounds: Positive = 30
    """Updates of each, after two that are not timed."""


def main(words: list[str]) -> None:
    command = parse_script(Command, words, "python -m benchmarks.training_options")
    shape = SHAPES["A"]
    model = model_config(shape, 0.1)
    plain = Config(model=model, optimizer=OptimizerConfig(), train=TrainConfig())
    ways = {
        "plain": plain,
        "moving average": replace(plain, train=TrainConfig(ema_decay=0.999)),
        "word dropout": replace(plain, model=replace(model, word_dropout=0.1)),
        "R-Drop": replace(plain, train=TrainConfig(r_drop=5.0)),
    }
    mesh = sharding.make_mesh()
    batch = sharding.shard_batch(mesh, full_batch(shape.sentences, LENGTH, LENGTH, VOCABULARY))
    updates = {name: sharding.jit_update(mesh, config) for name, config in ways.items()}
    states = {name: sharding.new_state(mesh, config) for name, config in ways.items()}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(command.rounds + 2):
        for name, update in updates.items():
            start = time.perf_counter()
            states[name], _ = jax.block_until_ready(update(states[name], batch))
            if turn > 1:
                seconds[name].append(time.perf_counter() - start)
    print("| update | ms | of a plain one |\n| --- | --- | --- |")
    for name, times in seconds.items():
        ratios = np.array(times) / np.array(seconds["plain"])
        print(f"| {name} | {1e3 * statistics.median(times):.0f} | {np.median(ratios):.3f} |")


if __name__ == "__main__":
    run_command(main)
