"""One update: gradients, then Adam. Pure functions of the whole batch, on however many devices."""

from functools import partial

import jax
import jax.numpy as jnp
import optax
from flax import struct
from jax import Array
from jaxtyping import Float, Key

from transformer.config import Config, ModelConfig
from transformer.model.batch import Batch
from transformer.model.params import Params, init_params
from transformer.training.loss import LossSums, loss_sums
from transformer.training.optimizer import (
    Hyperparameters,
    adam,
    clipping,
    is_usable,
    learning_rate,
    moving_average,
    usual_norm,
)


@struct.dataclass
class TrainState:
    """All that training carries from one update to the next.

    step       updates done, int32
    params     float32
    opt_state  Adam's moments and count
    key        the one random key; dropout folds the step into it, so resuming is exact
    average    the moving average of `params` (`train.ema_decay`), or None
    usual_norm what a gradient's norm usually is (`optimizer.skip_spikes`), or None
    """

    step: Array
    params: Params
    opt_state: optax.OptState
    key: Array
    average: Params | None = None
    usual_norm: Array | None = None

    @property
    def result(self) -> Params:
        """What is validated, saved as the model and translated with."""
        return self.params if self.average is None else self.average


@struct.dataclass
class Report:
    """What an update tells of itself: the sums of its batch, the norm of the mean gradient, and
    whether it was skipped."""

    sums: LossSums
    gradient_norm: Array
    skipped: Array


def init_state(config: ModelConfig, key: Key[Array, ""]) -> TrainState:
    """The state before the first update."""
    params_key, dropout_key = jax.random.split(key)
    params = init_params(config, params_key)
    return TrainState(jnp.int32(0), params, optax.scale_by_adam().init(params), dropout_key)


def state_shapes(config: Config) -> TrainState:
    """A state without its arrays: their shapes, those that only some configs keep included."""
    shapes = jax.eval_shape(partial(init_state, config.model), jax.random.key(0))
    return shapes.replace(
        average=shapes.params if config.train.ema_decay else None,
        usual_norm=jax.ShapeDtypeStruct((), jnp.float32) if config.optimizer.skip_spikes else None,
    )


def update(
    config: ModelConfig,
    parts: int,
    shards: int,
    numbers: Hyperparameters,
    state: TrainState,
    batch: Batch,
) -> tuple[TrainState, Report]:
    """One optimizer update on one batch, with a dropout of its own.

    The batch passes through the model in `parts`, each spread over `shards` devices.
    """
    grads, sums = next_gradients(config, parts, shards, numbers, state, batch)
    return apply(config, numbers, state, grads, sums)


def next_gradients(
    config: ModelConfig,
    parts: int,
    shards: int,
    numbers: Hyperparameters,
    state: TrainState,
    batch: Batch,
) -> tuple[Params, LossSums]:
    """What the next update is made of: gradients of the summed loss, and the sums."""
    key = jax.random.fold_in(state.key, state.step)
    smoothing, r_drop = numbers.label_smoothing, numbers.r_drop
    return gradients(config, parts, state.params, batch, smoothing, key, shards, r_drop)


def gradients(
    config: ModelConfig,
    parts: int,
    params: Params,
    batch: Batch,
    smoothing: Float[Array, ""] | float,
    key: Key[Array, ""] | None = None,
    shards: int = 1,
    r_drop: Float[Array, ""] | None = None,
) -> tuple[Params, LossSums]:
    """Gradients of the summed loss, and the sums, added up over `parts` micro-batches."""
    gradients_of = partial(_gradients, config, shards, smoothing, r_drop)
    if parts == 1:
        return gradients_of(params, batch, key)

    def add_part(total, index_and_part):
        index, part = index_and_part
        part_key = None if key is None else jax.random.fold_in(key, index)
        more = gradients_of(params, part, part_key)
        return jax.tree.map(jnp.add, total, more), None

    zeros = jax.tree.map(
        lambda leaf: jnp.zeros(leaf.shape, leaf.dtype),
        jax.eval_shape(gradients_of, params, batch, key),
    )
    total, _ = jax.lax.scan(add_part, zeros, (jnp.arange(parts), _split_rows(batch, parts)))
    return total


def _gradients(config, shards, smoothing, r_drop, params, batch, key):
    def summed_loss(params):
        sums = loss_sums(config, params, batch, smoothing, key, shards, r_drop)
        return sums.loss, sums

    return jax.grad(summed_loss, has_aux=True)(params)


def _split_rows(batch: Batch, parts: int) -> Batch:
    """Every `parts`-th row to the same part, so that each stays spread over all devices."""
    return jax.tree.map(lambda rows: rows.reshape(-1, parts, rows.shape[-1]).swapaxes(0, 1), batch)


def apply(
    config: ModelConfig,
    numbers: Hyperparameters,
    state: TrainState,
    grads: Params,
    sums: LossSums,
) -> tuple[TrainState, Report]:
    """The state after an update with the mean gradient a target token.

    Where that cannot be used (`is_usable`) nothing is changed but `step`: selected, since what is
    no number would be none after a product with zero either.
    """
    with jax.named_scope("adam"):
        norm = optax.tree.norm(grads) / sums.tokens
        # Not a division, whose results XLA would store for all parameters before Adam reads them.
        share = clipping(numbers, norm) / sums.tokens
        mean = jax.tree.map(lambda gradient: gradient * share, grads)
        usable = is_usable(numbers, state.usual_norm, norm, sums.loss)
        directions, opt_state = adam(numbers, state.opt_state, mean, usable)
        rate = learning_rate(config, numbers, state.step + 1)
        updates = jax.tree.map(lambda direction: -rate * direction, directions)
        params = optax.apply_updates(state.params, updates)
        average = moving_average(numbers, state.average, params, state.step + 1)
        new = params, average, usual_norm(state.usual_norm, norm)
        old = state.params, state.average, state.usual_norm
        params, average, usual = optax.tree.where(usable, new, old)
    state = TrainState(state.step + 1, params, opt_state, state.key, average, usual)
    return state, Report(sums, norm, ~usable)
