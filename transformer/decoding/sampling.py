"""Sampling from a model's probabilities, another `Method` of a search.

W samples of each of B sentences are drawn together. They depend on the sentence's key and not on
other sentences.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array
from jaxtyping import Float, Int, Key

from transformer.config import DecodeConfig
from transformer.decoding.candidates import as_logits, without
from transformer.decoding.constraints import apply_constraints, has_constraints
from transformer.decoding.search import (
    Cache,
    Reorder,
    SearchResult,
    Step,
    appended,
)
from transformer.model.batch import BOS, PAD

ROUNDING = 1e-6
"""The rounding error of a sum of probabilities in float32: 0.5 and 0.3 are 0.8, so that top_p 0.8
allows no further token."""


@struct.dataclass
class Choice:
    """The distribution to sample from: float32 and int32 scalars, arguments of compiled programs.

    temperature  divides the logits; 0: the likeliest token
    top_k        number of likeliest tokens to sample from; 0: all
    top_p        and of these the likeliest that together have at least this probability
    end          the token that ends a text, or -1 for none
    """

    temperature: Array
    top_k: Array
    top_p: Array
    end: Array


class SamplingState(struct.PyTreeNode):
    """Sampling between two tokens, for B sentences of W samples, at most L tokens each.

    position   [B]        tokens drawn so far
    last       [B, W]     the token drawn last, or the last one of the prompt
    open       [B, W, L]  the samples, PAD after their end or `position`
    log_probs  [B, W]     the summed log-probabilities of their tokens, the model's own
    ended      [B, W]     samples that have ended
    limits     [B]        most tokens for each sentence
    done       [B]        sentences all of whose samples have ended, or reached the limit
    keys       [B]        random keys
    choice     the distribution to sample from
    cache      the step function's own, with B * W rows
    """

    position: Array
    last: Array
    open: Array
    log_probs: Array
    ended: Array
    limits: Array
    done: Array
    keys: Array
    choice: Choice
    cache: Cache


def start_sampling(
    choice: Choice,
    cache: Cache,
    limits: Int[Array, "B"],
    last: Int[Array, "B"],
    keys: Key[Array, "B"],
    size: tuple[int, int],
) -> SamplingState:
    """The state before the first token, for `size` = (samples of each prompt, tokens of each at
    most); `last` is the token to read first."""
    samples, max_length = size
    shape = (limits.shape[0], samples)
    return SamplingState(
        position=jnp.zeros_like(limits),
        last=jnp.tile(last[:, None], samples),
        open=jnp.zeros((*shape, max_length), jnp.int32),
        log_probs=jnp.zeros(shape),
        ended=jnp.zeros(shape, bool),
        limits=limits,
        done=limits <= 0,
        keys=keys,
        choice=choice,
        cache=cache,
    )


@dataclass(frozen=True)
class Sampling:
    """Sampling as a `Method`; it uses the constraints of the settings."""

    settings: DecodeConfig

    def advance(self, step: Step, reorder: Reorder, state: SamplingState) -> SamplingState:
        """The state after one more token of each sample; samples are never reordered."""
        return draw(self.settings, step, state)

    def finish(self, state: SamplingState) -> SearchResult:
        """The samples, not sorted; scores are their log-probabilities under the model."""
        return SearchResult(state.open, state.log_probs)


def draw(settings: DecodeConfig, step: Step, state: SamplingState) -> SamplingState:
    """One token for every sample that has not ended."""
    given, cache = step(state.cache, state.last.reshape(-1))
    logits = as_logits(given).reshape(*state.last.shape, -1)
    allowed = without(logits, jnp.arange(logits.shape[-1]), {PAD, BOS})
    if has_constraints(settings):
        log_probs = jax.nn.log_softmax(allowed)
        fewer = apply_constraints(settings, state.open, state.position, log_probs)
        allowed = jnp.where((fewer > -jnp.inf).any(-1, keepdims=True), fewer, allowed)
    allowed = restricted(state.choice, allowed)
    keys = jax.vmap(jax.random.fold_in)(state.keys, state.position)
    drawn = jax.vmap(lambda key, logits: jax.random.categorical(key, logits))(keys, allowed)
    token = jnp.where(state.choice.temperature > 0, drawn, allowed.argmax(-1))
    going = ~(state.ended | state.done[:, None])
    log_prob = jnp.take_along_axis(jax.nn.log_softmax(logits), token[..., None], -1)[..., 0]
    token = jnp.where(going, token, 0)
    ended = state.ended | (going & (token == state.choice.end))
    position = state.position + 1
    return state.replace(
        position=position,
        last=token,
        open=appended(state.open, state.position, token),
        log_probs=state.log_probs + jnp.where(going, log_prob, 0),
        ended=ended,
        done=state.done | ended.all(1) | (position >= state.limits),
        cache=cache,
    )


def restricted(choice: Choice, logits: Float[Array, "B W V"]) -> Float[Array, "B W V"]:
    """Logits over the temperature, minus infinity for tokens that may not be drawn.

    top-k first (Fan et al., 2018), then top-p of these (Holtzman et al., 2020). Tokens that are as
    likely as the last allowed one are allowed too.
    """
    logits = logits - logits.max(-1, keepdims=True)  # so that no temperature makes them infinite
    logits = logits / jnp.where(choice.temperature > 0, choice.temperature, 1)
    is_free = (choice.top_k == 0) & (choice.top_p >= 1)
    return jax.lax.cond(is_free, lambda: logits, lambda: _among_the_likeliest(choice, logits))


def _among_the_likeliest(choice: Choice, logits: Float[Array, "B W V"]) -> Float[Array, "B W V"]:
    ranked = -jnp.sort(-logits, axis=-1)
    rank = jnp.arange(logits.shape[-1])
    k = jnp.where(choice.top_k > 0, choice.top_k, logits.shape[-1])
    ranked = jnp.where(rank < k, ranked, -jnp.inf)
    probabilities = jax.nn.softmax(ranked)
    before = jnp.cumsum(probabilities, -1) - probabilities
    enough = choice.top_p - ROUNDING
    within = (rank == 0) | (before < enough) | (choice.top_p >= 1)
    is_in = within & (ranked > -jnp.inf)
    least = jnp.where(is_in, ranked, jnp.inf).min(-1, keepdims=True)
    return jnp.where(logits >= least, logits, -jnp.inf)
