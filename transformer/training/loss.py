"""Label-smoothed cross-entropy (section 5.4), as sums that are divided once, at the end."""

from functools import partial

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array
from jaxtyping import Float, Int, Key

from transformer.config import Config
from transformer.model.batch import PAD, Batch
from transformer.model.encoder_decoder import decode, encode
from transformer.model.layers import split
from transformer.model.params import Params


@struct.dataclass
class LossSums:
    """Sums over the target tokens that are not padding; all float32 scalars.

    loss     label-smoothed cross-entropy, in nats: what training minimises
    nll      negative log-likelihood of the reference, in nats: exp(nll / tokens) is the perplexity
    correct  tokens whose logit was the largest
    tokens   how many there are

    Sums of micro-batches, devices and processes add up; means with different token counts do not.
    """

    loss: Array
    nll: Array
    correct: Array
    tokens: Array


def loss_sums(
    config: Config, params: Params, batch: Batch, key: Key[Array, ""] | None = None
) -> LossSums:
    """The model's loss on a batch; `key=None` for no dropout."""
    encoder_key, decoder_key = split(key, 2)
    memory = encode(config.model, params, batch.source, encoder_key)
    logits = decode(config.model, params, memory, batch.target_in, decoder_key)
    real = batch.target_out != PAD
    loss, nll = smoothed_cross_entropy(logits, batch.target_out, config.train.label_smoothing)
    # Not by argmax, which XLA computes on one core of a CPU.
    is_largest = _at(batch.target_out, logits) == logits.max(-1)
    return LossSums(
        loss=jnp.sum(loss * real),
        nll=jnp.sum(jax.lax.stop_gradient(nll) * real),
        correct=jnp.sum(is_largest & real, dtype=jnp.float32),
        tokens=jnp.sum(real, dtype=jnp.float32),
    )


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def smoothed_cross_entropy(
    logits: Float[Array, "B T V"], labels: Int[Array, "B T"], smoothing: float
) -> tuple[Float[Array, "B T"], Float[Array, "B T"]]:
    """Cross-entropy with q = (1 - smoothing) * onehot(label) + smoothing / V, and with onehot.

    -sum_v q_v log p_v = log Z - (1 - smoothing) * logit_label - smoothing * mean_v logit_v, so no
    distribution over V is ever built. The second result carries no gradient.
    """
    return _forward(logits, labels, smoothing)[0]


def _forward(logits, labels, smoothing):
    log_z = jax.nn.logsumexp(logits, axis=-1)
    at_label = _at(labels, logits)
    loss = log_z - (1 - smoothing) * at_label - smoothing * logits.mean(-1)
    return (loss, log_z - at_label), (logits, log_z, labels)


def _at(labels: Int[Array, "B T"], logits: Float[Array, "B T V"]) -> Float[Array, "B T"]:
    """The logit of each label."""
    return jnp.take_along_axis(logits, labels[..., None], -1)[..., 0]


def _backward(smoothing, residuals, gradients):
    """d loss / d logit = p - q, in one pass over the logits."""
    logits, log_z, labels = residuals
    p = jnp.exp(logits - log_z[..., None])
    is_label = labels[..., None] == jnp.arange(logits.shape[-1])
    q = smoothing / logits.shape[-1] + jnp.where(is_label, 1 - smoothing, 0)
    return gradients[0][..., None] * (p - q), None


smoothed_cross_entropy.defvjp(_forward, _backward)
