"""One update: gradients, then the optimizer. Pure functions of the whole batch, on any number of
devices."""

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
from transformer.training.optimizer import (
    Rate,
    evaluation_params,
    is_accepted,
    make_optimizer,
    moving_average,
    norm_average,
)
from transformer.training.sharding import ONE_DEVICE, Layout


class TrainState(struct.PyTreeNode):
    """What training carries from one update to the next.

    step          updates done, int32
    params        float32
    opt_state     the optimizer's state: Adam's moments and count
    key           the random key; dropout folds the step into it, so that resuming is exact
    average       the moving average of `params` (`train.ema_decay`), or None
    norm_average  the moving average of gradient norms (`optimizer.spike_threshold`), or None
    """

    step: Array
    params: Params
    opt_state: optax.OptState
    key: Array
    average: Params | None = None
    norm_average: Array | None = None

    @property
    def result(self) -> Params:
        """The parameters to validate, save and translate with."""
        if self.average is not None:
            return self.average
        return evaluation_params(self.opt_state, self.params)


class StepMetrics(struct.PyTreeNode):
    """The sums of a batch, the norm of the mean gradient, and whether the update was skipped."""

    sums: LossSums
    gradient_norm: Array
    skipped: Array


def init_state(config: Config, key: Key[Array, ""], params: Params | None = None) -> TrainState:
    """The state before the first update, with random parameters by default."""
    params_key, dropout_key = jax.random.split(key)
    params = init_params(config.model, params_key) if params is None else params
    return TrainState(
        step=jnp.int32(0),
        params=params,
        opt_state=make_optimizer(config.optimizer, 0.0).init(params),
        key=dropout_key,
        average=jax.tree.map(jnp.copy, params) if config.train.ema_decay else None,
        norm_average=jnp.float32(0) if config.optimizer.spike_threshold else None,
    )


def state_shapes(config: Config) -> TrainState:
    """The shapes of a state."""
    return jax.eval_shape(partial(init_state, config), jax.random.key(0))


def update(
    config: Config,
    state: TrainState,
    batch: Batch,
    learning_rate: Rate,
    layout: Layout = ONE_DEVICE,
) -> tuple[TrainState, StepMetrics]:
    """One optimizer update on one batch.

    On several devices (`layout`) each has its rows of the batch and all parameters. If the state is
    sharded, each gets its part of the summed gradient and updates its part of the parameters.
    """
    with layout.active():
        key = jax.random.fold_in(state.key, state.step)
        params = layout.gather(state.params)
        grads, sums = gradients(config, params, batch, key, layout.devices)
        return apply_gradients(config, state, layout.scatter(grads), sums, learning_rate)


def gradients(
    config: Config,
    params: Params,
    batch: Batch,
    key: Key[Array, ""] | None = None,
    devices: int = 1,
) -> tuple[Params, LossSums]:
    """Gradients of the summed loss, and the sums, accumulated over `train.micro_batches`, each
    sharded over the devices; `key=None` for no dropout."""
    steps = config.train.micro_batches
    gradients_of = partial(_gradients, config, devices)
    if steps == 1:
        return gradients_of(params, batch, key)

    def accumulate(total, index_and_batch):
        index, micro_batch = index_and_batch
        own_key = None if key is None else jax.random.fold_in(key, index)
        more = gradients_of(params, micro_batch, own_key)
        return jax.tree.map(jnp.add, total, more), None

    zeros = jax.tree.map(
        lambda leaf: jnp.zeros(leaf.shape, leaf.dtype),
        jax.eval_shape(gradients_of, params, batch, key),
    )
    total, _ = jax.lax.scan(accumulate, zeros, (jnp.arange(steps), _split_rows(batch, steps)))
    return total


def _gradients(config, devices, params, batch, key):
    smoothing, r_drop = config.train.label_smoothing, config.train.r_drop or None

    def summed_loss(params):
        sums = loss_sums(config.model, params, batch, smoothing, key, devices, r_drop)
        return sums.loss, sums

    return jax.grad(summed_loss, has_aux=True)(params)


def _split_rows(batch: Batch, steps: int) -> Batch:
    """Every `steps`-th row in the same micro-batch, so that each is sharded over all devices."""
    return jax.tree.map(lambda rows: rows.reshape(-1, steps, rows.shape[-1]).swapaxes(0, 1), batch)


def apply_gradients(
    config: Config, state: TrainState, grads: Params, sums: LossSums, learning_rate: Rate
) -> tuple[TrainState, StepMetrics]:
    """The state after an update with the mean gradient per target token.

    An update that is not accepted (`is_accepted`) changes nothing but `step`. A branch costs less
    than a `where` over all results of the optimizer.
    """
    with jax.named_scope("optimizer"):
        norm = optax.tree.norm(grads) / sums.tokens
        # Not a division, of which XLA would store the results for all parameters.
        share = 1 / sums.tokens
        accepted = is_accepted(config.optimizer, state.norm_average, norm, sums.loss)
        kept = state.params, state.opt_state, state.average, state.norm_average

        def make(kept):
            params, opt_state, average, averaged_norm = kept
            mean = jax.tree.map(lambda gradient: gradient * share, grads)
            optimizer = make_optimizer(config.optimizer, learning_rate)
            updates, opt_state = optimizer.update(mean, opt_state, params)
            params = optax.apply_updates(params, updates)
            average = moving_average(config.train.ema_decay, average, params, state.step + 1)
            return params, opt_state, average, norm_average(averaged_norm, norm)

        made = jax.lax.cond(accepted, make, lambda kept: kept, kept)
    params, opt_state, average, averaged_norm = made
    state = TrainState(state.step + 1, params, opt_state, state.key, average, averaged_norm)
    return state, StepMetrics(sums, norm, ~accepted)
