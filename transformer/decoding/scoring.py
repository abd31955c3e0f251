"""How likely given translations are to a model, read in one go (teacher forcing)."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from transformer.config import ModelConfig
from transformer.data.batching import pad_sources
from transformer.model.batch import BOS, PAD
from transformer.model.encoder_decoder import decode, encode
from transformer.model.params import Params


def log_probabilities(
    model: ModelConfig,
    params: Params,
    source: Int[np.ndarray, "B S"],
    target: Int[np.ndarray, "B T"],
) -> Float[np.ndarray, "B"]:
    """Natural log-probability of each target given its source, PAD apart."""
    target_in = np.insert(target[:, :-1], 0, BOS, axis=1)
    return np.asarray(_log_probabilities(model, params, source, target_in, target))


@partial(jax.jit, static_argnums=0)
def _log_probabilities(model, params, source, target_in, target):
    logits = decode(model, params, encode(model, params, source), target_in)
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), target[..., None], 2)[..., 0]
    return jnp.where(target == PAD, 0, chosen).sum(1)


def padded(rows: list[list[int]]) -> Int[np.ndarray, "B L"]:
    """Rows of ids with EOS as a table."""
    return pad_sources(rows, len(rows), max(map(len, rows)) + 1)
