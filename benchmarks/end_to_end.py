"""Real training against our own step on full batches: what padding and the input pipeline cost.

    python -m benchmarks.end_to_end configs/multi30k.py
    python -m benchmarks.end_to_end configs/quickstart.py --updates 5 --rounds 2   tries the script

Needs nothing besides the project, and the training data of the config (MULTI30K_DIR may name the
folder of Multi30k).

Real training is what train.py does between two validations: the same corpus, plan, stream of
batches, loop and update; validating and saving are left out. The other contestant is the same loop
with batches that lie ready on the device, of the same shapes in the same order, but with a random
token in every place. Blocks of updates of the two take turns, after every shape has been compiled.

Two ratios are printed. That of target tokens/s is what is left of the bare step after padding and
pipeline; that of target positions/s (tokens and padding) accounts for padding, so it is below 1
only where real training waits for something: the project wants at least 0.95. Seconds in
next(stream) are those that the loop's thread spends on making a batch and handing it to the
device; the device may be at work meanwhile, so their share is the most that the pipeline can cost.

How good the translator is after how many minutes is what benchmarks.learning_curve shows.
"""

import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, NoReturn

import jax
import numpy as np
import tyro

from benchmarks.measure import full_batch, machine, summary, table, timed, versions
from transformer.commands.command_line import parse_script
from transformer.commands.program import run_command
from transformer.config import Config
from transformer.config.files import load_config
from transformer.config.rules import validate
from transformer.config.settings import Positive
from transformer.data.batching import Position, batches
from transformer.data.buckets import BatchPlan, make_plan
from transformer.data.token_store import encode_pairs
from transformer.data.vocabularies import make_tokenizers
from transformer.errors import UserError
from transformer.machine import devices
from transformer.model.batch import Batch
from transformer.training import loop, sharding
from transformer.training.optimizer import learning_rate
from transformer.training.programs import jit_update, new_state
from transformer.training.step import StepMetrics, TrainState

Stream = Iterator[tuple[Batch, Position]]


@dataclass(frozen=True)
class EndToEnd:
    """Time real training and the step on full batches in turn."""

    config_file: tyro.conf.Positional[Path]
    """A config file, such as configs/multi30k.py."""
    updates: Positive = 60
    """Updates in a block."""
    rounds: Positive = 9
    """Blocks of each contestant that are timed; one more of each comes before."""


class Block(NamedTuple):
    """What happened in some updates."""

    seconds: float
    waiting: float
    """Seconds spent in next(stream)."""
    tokens: int
    """Target tokens without padding."""
    batches: list[Batch]

    @property
    def positions(self) -> int:
        """Target positions: tokens and padding."""
        return sum(batch.target_out.size for batch in self.batches)


def main(words: list[str]) -> None:
    command = parse_script(EndToEnd, words, "python -m benchmarks.end_to_end")
    config = load_config(command.config_file)
    validate(config)
    mesh = sharding.make_mesh()
    tokenizers = make_tokenizers(config.data)
    config = config.with_vocabularies(*tokenizers.identity)
    pairs = encode_pairs(config.data, tokenizers, "train")
    plan = make_plan(pairs, config.data)
    full = full_batches(mesh, config, plan)
    print(
        f"{machine()}\n{versions('jax')}, {devices.describe()}, {config.model.dtype}\n"
        f"{command.config_file}: {len(pairs):,} pairs, {len(plan.buckets)} batch shapes, "
        f"{plan.padding(mesh.size):.1%} padding (both sides)"
    )
    update = jit_update(mesh, config)
    state = new_state(mesh, config)
    state, first_seconds = timed(update_with_each, update, state, full.values())
    state, later_seconds = timed(update_with_each, update, state, full.values())
    print(
        f"all shapes compiled in {first_seconds - later_seconds:.1f} s, which no block contains\n"
    )
    stream = (
        (sharding.shard_batch(mesh, batch), position)
        for batch, position in batches(pairs, plan, config.train.seed, Position())
    )
    real, synthetic = [], []
    for _ in range(1 + command.rounds):
        state, block = run_block(config, update, state, stream, command.updates)
        ready = ((full[shape_of(batch)], Position()) for batch in block.batches)
        real.append(block)
        state, block = run_block(config, update, state, ready, command.updates)
        synthetic.append(block)
    report(real[1:], synthetic[1:])


