"""One model or several as a step function for the search.

The models of an ensemble read the same tokens, each with a cache of its own; the probability of the
next token is the mean of theirs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int

from transformer.config import ModelConfig
from transformer.decoding.candidates import AveragedProbabilities
from transformer.model.cached_decoder import (
    DecodeCache,
    decode_step,
    decoding_params,
    reorder,
)
from transformer.model.params import Params, output_layer

Caches = tuple[DecodeCache, ...]
"""One for each model."""


@dataclass(frozen=True)
class Ensemble:
    """Models that decode together: their configs, which are static, their parameters, and the
    tokens [C] that they have logits of, or None for all."""

    models: tuple[ModelConfig, ...]
    params: tuple[Params, ...]
    tokens: Array | None = None


def make_ensemble(members: list[tuple[ModelConfig, Params]], dtype: str) -> Ensemble:
    """Members of one vocabulary, in the precision `decode.dtype`."""
    models = tuple(
        model if dtype == "model" else replace(model, dtype=dtype) for model, _ in members
    )
    prepare = jax.jit(decoding_params, static_argnums=0)
    # On a device by name, as training has them: both find the same compiled programs.
    params = jax.device_put([params for _, params in members], jax.local_devices()[0])
    return Ensemble(models, tuple(map(prepare, models, params)))


def among(ensemble: Ensemble, tokens: Int[np.ndarray, "C"]) -> Ensemble:
    """The same models with logits of these tokens alone, in their order."""
    params = tuple(_with_output(one, tokens) for one in ensemble.params)
    return replace(ensemble, params=params, tokens=jnp.asarray(tokens))


def _with_output(params: Params, tokens: Int[np.ndarray, "C"]) -> Params:
    rows = jax.tree.map(lambda rows: rows[tokens], output_layer(params))
    embedding = params.embedding.replace(output=rows.table, output_bias=rows.bias)
    return params.replace(embedding=embedding)


def ensemble_step(
    models: tuple[ModelConfig, ...],
    params: tuple[Params, ...],
    caches: Caches,
    tokens: Int[Array, "R"],
) -> tuple[Float[Array, "R V"] | AveragedProbabilities, Caches]:
    """Logits of one model, or the mean probability of several."""
    steps = [decode_step(*member, tokens) for member in zip(models, params, caches)]
    logits, caches = zip(*steps)
    return logits[0] if len(logits) == 1 else averaged(logits), caches


def averaged(logits: Sequence[Float[Array, "*B V"]]) -> AveragedProbabilities:
    """The mean of several models' probabilities."""
    each = [jax.nn.softmax(of_one.astype(jnp.float32)) for of_one in logits]
    return AveragedProbabilities(sum(each) / len(each))


def reorder_all(caches: Caches, rows: Int[Array, "R"]) -> Caches:
    """Each cache's hypotheses in a new order."""
    return tuple(reorder(cache, rows) for cache in caches)
