"""Adam and the learning-rate schedule of section 5.3."""

import jax.numpy as jnp
import optax

from transformer.config import Config


def learning_rate(config: Config) -> optax.Schedule:
    """Equation 3: d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5), for update `step`.

    Steps count from 1, as in the paper, while optax counts from 0. `optimizer.scale` multiplies
    it; over the last `optimizer.cooldown_steps` updates it falls to zero in a straight line.
    """
    settings, total = config.optimizer, config.train.steps

    def schedule(count):
        step = jnp.asarray(count, jnp.float32) + 1
        rate = config.model.d_model**-0.5 * jnp.minimum(
            step**-0.5, step * settings.warmup_steps**-1.5
        )
        left = (total - step + 1) / max(settings.cooldown_steps, 1)
        cooldown = jnp.clip(left, 0, 1) if settings.cooldown_steps else 1.0
        return settings.scale * rate * cooldown

    return schedule


def make_optimizer(config: Config) -> optax.GradientTransformation:
    """Adam on the mean gradient a target token, clipped first if `clip_norm` is above 0."""
    settings = config.optimizer
    adam = optax.adam(
        learning_rate(config), b1=settings.beta_1, b2=settings.beta_2, eps=settings.epsilon
    )
    if settings.clip_norm == 0:
        return adam
    return optax.chain(optax.clip_by_global_norm(settings.clip_norm), adam)
