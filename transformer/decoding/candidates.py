"""Which tokens a hypothesis may go on with best, and how likely each is."""

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array
from jaxtyping import Float, Int

from transformer.model.batch import BOS, PAD


@struct.dataclass
class Mixture:
    """The mean of several models' probabilities, [R, V] float32: what a step may return in place of
    logits. The logarithm is taken of the few that are chosen."""

    probabilities: Array


def as_logits(given: Array | Mixture) -> Array:
    """Logits, float32, of what a step returns."""
    if isinstance(given, Mixture):
        return jnp.log(given.probabilities)
    return given.astype(jnp.float32)


def best_continuations(
    totals: Float[Array, "B W"],
    each: Float[Array, "B W C"],
    tokens: Int[Array, "B W C"],
    count: int,
) -> tuple[Float[Array, "B N"], Int[Array, "B N"], Int[Array, "B N"]]:
    """The `count` best (hypothesis, token) pairs: total log-probability, hypothesis, token.

    They are among the best tokens of each hypothesis, which are quicker to find.
    """
    batch = len(totals)
    candidates = (totals[..., None] + each).reshape(batch, -1)
    best, index = jax.lax.top_k(candidates, min(count, candidates.shape[1]))
    origins = index // each.shape[-1]
    return best, origins, jnp.take_along_axis(tokens.reshape(batch, -1), index, 1)


def likeliest(
    logits: Float[Array, "B W V"], count: int, forbidden: tuple[int, ...] = (), width: int = 64
) -> tuple[Float[Array, "B W C"], Int[Array, "B W C"]]:
    """The `count` largest log-probabilities, largest first, and their tokens: never PAD, BOS or one
    that is forbidden.

    Those have their share of the softmax, so that scores are the model's.
    """
    chunks = _chunks(without(logits, forbidden), width)
    maxima = jax.lax.optimization_barrier(chunks.max(-1))  # XLA would read all logits for `most`
    most = (logits if forbidden else maxima).max(-1, keepdims=True)  # of all, for the softmax
    best, tokens = _largest_in(chunks, maxima, count)
    log_z = jnp.log(jnp.exp(logits - most).sum(-1, keepdims=True))
    return (best - most) - log_z, tokens


def largest(
    scores: Float[Array, "B W V"], count: int, width: int = 64
) -> tuple[Float[Array, "B W C"], Int[Array, "B W C"]]:
    """The `count` largest scores, largest first, and their tokens: never PAD or BOS."""
    chunks = _chunks(scores, width)
    return _largest_in(chunks, chunks.max(-1), count)


def _chunks(logits: Float[Array, "B W V"], width: int) -> Float[Array, "B W P width"]:
    filling = ((0, 0), (0, 0), (0, -logits.shape[-1] % width))
    chunks = jnp.pad(logits, filling, constant_values=-jnp.inf)
    return chunks.reshape(*logits.shape[:2], -1, width)


def _largest_in(
    chunks: Float[Array, "B W P width"], maxima: Float[Array, "B W P"], count: int
) -> tuple[Float[Array, "B W C"], Int[Array, "B W C"]]:
    """The largest are in the chunks of tokens with the `count` largest maxima, which are soon
    found."""
    width = chunks.shape[-1]
    maxima = maxima.at[..., 0].set(text_alone(chunks[..., 0, :], jnp.arange(width)).max(-1))
    _, chosen = jax.lax.top_k(maxima, min(count, maxima.shape[-1]))
    chosen = chosen.sort(-1)  # so that of equal logits the first wins, as in lax.top_k
    candidates = jnp.take_along_axis(chunks, chosen[..., None], 2)
    candidates = text_alone(candidates, chosen[..., None] * width + jnp.arange(width))
    best, place = jax.lax.top_k(candidates.reshape(*chunks.shape[:2], -1), count)
    return best, jnp.take_along_axis(chosen, place // width, 2) * width + place % width


def text_alone(logits: Array, tokens: Array) -> Array:
    """The logits, out of reach where the token is PAD or BOS."""
    return jnp.where((tokens == PAD) | (tokens == BOS), -jnp.inf, logits)


def without(logits: Array, forbidden: tuple[int, ...]) -> Array:
    """The logits, out of reach at these tokens."""
    return logits.at[..., jnp.array(forbidden)].set(-jnp.inf) if forbidden else logits
