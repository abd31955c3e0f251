"""Adam and the learning-rate schedule of section 5.3."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import struct
from jax import Array
from jaxtyping import Bool, Float, Int

from transformer.config import Config, ModelConfig
from transformer.model.params import Params

USUAL_UPDATES = 100
"""Updates that the usual norm of a gradient is a mean of, more or less."""


@struct.dataclass
class Hyperparameters:
    """The numbers of training, float32: arguments of the compiled update, not part of it.

    So another schedule, clipping, smoothing or Adam compiles nothing. Each is the setting of its
    name in `optimizer` or `train`; None where training does without.
    """

    steps: Array
    warmup_steps: Array
    scale: Array
    cooldown_steps: Array
    beta_1: Array
    beta_2: Array
    epsilon: Array
    clip_norm: Array
    skip_spikes: Array | None
    label_smoothing: Array
    r_drop: Array | None
    ema_decay: Array | None


def hyperparameters(config: Config) -> Hyperparameters:
    """Those of a config."""
    settings = vars(config.optimizer) | {
        "skip_spikes": config.optimizer.skip_spikes or None,
        "steps": config.train.steps,
        "label_smoothing": config.train.label_smoothing,
        "r_drop": config.train.r_drop or None,
        "ema_decay": config.train.ema_decay or None,
    }
    return Hyperparameters(
        **{name: None if n is None else np.float32(n) for name, n in settings.items()}
    )


def learning_rate(
    config: ModelConfig, numbers: Hyperparameters, step: Int[Array, "*U"] | int
) -> Float[Array, "*U"]:
    """Equation 3: d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5), for update `step`, the
    first of which is 1.

    `optimizer.scale` multiplies it; over the last `optimizer.cooldown_steps` updates it falls to
    zero in a straight line.
    """
    step = jnp.asarray(step, jnp.float32)
    rate = config.d_model**-0.5 * jnp.minimum(step**-0.5, step * numbers.warmup_steps**-1.5)
    left = (numbers.steps - step + 1) / jnp.maximum(numbers.cooldown_steps, 1)
    cooldown = jnp.where(numbers.cooldown_steps > 0, jnp.clip(left, 0, 1), 1)
    return numbers.scale * rate * cooldown


def adam(
    numbers: Hyperparameters,
    state: optax.ScaleByAdamState,
    gradient: Any,
    usable: Bool[Array, ""],
) -> tuple[Any, optax.ScaleByAdamState]:
    """The direction of an update, to be multiplied by minus the learning rate, and Adam's state
    after it; the state as it was where the gradient is not usable.

    As optax.scale_by_adam, but for the selection in its middle: after it XLA would compute moments
    twice, once to keep them and once for the direction.
    """
    mu = optax.tree.update_moment(gradient, state.mu, numbers.beta_1, 1)
    nu = optax.tree.update_moment_per_elem_norm(gradient, state.nu, numbers.beta_2, 2)
    new = optax.ScaleByAdamState(optax.safe_increment(state.count), mu, nu)
    state = optax.tree.where(usable, new, state)
    mean = optax.tree.bias_correction(state.mu, numbers.beta_1, state.count)
    square = optax.tree.bias_correction(state.nu, numbers.beta_2, state.count)
    return jax.tree.map(lambda m, v: m / (jnp.sqrt(v) + numbers.epsilon), mean, square), state


def moving_average(
    numbers: Hyperparameters, average: Params | None, params: Params, step: Int[Array, ""]
) -> Params | None:
    """The average after update `step`, the first of which is 1. So that the first weights are soon
    forgotten, it decays by (1 + step) / (10 + step) as long as that is less than `ema_decay`."""
    if average is None:
        return None
    decay = jnp.minimum(numbers.ema_decay, (1 + step) / (10 + step))
    return jax.tree.map(lambda mean, new: new + decay * (mean - new), average, params)


def usual_norm(usual: Float[Array, ""] | None, norm: Float[Array, ""]) -> Float[Array, ""] | None:
    """The mean norm of gradients, the older the less, after one more; 0 before the first."""
    if usual is None:
        return None
    return jnp.where(usual > 0, usual + (norm - usual) / USUAL_UPDATES, norm)


def is_usable(
    numbers: Hyperparameters,
    usual: Float[Array, ""] | None,
    norm: Float[Array, ""],
    loss: Float[Array, ""],
) -> Bool[Array, ""]:
    """Whether an update may be made: loss and gradient are numbers, and where `skip_spikes` is set
    the gradient is not that much longer than usual."""
    usable = jnp.isfinite(norm) & jnp.isfinite(loss)
    if usual is None:
        return usable
    return usable & ((usual == 0) | (norm <= numbers.skip_spikes * usual))


def clipping(numbers: Hyperparameters, norm: Float[Array, ""]) -> Float[Array, ""]:
    """The factor on a gradient of that norm: less than 1 where it is longer than `clip_norm`."""
    limit = jnp.where(numbers.clip_norm > 0, numbers.clip_norm, jnp.inf)
    return jnp.where(norm > limit, limit / norm, 1)
