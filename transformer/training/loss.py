"""Label-smoothed cross-entropy (section 5.4), as sums that are divided once, at the end.

Logits are by far the largest arrays of training. So they and their gradients are computed for some
positions at a time; those of all positions never exist together.
"""

from functools import partial

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array
from jaxtyping import Bool, Float, Int, Key

from transformer.config import ModelConfig
from transformer.model.batch import PAD, Batch
from transformer.model.encoder_decoder import logits, output_states
from transformer.model.params import OutputLayer, Params, output_layer

POSITIONS = 2048
"""Most target positions whose logits a device computes at a time, but at least one per sentence."""
POSITIONS_ON_GPU = 8192
"""The same on a GPU, where products of fewer positions leave processors idle."""


class LossSums(struct.PyTreeNode):
    """Sums over the target tokens that are not padding; float32 scalars unless stated otherwise.

    loss     label-smoothed cross-entropy, in nats: what training minimises
    nll      negative log-likelihood of the reference, in nats: exp(nll / tokens) is the perplexity
    correct  tokens whose logit was the largest
    tokens   number of tokens

    Sums of micro-batches, devices and processes add up; means with different token counts do not.
    """

    loss: Array
    nll: Array
    correct: Array
    tokens: Array


def loss_sums(
    config: ModelConfig,
    params: Params,
    batch: Batch,
    smoothing: Float[Array, ""] | float,
    key: Key[Array, ""] | None = None,
    devices: int = 1,
    r_drop: Float[Array, ""] | float | None = None,
) -> LossSums:
    """The model's loss on a batch; `key=None` for no dropout.

    The batch is sharded over the devices. With `r_drop` each sentence passes through the model
    twice, with different dropout; the sums are means of both passes, and `loss` includes half the
    divergence between them, times `r_drop`. Only `loss` has a gradient.
    """
    if r_drop is not None:  # adjacent rows, so that both passes are on one device
        batch = jax.tree.map(lambda rows: jnp.repeat(rows, 2, axis=0), batch)
    x = output_states(config, params, batch, key)
    positions = POSITIONS_ON_GPU if config.accelerator == "gpu" else POSITIONS
    output, labels = output_layer(params), batch.target_out
    sums = _sums(devices, positions, output, x, labels, smoothing, r_drop)
    return sums if r_drop is None else jax.tree.map(lambda both: both / 2, sums)


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _sums(
    devices: int,
    positions: int,
    output: OutputLayer,
    x: Float[Array, "B T D"],
    labels: Int[Array, "B T"],
    smoothing: Float[Array, ""] | float,
    r_drop: Float[Array, ""] | float | None,
) -> LossSums:
    """The sums, computed piece by piece."""
    return _sums_forward(devices, positions, output, x, labels, smoothing, r_drop)[0]


def _sums_forward(devices, positions, output, x, labels, smoothing, r_drop):
    """The sums and the gradients of the loss, which would need the logits once more."""

    def device_sums(output, x, labels):
        sums = jax.tree.map(jnp.sum, _losses(output, x, labels, smoothing, r_drop))
        return sums.loss, sums

    differentiate = jax.grad(device_sums, argnums=(0, 1), has_aux=True)

    def add_piece(total, piece):
        # Each device has its own sums: devices communicate once, after all pieces.
        (output_gradient, x_gradient), sums = jax.vmap(differentiate, in_axes=(None, 0, 0))(
            output, *piece
        )
        return jax.tree.map(jnp.add, total, (sums, output_gradient)), x_gradient

    no_sums = LossSums(*jnp.zeros((4, devices)))
    no_gradient = jax.tree.map(lambda leaf: jnp.zeros((devices, *leaf.shape)), output)
    passes = 1 if r_drop is None else 2
    pieces = _pieces(x, labels, devices, positions, passes)
    total, x_gradients = jax.lax.scan(add_piece, (no_sums, no_gradient), pieces)
    sums, output_gradient = jax.tree.map(lambda leaf: leaf.sum(0), total)
    return sums, (output_gradient, _joined(x_gradients, x.shape))


def _sums_backward(devices, positions, gradients, wanted):
    output_gradient, x_gradient = jax.tree.map(
        lambda gradient: (gradient * wanted.loss).astype(gradient.dtype), gradients
    )
    return output_gradient, x_gradient, None, None, None


_sums.defvjp(_sums_forward, _sums_backward)


