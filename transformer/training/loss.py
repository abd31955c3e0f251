"""Label-smoothed cross-entropy (section 5.4), as sums that are divided once, at the end."""

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array
from jaxtyping import Float, Int, Key

from transformer.config import ModelConfig
from transformer.model.batch import PAD, Batch
from transformer.model.encoder_decoder import predict
from transformer.model.params import Params


@struct.dataclass
class LossSums:
    """Sums over the target tokens that are not padding; float32 scalars, if not said otherwise.

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


def token_losses(
    config: ModelConfig,
    params: Params,
    batch: Batch,
    smoothing: Float[Array, ""] | float,
    key: Key[Array, ""] | None = None,
) -> LossSums:
    """What each position [B, T] adds to the sums; nothing where `target_out` is PAD."""
    logits = predict(config, params, batch, key)
    with jax.named_scope("loss"):
        real = batch.target_out != PAD
        loss, nll = smoothed_cross_entropy(logits, batch.target_out, smoothing)
        # Not by argmax, which XLA computes on one core of a CPU.
        is_largest = _at(batch.target_out, logits) == logits.max(-1)
        return LossSums(
            loss=loss * real,
            nll=jax.lax.stop_gradient(nll) * real,
            correct=jnp.asarray(is_largest & real, jnp.float32),
            tokens=jnp.asarray(real, jnp.float32),
        )


def loss_sums(
    config: ModelConfig,
    params: Params,
    batch: Batch,
    smoothing: Float[Array, ""] | float,
    key: Key[Array, ""] | None = None,
) -> LossSums:
    """The model's loss on a batch; `key=None` for no dropout."""
    return jax.tree.map(jnp.sum, token_losses(config, params, batch, smoothing, key))


@jax.custom_vjp
def smoothed_cross_entropy(
    logits: Float[Array, "B T V"], labels: Int[Array, "B T"], smoothing: Float[Array, ""] | float
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
    return (loss, log_z - at_label), (logits, log_z, labels, smoothing)


def _at(labels: Int[Array, "B T"], logits: Float[Array, "B T V"]) -> Float[Array, "B T"]:
    """The logit of each label."""
    return jnp.take_along_axis(logits, labels[..., None], -1)[..., 0]


def _backward(residuals, gradients):
    """d loss / d logit = p - q, in one pass over the logits."""
    logits, log_z, labels, smoothing = residuals
    p = jnp.exp(logits - log_z[..., None])
    is_label = labels[..., None] == jnp.arange(logits.shape[-1])
    q = smoothing / logits.shape[-1] + jnp.where(is_label, 1 - smoothing, 0)
    return gradients[0][..., None] * (p - q), None, None


smoothed_cross_entropy.defvjp(_forward, _backward)