def full_batches(mesh, config: Config, plan: BatchPlan) -> dict[tuple, Batch]:
    """A batch without padding, on the device, for each shape."""
    vocabulary = min(config.model.source_vocab_size, config.model.target_vocab_size)
    made = [
        sharding.shard_batch(
            mesh, full_batch(bucket.rows, bucket.source_length, bucket.target_length, vocabulary)
        )
        for bucket in plan.buckets
    ]
    return {shape_of(batch): batch for batch in made}


def shape_of(batch: Batch) -> tuple:
    return batch.source.shape, batch.target_out.shape


def update_with_each(update, state: TrainState, full: Iterable[Batch]) -> TrainState:
    """An update on each batch, with waiting for its end."""
    for batch in full:
        state, _ = jax.block_until_ready(update(state, batch, np.float32(1e-4)))
    return state


def run_block(
    config: Config, update, state: TrainState, stream: Stream, updates: int
) -> tuple[TrainState, Block]:
    """Some updates, driven as train.py drives them."""
    last = int(state.step) + updates
    settings = replace(config.train, steps=last, validate_every=last)
    waits, taken, sums = [], [], []

    def watched() -> Stream:
        while True:
            (batch, position), seconds = timed(next, stream)
            waits.append(seconds)
            taken.append(batch)
            yield batch, position

    def fetch(_: int, metrics: StepMetrics) -> None:
        sums.append(jax.device_get(metrics.sums))

    def give_up(*_: object) -> NoReturn:
        raise UserError("updates were skipped: a loss or gradient was not finite")

    def train() -> TrainState:
        state_after = loop.train(
            settings,
            state,
            stream=watched(),
            update=lambda state, batch, step: update(state, batch, learning_rate(config, step)),
            report=fetch,
            give_up=give_up,
            checkpoint=lambda *_: None,
            clock=loop.Clock(),
            should_stop=lambda: False,
            is_over=lambda: False,
        )
        return jax.block_until_ready(state_after)

    state_after, seconds = timed(train)
    tokens = sum(int(found.tokens) for found in sums)
    return state_after, Block(seconds, sum(waits), tokens, taken)


def report(real: list[Block], synthetic: list[Block]) -> None:
    """Prints the rates of both contestants, and the ratios."""
    contestants = {"real training": real, "full batches, ready": synthetic}
    print(table([rates(name, blocks) for name, blocks in contestants.items()]))
    pairs = list(zip(real, synthetic))
    by_tokens = [a.tokens / a.seconds / (b.tokens / b.seconds) for a, b in pairs]
    by_positions = [b.seconds / a.seconds for a, b in pairs]  # they have the same positions
    print(
        f"\nreal / full, target tokens/s:    {spread(by_tokens)}\n"
        f"real / full, target positions/s: {spread(by_positions)}\n\n"
        f"{len(real)} blocks of {len(real[0].batches)} updates each, in turn; ratios of neighbours"
    )


def rates(name: str, blocks: list[Block]) -> dict[str, str]:
    """A row of the table: medians over the blocks."""

    def median(value) -> float:
        return statistics.median(map(value, blocks))

    return {
        "contestant": name,
        "target tokens/s": f"{median(lambda b: b.tokens / b.seconds):,.0f}",
        "target positions/s": f"{median(lambda b: b.positions / b.seconds):,.0f}",
        "padding of the target": f"{median(lambda b: 1 - b.tokens / b.positions):.1%}",
        "ms an update": f"{median(lambda b: 1000 * b.seconds / len(b.batches)):.1f}",
        "in next(stream)": f"{median(lambda b: b.waiting / b.seconds):.2%}",
    }


def spread(ratios: list[float]) -> str:
    found = summary(ratios)
    return f"{found.median:.3f} ({found.lower_quartile:.3f} - {found.upper_quartile:.3f})"


if __name__ == "__main__":
    run_command(main)