def _pieces(
    x: Float[Array, "B T D"],
    labels: Int[Array, "B T"],
    devices: int,
    positions: int,
    passes: int = 1,
) -> tuple[Float[Array, "C devices passes N D"], Int[Array, "C devices passes N"]]:
    """Both split along T into C pieces, each sharded over the devices as the batch is; adjacent
    rows are passes of the same sentence."""
    rows, length = labels.shape
    least = min(length, -(-rows * length // (devices * positions)))
    count = min(range(least, 2 * least), key=lambda count: -length % count)  # padding

    def cut(array):
        rest = array.shape[2:]
        padded = jnp.pad(array, [(0, 0), (0, -length % count)] + [(0, 0)] * len(rest))
        by_pass = padded.reshape(devices, rows // devices // passes, passes, count, -1, *rest)
        pieces = jnp.moveaxis(by_pass, (3, 2), (0, 2))
        return pieces.reshape(count, devices, passes, -1, *rest)

    return cut(x), cut(labels)


def _joined(
    pieces: Float[Array, "C devices passes N ..."], shape: tuple[int, ...]
) -> Float[Array, "B T ..."]:
    """The pieces joined again, without padding."""
    count, devices, passes = pieces.shape[:3]
    rows, length, *rest = shape
    cut = pieces.reshape(count, devices, passes, rows // devices // passes, -1, *rest)
    return jnp.moveaxis(cut, (0, 2), (3, 2)).reshape(rows, -1, *rest)[:, :length]


def _losses(
    output: OutputLayer,
    x: Float[Array, "B T D"],
    labels: Int[Array, "B T"],
    smoothing: Float[Array, ""] | float,
    r_drop: Float[Array, ""] | float | None = None,
) -> LossSums:
    """The summands of each position; with `r_drop` the two rows are passes."""
    scores = logits(output, x)
    with jax.named_scope("loss"):
        real = labels != PAD
        loss, nll, is_largest = smoothed_cross_entropy(scores, labels, smoothing)
        if r_drop is not None:
            loss += r_drop * divergence(scores) / 2
        return LossSums(
            loss=loss * real,
            nll=nll * real,
            correct=jnp.asarray(is_largest & real, jnp.float32),
            tokens=jnp.asarray(real, jnp.float32),
        )


@jax.custom_vjp
def divergence(logits: Float[Array, "2 N V"]) -> Float[Array, "N"]:
    """The mean of both Kullback-Leibler divergences between the distributions of two passes (Liang
    et al., 2021, equation 2): sum_v (p_v - q_v) (log p_v - log q_v) / 2."""
    return _divergence_forward(logits)[0]


def _divergence_forward(logits):
    log_z = jax.nn.logsumexp(logits, axis=-1)
    log_p = logits - log_z[..., None]
    divergences = (jnp.exp(log_p) * (log_p - log_p[::-1])).sum(-1)
    return divergences.mean(0), (logits, log_z, divergences)


def _divergence_backward(residuals, gradient):
    """d / d logit = (p (log p - log q - KL(p|q)) + p - q) / 2, in one pass over the logits."""
    logits, log_z, divergences = residuals
    log_p = logits - log_z[..., None]
    p, log_ratio = jnp.exp(log_p), log_p - log_p[::-1]
    return (gradient[:, None] / 2 * (p * (log_ratio - divergences[..., None]) + p - p[::-1]),)


divergence.defvjp(_divergence_forward, _divergence_backward)


@jax.custom_vjp
def smoothed_cross_entropy(
    logits: Float[Array, "B T V"], labels: Int[Array, "B T"], smoothing: Float[Array, ""] | float
) -> tuple[Float[Array, "B T"], Float[Array, "B T"], Bool[Array, "B T"]]:
    """Cross-entropy with q = (1 - smoothing) * onehot(label) + smoothing / V, and with onehot; and
    whether the label's logit is the largest.

    -sum_v q_v log p_v = log Z - (1 - smoothing) * logit_label - smoothing * mean_v logit_v, so that
    no distribution over V is stored. Only the first result has a gradient.
    """
    return _forward(logits, labels, smoothing)[0]


def _forward(logits, labels, smoothing):
    log_z, largest, mean = jax.lax.platform_dependent(
        logits, cpu=_summary, default=_summary_in_one_pass
    )
    at_label = jnp.take_along_axis(logits, labels[..., None], -1)[..., 0]
    loss = log_z - (1 - smoothing) * at_label - smoothing * mean
    return (loss, log_z - at_label, at_label == largest), (logits, log_z, labels, smoothing)


def _summary(logits: Float[Array, "B T V"]) -> tuple[Float[Array, "B T"], ...]:
    """log sum_v exp logit_v, and the largest and the mean logit."""
    return jax.nn.logsumexp(logits, axis=-1), logits.max(-1), logits.mean(-1)


def _summary_in_one_pass(logits: Float[Array, "B T V"]) -> tuple[Float[Array, "B T"], ...]:
    """The same, reading the logits once: for devices that are limited by memory and not by exp.

    The sum of exp is kept relative to the largest logit so far (Milakov and Gimelshein, 2018,
    https://arxiv.org/abs/1805.02867).
    """

    def combine(a, b):
        largest = jnp.maximum(a[0], b[0])
        shares = a[1] * jnp.exp(a[0] - largest) + b[1] * jnp.exp(b[0] - largest)
        return largest, shares, a[2] + b[2]

    none = (jnp.finfo(jnp.float32).min, 0.0, 0.0)
    each = (logits, jnp.ones_like(logits), logits)
    largest, shares, total = jax.lax.reduce(each, none, combine, (logits.ndim - 1,))
    return largest + jnp.log(shares), largest, total / logits.shape[-1]


def _backward(residuals, gradients):
    """d loss / d logit = p - q, in one pass over the logits."""
    logits, log_z, labels, smoothing = residuals
    p = jnp.exp(logits - log_z[..., None])
    is_label = labels[..., None] == jnp.arange(logits.shape[-1])
    q = smoothing / logits.shape[-1] + jnp.where(is_label, 1 - smoothing, 0)
    return gradients[0][..., None] * (p - q), None, None


smoothed_cross_entropy.defvjp(_forward, _backward)
