"""`train.py CONFIG --replay STEP`: computes a skipped update again, and shows it by layers."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

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


def replay(run: Path, step: int, log: Callable[[str], None]) -> None:
    """Prints the norms of each weight and of its gradient in that update."""
    config = load_run_config(run)
    state, batch = load_skipped(run, config, step)
    mesh = sharding.make_mesh()
    sums, grads = replayed(mesh, config, sharding.shard(mesh, config, state), batch)
    log(
        f"update {step:,} of {run}: loss {float(sums.loss / sums.tokens):.4g} "
        f"nats/{config.model.unit}; norm of each weight and of its gradient:"
    )
    for line in norms(state.params, grads):
        log(line)


def replayed(
    mesh: Mesh, config: Config, state: TrainState, batch: Batch
) -> tuple[LossSums, Params]:
    """The sums and the mean gradient of a batch, in the update after this state."""
    config = replace(config, model=sharding.for_device(config.model, mesh.devices.flat[0]))
    batch = sharding.shard_batch(mesh, batch, config.train.micro_batches)
    key = jax.random.fold_in(state.key, state.step)
    grads, sums = jax.jit(partial(gradients, config, devices=mesh.size))(state.params, batch, key)
    return sums, jax.tree.map(lambda gradient: gradient / sums.tokens, grads)


def norms(params: Params, grads: Params) -> Iterator[str]:
    """A line for every parameter, each layer by itself, in the order of `by_name`: its norm, that
    of its gradient, and the number of non-finite values in the gradient, if any."""
    all_gradients = by_name(grads)
    for name, weights in by_name(params).items():
        pair = weights, all_gradients[name]
        stacked = ".layers." in name
        for layer in range(len(weights) if stacked else 1):
            weight, gradient = (leaf[layer] if stacked else leaf for leaf in pair)
            label = f"{name}, layer {layer + 1}" if stacked else name
            sizes = f"{jnp.linalg.norm(weight):10.3g} {jnp.linalg.norm(gradient):10.3g}"
            bad = int(np.sum(~np.isfinite(gradient)))
            yield f"  {label:48} {sizes}" + (f"  {bad:,} non-finite values" if bad else "")
