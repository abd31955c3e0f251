"""Which continuations of a sentence's hypotheses are the best, and how likely each is."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array
from jaxtyping import Float, Int

from transformer.model.batch import BOS, PAD

IMPOSSIBLE = -1e9
"""The log-probability of a hypothesis that does not exist."""

WIDTH = 64
"""Tokens of a chunk of the vocabulary. The best tokens are in the chunks with the largest maxima,
which are quickly found."""


@struct.dataclass
class AveragedProbabilities:
    """The mean of several models' probabilities, [R, V] float32, which a step may return instead of
    logits. The logarithm is taken of the chosen ones alone."""

    probabilities: Array


def as_logits(given: Array | AveragedProbabilities) -> Array:
    """The result of a step as logits, float32."""
    if isinstance(given, AveragedProbabilities):
        return jnp.log(given.probabilities)
    return given.astype(jnp.float32)


class Continuations(NamedTuple):
    """Every hypothesis with every next token; log-probabilities are computed of few of them.

    values  [B, W, V]  for example logits
    maxima  [B, W, P]  the largest value of each chunk of WIDTH tokens
    shared  [B, W] each, of a hypothesis, for example its log-probability
    score   from a value and `shared` to the log-probability; it grows with the value
    tokens  [B, V]  the tokens of the values, in ascending order; None: 0, 1, ...
    """

    values: Array
    maxima: Array
    shared: tuple[Array, ...]
    score: Callable[..., Array]
    tokens: Array | None = None


def of_logits(totals: Float[Array, "B W"], logits: Float[Array, "B W V"]) -> Continuations:
    """Continuations of hypotheses with these log-probabilities, the next token by its softmax."""
    maxima = _maxima(logits)
    most = maxima.max(-1)
    log_z = jnp.log(jnp.exp(logits - most[..., None]).sum(-1))
    return Continuations(
        logits,
        maxima,
        (totals, most, log_z),
        lambda x, total, most, log_z: total + (x - most - log_z),
    )


def of_probabilities(
    totals: Float[Array, "B W"], probabilities: Float[Array, "B W V"]
) -> Continuations:
    """The same of the next token's probabilities."""
    return Continuations(
        probabilities,
        _maxima(probabilities),
        (totals,),
        lambda p, total: total + jnp.log(jnp.maximum(p, 0)),
    )


def of_log_probs(totals: Float[Array, "B W"], log_probs: Float[Array, "B W V"]) -> Continuations:
    """The same of the next token's log-probabilities."""
    return Continuations(log_probs, _maxima(log_probs), (totals,), lambda x, total: total + x)


def best(
    continuations: Continuations, count: int, forbidden: tuple[int, ...] = ()
) -> tuple[Float[Array, "B N"], Int[Array, "B N"], Int[Array, "B N"]]:
    """The `count` best, or all if there are fewer, best first: log-probability, hypothesis, token.
    PAD, BOS and forbidden tokens have minus infinity.

    Ties are broken by hypothesis index, then by token id.
    """
    values, maxima, shared, score, names = continuations
    batch, beam, parts = maxima.shape
    hidden = {PAD, BOS, *forbidden}
    allowed = values.shape[-1] - (len(hidden) if names is None else 0)
    count = min(count, beam * allowed)
    # A maximum may be that of a hidden token, so more chunks are searched.
    looked_at = count + beam * len({token // WIDTH for token in hidden})
    of_chunks = score(maxima, *(array[..., None] for array in shared)).reshape(batch, -1)
    _, chosen = jax.lax.top_k(of_chunks, min(looked_at, beam * parts))
    chosen = chosen.sort(-1)
    origins, part = chosen // parts, chosen % parts
    chunks = _chunks(values).reshape(batch, beam * parts, WIDTH)
    found = score(
        jnp.take_along_axis(chunks, chosen[..., None], 1),
        *(jnp.take_along_axis(array, origins, 1)[..., None] for array in shared),
    )
    tokens = part[..., None] * WIDTH + jnp.arange(WIDTH)
    if names is not None:
        places = tokens.reshape(batch, -1)
        tokens = jnp.take_along_axis(names, places, 1, mode="clip").reshape(tokens.shape)
    totals, place = jax.lax.top_k(without(found, tokens, hidden).reshape(batch, -1), count)
    return (
        totals,
        jnp.take_along_axis(origins, place // WIDTH, 1),
        jnp.take_along_axis(tokens.reshape(batch, -1), place, 1),
    )


def of_token(continuations: Continuations, tokens: Int[Array, "B"]) -> Float[Array, "B W"]:
    """The log-probability of each hypothesis followed by the token of its sentence."""
    names = continuations.tokens
    places = tokens if names is None else (names == tokens[:, None]).argmax(1)
    values = jnp.take_along_axis(continuations.values, places[:, None, None], 2)[..., 0]
    return continuations.score(values, *continuations.shared)


def without(values: Array, tokens: Array, hidden: set[int]) -> Array:
    """The values, minus infinity at hidden tokens."""
    is_hidden = jnp.isin(tokens, jnp.array(sorted(hidden)))
    return jnp.where(is_hidden, -jnp.inf, values)


def _maxima(values: Float[Array, "B W V"]) -> Float[Array, "B W P"]:
    # A barrier, so that XLA does not read all values again for the results of these.
    return jax.lax.optimization_barrier(_chunks(values).max(-1))


def _chunks(values: Float[Array, "B W V"]) -> Float[Array, "B W P C"]:
    filling = ((0, 0), (0, 0), (0, -values.shape[-1] % WIDTH))
    filled = jnp.pad(values, filling, constant_values=-jnp.inf)
    return filled.reshape(*values.shape[:2], -1, WIDTH)
