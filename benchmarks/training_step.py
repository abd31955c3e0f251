"""One training step (forward, backward, Adam) of ours against torch and Hugging Face, on the CPU.

    python -m benchmarks.training_step
    python -m benchmarks.training_step --shapes B --rounds 30 --dropout 0 --contestants torch-eager
    python -m benchmarks.training_step --shapes tiny --rounds 2      tries the script

Needs the peers: pip install -e '.[bench]' (and torch-compile a C++ compiler)

Shape A is 4+4 layers, d_model 256, d_ff 1024, 4 heads, 32 sentences; shape B 6+6, 512, 2048,
8 heads, 16 sentences; both with 32 source and 32 target tokens a sentence, nothing padded, and a
vocabulary of 8,000 in one embedding matrix for source, target and output. All compute in float32,
with label smoothing 0.1, biases in attention and dropout in the same places: sums of embeddings
and positions, sublayer outputs, attention weights, inside the feed-forward layers. The peers:

    torch-eager     torch.nn.TransformerEncoder and TransformerDecoder, fused Adam
    torch-compile   the same, forward pass and loss compiled for the one shape
    marian          MarianMTModel of Hugging Face, fused Adam; its attention is "sdpa", as that of
                    torch.nn's layers ("eager" took as long on shape A)

First all make three updates from the same weights without dropout. The losses must agree: then all
do the same work. Three tables follow.

Time: each in a process of its own, a step each in turn. "compile s" is what the first step took
longer than the median: compiling, and with eager contestants what else happens once. All processes
keep freed memory, as train.py does (transformer/machine/malloc.py), which makes torch quicker too.

Memory: resident memory of those processes (Linux), in MB of 10^6 bytes, at most during a step, and
of it what came after importing jax, of which the peers need nothing (torch itself comes after).
Compiling is over by then, but what it leaves behind counts. XLA's plan is what the compiler
says of ours: arguments, results and temporaries.

Ceiling: how ours compares with what the machine does with large matrix products and large copies.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeAlias

import jax
import numpy as np

from benchmarks.measure import (
    Ceilings,
    Outcome,
    ceilings,
    contest,
    full_batch,
    machine,
    memory_cells,
    milliseconds,
    parse_lists,
    require,
    table,
    versions,
)
from benchmarks.shapes import LENGTH, SHAPES, VOCABULARY, Shape, ShapeName, model_config
from benchmarks.work import step_operations
from transformer.commands.program import run_command
from transformer.config import Config, ModelConfig, OptimizerConfig
from transformer.config.settings import Fraction, Positive
from transformer.model.batch import Batch
from transformer.model.params import Params, count_params, init_params
from transformer.training import sharding
from transformer.training.optimizer import learning_rate
from transformer.training.programs import jit_update, new_state, traced_update
from transformer.training.step import init_state

Peer = Literal["torch-eager", "torch-compile", "marian"]
Row: TypeAlias = dict[str, str]
Step: TypeAlias = Callable[[], float]
"""Makes an update and returns its loss in nats a target token, when all is done."""


@dataclass(frozen=True)
class TrainingStep:
    """Compare a training step of ours with the same of others."""

    shapes: tuple[ShapeName, ...] = ("A", "B")
    """Model shapes."""
    rounds: Positive = 20
    """Steps of each contestant that are timed."""
    dropout: tuple[Fraction, ...] = (0.1, 0.0)
    """Dropout rates; 0: none."""
    contestants: tuple[Peer, ...] = ("torch-eager", "torch-compile", "marian")
    """With whom ours is compared."""


def main(words: list[str]) -> None:
    command = parse_lists(TrainingStep, words, "python -m benchmarks.training_step")
    packages = ["torch"] * bool(command.contestants)
    packages += ["transformers"] * ("marian" in command.contestants)
    require(*packages)
    print(f"{machine()}\n{versions('jax', *packages)}")
    most = ceilings()
    print(most)
    names = ["ours", *command.contestants]
    rows, shares = [], []
    for name in command.shapes:
        shape, batches = SHAPES[name], synthetic_batches(SHAPES[name])
        print(f"\nshape {name}: {shape}, {shape.sentences} x {LENGTH}+{LENGTH} tokens")
        check_same_work(names, make_config(shape, dropout=0), batches)
        for rate in command.dropout:
            config = make_config(shape, rate)
            label = {"shape": name, "dropout": f"{rate:g}"}
            builders = {contestant: (build, contestant, config, batches) for contestant in names}
            outcomes = contest(builders, command.rounds)
            planned = planned_bytes(config, batches[0])
            rows += [label | row for row in result_rows(outcomes, shape, planned)]
            seconds = outcomes["ours"].timing.median
            shares.append(label | share(config.model, shape.sentences, seconds, most))
    print(f"\n{command.rounds} rounds, contestants in turn\n\n{table(rows)}")
    print(f"\nours and the ceiling\n\n{table(shares)}")


def make_config(shape: Shape, dropout: float) -> Config:
    """With a learning rate at which the losses move within a few updates."""
    model = model_config(shape, dropout, attention_bias=True)
    return Config(model=model, optimizer=OptimizerConfig(warmup_steps=100))


def synthetic_batches(shape: Shape, count: int = 4) -> list[Batch]:
    """Different full batches of the shape."""
    return [full_batch(shape.sentences, LENGTH, LENGTH, VOCABULARY, seed) for seed in range(count)]


def build(name: str, config: Config, batches: list[Batch], params: Params | None = None) -> Step:
    """The step of a contestant: ours from `config.train.seed`, a peer's from `params` or at random.

    A peer's packages are imported here, so that they are not in the memory of the others.
    """
    if name == "ours":
        return our_step(config, batches)
    if name == "marian":
        from benchmarks.marian_transformer import marian_step

        return marian_step(config, batches, params=params)
    from benchmarks.torch_transformer import torch_step

    return torch_step(config, batches, params=params, compiled=name == "torch-compile")


def our_step(config: Config, batches: list[Batch]) -> Step:
    """The step as train.py makes it."""
    mesh = sharding.make_mesh()
    turns = itertools.cycle([sharding.shard_batch(mesh, batch) for batch in batches])
    state, steps = new_state(mesh, config), itertools.count(1)
    update = jit_update(mesh, config)

    def step() -> float:
        nonlocal state
        state, metrics = update(state, next(turns), learning_rate(config, next(steps)))
        jax.block_until_ready(state)
        return float(metrics.sums.loss / metrics.sums.tokens)

    return step


def planned_bytes(config: Config, batch: Batch) -> int:
    """Memory of our update by XLA's analysis: the state, which it gives up, and what is beside."""
    traced = traced_update(sharding.make_mesh(), config, batch)
    plan = traced.lower().compile().memory_analysis()
    return plan.argument_size_in_bytes + plan.temp_size_in_bytes


