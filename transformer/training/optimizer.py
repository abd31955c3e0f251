"""The optimizer as an optax chain, and the learning-rate schedule of section 5.3."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import optax.contrib
from jax import Array
from jaxtyping import Bool, Float, Int

from transformer.config import Config, OptimizerConfig
from transformer.model.params import Params

Rate = Float[Array, ""] | np.float32 | float
"""A learning rate, traced or not."""

AVERAGED_NORMS = 100
"""Updates over which the moving average of gradient norms extends."""


def make_optimizer(settings: OptimizerConfig, learning_rate: Rate) -> optax.GradientTransformation:
    """The optimizer of mean gradients, with clipping (`optimizer.clip_norm`) as its first part. Its
    state does not depend on the learning rate, so that each update may have its own."""
    clipping = [optax.clip_by_global_norm(settings.clip_norm)] if settings.clip_norm else []
    return optax.chain(*clipping, *OPTIMIZERS[settings.name](settings, learning_rate))


def _adam(settings, learning_rate):
    return [
        optax.scale_by_adam(settings.beta_1, settings.beta_2, settings.epsilon),
        optax.scale_by_learning_rate(learning_rate),
    ]


def _adamw(settings, learning_rate):
    adam, scale = _adam(settings, learning_rate)
    return [adam, optax.add_decayed_weights(settings.weight_decay, has_decay), scale]


Dimensions = optax.contrib.MuonDimensionNumbers

MATRICES = {
    **dict.fromkeys(("w_q", "w_k", "w_v"), Dimensions(1, (2, 3))),
    "w_o": Dimensions((1, 2), 3),
    **dict.fromkeys(("w_1", "w_2"), Dimensions(1, 2)),
}
"""The matrices that Muon orthogonalises, layer by layer: their input and output axes."""


GRADIENT_SCALE = 2.0**14
"""By which gradients are multiplied before Muon, without rounding."""


def _map_names(function: Callable[[str], Any], params: Any) -> Any:
    """A function of the name of each weight, such as w_q, for all weights."""

    def of_path(path, _):
        return function(jax.tree_util.keystr(path[-1:], simple=True))

    return jax.tree_util.tree_map_with_path(of_path, params)


def _muon(settings, learning_rate):
    rest = _adamw if settings.weight_decay else _adam
    orthogonalised = optax.contrib.muon(
        learning_rate,
        beta=settings.muon_momentum,
        weight_decay=settings.weight_decay,
        ns_steps=3,  # with this preconditioning as good as five without
        preconditioning="aol",
        nesterov=settings.muon_nesterov,
        consistent_rms=settings.muon_rms or None,
        muon_weight_dimension_numbers=partial(_map_names, MATRICES.get),
    )

    def muon_update(gradients, state, params=None):
        # Only the direction counts, but the preconditioning takes sums of squares of 1e-8 for zero.
        scaled = jax.tree.map(lambda gradient: GRADIENT_SCALE * gradient, gradients)
        return orthogonalised.update(scaled, state, params)

    muon = optax.GradientTransformation(orthogonalised.init, muon_update)
    others = optax.chain(*rest(settings, learning_rate))
    labels = partial(_map_names, lambda name: "muon" if name in MATRICES else "others")
    return [optax.partition({"muon": muon, "others": others}, labels)]


def _schedule_free(settings, learning_rate):
    # Its first moment is the interpolation between the averaged and the last weights.
    base = optax.chain(
        optax.scale_by_rms(
            settings.beta_2, settings.epsilon, eps_in_sqrt=False, bias_correction=True
        ),
        optax.add_decayed_weights(settings.weight_decay, has_decay),
        optax.scale_by_learning_rate(learning_rate),
    )
    return [optax.contrib.schedule_free(base, learning_rate, settings.beta_1)]


OPTIMIZERS = {"adam": _adam, "adamw": _adamw, "muon": _muon, "schedule_free": _schedule_free}
"""The parts of the chain after clipping, by `optimizer.name`."""


def has_decay(params: Any) -> Any:
    """True for weight matrices and tables, false for norms and biases."""

    def is_matrix(name):
        return not (name == "scale" or name.startswith("b") or name.endswith("_bias"))

    return _map_names(is_matrix, params)


def evaluation_params(opt_state: tuple, params: Any) -> Any:
    """The parameters to validate, save and translate with: averaged ones if the optimizer averages,
    otherwise `params`."""
    for part in opt_state:
        if isinstance(part, optax.contrib.ScheduleFreeState):
            return optax.contrib.schedule_free_eval_params(part, params)
    return params


def learning_rate(
    config: Config, step: Int[np.ndarray, "*U"] | int
) -> Float[np.ndarray, "*U"] | np.float32:
    """Equation 3: d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5), with steps from 1.

    `optimizer.scale` multiplies it, and over the last `optimizer.cooldown_steps` updates a factor
    that falls linearly to zero. For schedule_free the rate is constant after warm-up.
    """
    settings, step = config.optimizer, np.asarray(step, np.float64)
    decaying = step if settings.name != "schedule_free" else settings.warmup_steps
    rate = np.minimum(decaying**-0.5, step * settings.warmup_steps**-1.5)
    if settings.cooldown_steps:
        rate = rate * np.clip((config.train.steps - step + 1) / settings.cooldown_steps, 0, 1)
    return np.float32(settings.scale * config.model.d_model**-0.5 * rate)


def moving_average(
    decay: float, average: Params | None, params: Params, step: Int[Array, ""]
) -> Params | None:
    """The average after update `step`, counted from 1. Its decay is at most (1 + step) / (10 +
    step), so that the first weights are soon forgotten."""
    if average is None:
        return None
    share = jnp.minimum(decay, (1 + step) / (10 + step))
    return jax.tree.map(lambda mean, new: new + share * (mean - new), average, params)


def norm_average(
    average: Float[Array, ""] | None, norm: Float[Array, ""]
) -> Float[Array, ""] | None:
    """The moving average of gradient norms after one more; 0 before the first."""
    if average is None:
        return None
    return jnp.where(average > 0, average + (norm - average) / AVERAGED_NORMS, norm)


def is_accepted(
    settings: OptimizerConfig,
    average: Float[Array, ""] | None,
    norm: Float[Array, ""],
    loss: Float[Array, ""],
) -> Bool[Array, ""]:
    """Whether an update is made: loss and gradient are finite, and with `spike_threshold` the norm
    is at most that many times its average."""
    accepted = jnp.isfinite(norm) & jnp.isfinite(loss)
    if average is None:
        return accepted
    return accepted & ((average == 0) | (norm <= settings.spike_threshold * average))
