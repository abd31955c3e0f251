"""`train.py CONFIG --replay STEP`: an update that was skipped once more, layer by layer."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from transformer.config import Config
from transformer.model.batch import Batch
from transformer.model.params import Params, by_name
from transformer.runs.folder import load_run_config
from transformer.runs.skipped import load_skipped
from transformer.training import sharding
from transformer.training.loss import LossSums
from transformer.training.step import TrainState, gradients


class Norms(NamedTuple):
    """Of one parameter of one layer: its norm, that of its mean gradient, and how many numbers of
    that gradient are none."""

    name: str
    weight: float
    gradient: float
    not_finite: int


def replay(run: Path, step: int, log: Callable[[str], None]) -> None:
    """Prints the norms of each weight and of its gradient in the update of that number."""
    config = load_run_config(run)
    state, batch = load_skipped(run, config, step)
    mesh = sharding.make_mesh()
    sums, grads = replayed(mesh, config, sharding.shard(mesh, config, state), batch)
    log(
        f"update {step:,} of {run}: loss {float(sums.loss / sums.tokens):.4g} "
        f"nats/{config.model.unit}; norm of each weight and of its gradient:"
    )
    for name, weight, gradient, not_finite in norms(state.params, grads):
        bad = f"  {not_finite:,} of them no number" if not_finite else ""
        log(f"  {name:48} {weight:10.3g} {gradient:10.3g}{bad}")


def replayed(
    mesh: Mesh, config: Config, state: TrainState, batch: Batch
) -> tuple[LossSums, Params]:
    """What the update after this state computes of a batch: the sums, and the mean gradient."""
    config = replace(config, model=sharding.for_device(config.model, mesh.devices.flat[0]))
    batch = sharding.shard_batch(mesh, batch, config.train.micro_batches)
    key = jax.random.fold_in(state.key, state.step)
    grads, sums = jax.jit(partial(gradients, config, devices=mesh.size))(state.params, batch, key)
    return sums, jax.tree.map(lambda gradient: gradient / sums.tokens, grads)


def norms(params: Params, grads: Params) -> list[Norms]:
    """Of every parameter, of each layer by itself, in the order of `by_name`."""
    found = []
    for (name, weight), gradient in zip(by_name(params).items(), by_name(grads).values()):
        stacked = ".layers." in name
        for number in range(len(weight) if stacked else 1):
            w, g = (leaf[number] if stacked else leaf for leaf in (weight, gradient))
            found.append(
                Norms(
                    f"{name}, layer {number + 1}" if stacked else name,
                    float(jnp.linalg.norm(w)),
                    float(jnp.linalg.norm(g)),
                    int(np.sum(~np.isfinite(g))),
                )
            )
    return found