def check_same_work(
    names: Sequence[str], config: Config, batches: list[Batch], updates: int = 3
) -> None:
    """Prints how far the losses of the same updates are from ours; stops if they are far."""
    params = init_state(config, jax.random.key(0)).params
    steps = {name: build(name, config, batches, params) for name in names}
    losses = {name: np.array([step() for _ in range(updates)]) for name, step in steps.items()}
    far = {name: np.abs(losses[name] - losses["ours"]).max() for name in names[1:]}
    shown = ", ".join(f"{loss:.6f}" for loss in losses["ours"])
    print(f"loss of {updates} updates without dropout, nats a target token: {shown}")
    differences = ", ".join(f"{name} {value:.1e}" for name, value in far.items())
    print(f"largest difference from it: {differences or '-'}")
    if not all(value < 1e-3 for value in far.values()):
        raise SystemExit("they do not compute the same: their times cannot be compared")


def result_rows(outcomes: dict[str, Outcome], shape: Shape, planned: int) -> Iterator[Row]:
    ours = outcomes["ours"]
    for name, (timing, first, _, memory) in outcomes.items():
        yield {
            "contestant": name,
            **milliseconds(timing),
            "target tokens/s": f"{shape.sentences * LENGTH / timing.median:,.0f}",
            "compile s": f"{max(first - timing.median, 0):.1f}",
            "time / ours": f"{timing.median / ours.timing.median:.2f}",
            **memory_cells(memory),
            "peak / ours": f"{memory.peak / ours.memory.peak:.2f}" if memory else "-",
            "XLA's plan MB": f"{planned / 1e6:,.0f}" if name == "ours" else "-",
        }


def share(model: ModelConfig, sentences: int, seconds: float, most: Ceilings) -> Row:
    """The share of the machine's ceilings that a step of ours reaches.

    The floor is the time of the matrix products at the speed of large ones, and of Adam at the
    speed of a large copy: it reads a weight, its gradient and two moments and writes all but the
    gradient, 28 bytes. All else (softmax, norms, dropout, loss, activations) is free in it, so no
    step that computes the same products in float32 and then updates can take less.
    """
    operations = step_operations(model, sentences)
    parameters = count_params(jax.eval_shape(partial(init_params, model), jax.random.key(0)))
    floor = operations / most.flops + 28 * parameters / most.bytes
    return {
        "GFLOP a step": f"{operations / 1e9:,.1f}",
        "floor ms": f"{1000 * floor:.1f}",
        "ours, median ms": f"{1000 * seconds:.1f}",
        "ours / floor": f"{seconds / floor:.2f}",
        "share of the ceiling of products": f"{operations / seconds / most.flops:.0%}",
    }


if __name__ == "__main__":
    run_command(main)
