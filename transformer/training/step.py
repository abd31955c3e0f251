"""One update: gradients, then Adam. Pure functions of the whole batch, on however many devices."""

from functools import partial

import jax
import jax.numpy as jnp
import optax
from flax import struct
from jax import Array
from jaxtyping import Key

from transformer.config import Config
from transformer.model.batch import Batch
from transformer.model.params import Params, init_params
from transformer.training.loss import LossSums, loss_sums
from transformer.training.optimizer import make_optimizer


@struct.dataclass
class TrainState:
    """All that training carries from one update to the next.

    step       updates done, int32
    params     float32
    opt_state  Adam's moments and count
    key        the one random key; dropout folds the step into it, so resuming is exact
    """

    step: Array
    params: Params
    opt_state: optax.OptState
    key: Array


def init_state(config: Config) -> TrainState:
    """The state before the first update, from `train.seed`."""
    params_key, dropout_key = jax.random.split(jax.random.key(config.train.seed))
    params = init_params(config.model, params_key)
    return TrainState(jnp.int32(0), params, make_optimizer(config).init(params), dropout_key)


def update(
    config: Config, optimizer: optax.GradientTransformation, state: TrainState, batch: Batch
) -> tuple[TrainState, LossSums]:
    """One optimizer update on one batch, with a dropout of its own."""
    key = jax.random.fold_in(state.key, state.step)
    grads, sums = gradients(config, state.params, batch, key)
    return apply(optimizer, state, grads, sums), sums


def gradients(
    config: Config, params: Params, batch: Batch, key: Key[Array, ""] | None = None
) -> tuple[Params, LossSums]:
    """Gradients of the summed loss, and the sums, added up over `train.micro_batches` parts."""
    parts = config.train.micro_batches
    if parts == 1:
        return _gradients(config, params, batch, key)

    def add_part(total, index_and_part):
        index, part = index_and_part
        part_key = None if key is None else jax.random.fold_in(key, index)
        return jax.tree.map(jnp.add, total, _gradients(config, params, part, part_key)), None

    zeros = jax.tree.map(
        lambda leaf: jnp.zeros(leaf.shape, leaf.dtype),
        jax.eval_shape(partial(_gradients, config), params, batch, key),
    )
    total, _ = jax.lax.scan(add_part, zeros, (jnp.arange(parts), _split_rows(batch, parts)))
    return total


def _gradients(config, params, batch, key):
    def summed_loss(params):
        sums = loss_sums(config, params, batch, key)
        return sums.loss, sums

    return jax.grad(summed_loss, has_aux=True)(params)


def _split_rows(batch: Batch, parts: int) -> Batch:
    """Every `parts`-th row to the same part, so that each stays spread over all devices."""
    return jax.tree.map(lambda rows: rows.reshape(-1, parts, rows.shape[-1]).swapaxes(0, 1), batch)


def apply(
    optimizer: optax.GradientTransformation, state: TrainState, grads: Params, sums: LossSums
) -> TrainState:
    """The state after an update with the mean gradient a target token."""
    # Not a division, whose results XLA would store for all parameters before Adam reads them.
    share = 1 / sums.tokens
    mean = jax.tree.map(lambda gradient: gradient * share, grads)
    updates, opt_state = optimizer.update(mean, state.opt_state, state.params)
    params = optax.apply_updates(state.params, updates)
    return state.replace(step=state.step + 1, params=params, opt_state=opt_state)
