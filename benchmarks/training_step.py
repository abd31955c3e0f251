"""One training step (forward, backward, Adam) of ours against PyTorch eager, on the CPU.

    python -m benchmarks.training_step
    python -m benchmarks.training_step --shapes B --rounds 30 --dropout 0
    python -m benchmarks.training_step --shapes tiny --rounds 2      tries the script

Needs PyTorch: pip install -e '.[oracles]'

Shape A is 4+4 layers, d_model 256, d_ff 1024, 4 heads, 32 sentences; shape B 6+6, 512, 2048,
8 heads, 16 sentences; both with 32 source and 32 target tokens a sentence, nothing padded, and a
vocabulary of 8,000 in one embedding matrix for source, target and output. Both sides compute in
float32, with label smoothing 0.1 and dropout in the same places: sums of embeddings and positions,
sublayer outputs, attention weights, inside the feed-forward layers. Both have biases in attention.
The peer is torch.nn.TransformerEncoder and TransformerDecoder with fused Adam.

First both sides make three updates from the same weights without dropout. The losses must agree:
then both do the same work.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import jax
import numpy as np
import torch
import torch.nn.functional as F
import tyro

from benchmarks.measure import (
    alternate,
    cores,
    machine,
    milliseconds,
    table,
    timed,
    versions,
)
from benchmarks.shapes import LENGTH, SHAPES, VOCABULARY, Shape, ShapeName, model_config
from benchmarks.torch_transformer import TorchTransformer, copy_weights
from transformer.config import Config, OptimizerConfig
from transformer.model.batch import BOS, EOS, PAD, Batch
from transformer.model.params import count_params
from transformer.training import parallel
from transformer.training.optimizer import learning_rate, make_optimizer
from transformer.training.step import init_state


@dataclass(frozen=True)
class TrainingStep:
    """Time a training step of ours and of PyTorch eager in turn."""

    shapes: tuple[ShapeName, ...] = ("A", "B")
    """Model shapes."""
    rounds: int = 20
    """Steps of each contestant that are timed."""
    dropout: float = 0.1
    """Dropout rate of both sides; 0: none."""


def main(command: TrainingStep) -> None:
    torch.set_num_threads(cores())
    print(f"{machine()}\n{versions('jax', 'torch')}\n")
    rows = []
    for name in command.shapes:
        shape = SHAPES[name]
        config = Config(
            model=model_config(shape, command.dropout, attention_bias=True),
            # A rate at which the losses move within a few updates.
            optimizer=OptimizerConfig(warmup_steps=100),
        )
        check_same_work(name, config, shape)
        ours, compile_seconds = our_step(config, shape)
        theirs = torch_step(config, shape)
        timings = alternate({"ours": ours, "torch eager": theirs}, command.rounds)
        for contestant, timing in timings.items():
            rows.append(
                {
                    "shape": name,
                    "dropout": f"{command.dropout:g}",
                    "contestant": contestant,
                    **milliseconds(timing),
                    "target tokens/s": f"{shape.sentences * LENGTH / timing.median:,.0f}",
                    "compile s": f"{compile_seconds:.1f}" if contestant == "ours" else "-",
                    "time / ours": f"{timing.median / timings['ours'].median:.2f}",
                }
            )
    print(f"\n{table(rows)}\n\n{command.rounds} rounds, contestants in turn")


def check_same_work(name: str, config: Config, shape: Shape, updates: int = 3) -> None:
    """Prints how far apart the losses of the same updates are, without dropout."""
    model = replace(config.model, dropout=0.0, attention_dropout=0.0, activation_dropout=0.0)
    config = replace(config, model=model)
    ours, _ = our_step(config, shape)
    theirs = torch_step(config, shape)
    losses = [(ours(), theirs()) for _ in range(updates)]
    furthest = max(abs(a - b) for a, b in losses)
    shown = ", ".join(f"{a:.6f} and {b:.6f}" for a, b in losses)
    print(
        f"shape {name}: {shape}, {shape.sentences} x {LENGTH}+{LENGTH} tokens, "
        f"{count_params(init_state(config).params):,} parameters\n"
        f"loss (nats a token, ours and torch's) of {updates} updates without dropout: {shown}; "
        f"largest difference {furthest:.1e}"
    )
    if furthest > 1e-3:
        raise SystemExit("the two sides do not compute the same: their times cannot be compared")


def our_step(config: Config, shape: Shape) -> tuple[Callable[[], float], float]:
    """A function that makes an update and returns its loss, and the seconds of compiling it."""
    mesh = parallel.make_mesh()
    batches = [parallel.shard_batch(mesh, batch) for batch in synthetic_batches(shape)]
    state = parallel.new_state(mesh, config)
    jitted = parallel.jit_update(mesh, config, make_optimizer(config))
    update, compile_seconds = timed(lambda: jitted.lower(state, batches[0]).compile())
    count = 0

    def step() -> float:
        nonlocal state, count
        state, sums = update(state, batches[count % len(batches)])
        count += 1
        jax.block_until_ready(state)
        return float(sums.loss / sums.tokens)

    return step, compile_seconds


def torch_step(config: Config, shape: Shape) -> Callable[[], float]:
    """The same with torch, from the same weights on the same batches."""
    model = TorchTransformer(config.model, LENGTH)
    copy_weights(init_state(config).params, model)
    settings = config.optimizer
    optimizer = torch.optim.Adam(
        model.parameters(),
        betas=(settings.beta_1, settings.beta_2),
        eps=settings.epsilon,
        fused=True,
    )
    rate = learning_rate(config)
    rates = [float(rate(count)) for count in range(1000)]
    batches = [
        tuple(torch.tensor(ids, dtype=torch.int64) for ids in vars(batch).values())
        for batch in synthetic_batches(shape)
    ]
    count = 0

    def step() -> float:
        nonlocal count
        source, target_in, target_out = batches[count % len(batches)]
        optimizer.param_groups[0]["lr"] = rates[min(count, len(rates) - 1)]
        count += 1
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(
            model(source, target_in).flatten(0, 1),
            target_out.flatten(),
            ignore_index=PAD,
            label_smoothing=config.train.label_smoothing,
        )
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def synthetic_batches(shape: Shape, count: int = 4) -> list[Batch]:
    """Batches of random tokens without padding; every sentence ends in EOS."""
    generator = np.random.default_rng(0)
    result = []
    for _ in range(count):
        source, target = generator.integers(4, VOCABULARY, (2, shape.sentences, LENGTH), np.int32)
        source[:, -1] = target[:, -1] = EOS
        target_in = np.roll(target, 1, axis=1)
        target_in[:, 0] = BOS
        result.append(Batch(source, target_in, target))
    return result


if __name__ == "__main__":
    main(tyro.cli(TrainingStep, prog="python -m benchmarks.training_step"))
