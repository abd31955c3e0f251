"""One model or several as a step function for the search, and a search that pauses.

The models of an ensemble read the same tokens, each with a cache of its own; the probability of the
next token is the mean of theirs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int

from transformer.config import ModelConfig
from transformer.decoding.candidates import Mixture
from transformer.decoding.sampling import Sampling, SamplingState
from transformer.decoding.search import BeamSearch, SearchResult, SearchState
from transformer.model.cached_decoder import (
    DecodeCache,
    DecodingParams,
    decode_step,
    decoding_params,
    lengthened,
    reorder,
)
from transformer.model.params import Params

Caches = tuple[DecodeCache, ...]
"""One for each model."""

Method = BeamSearch | Sampling
State = SearchState | SamplingState

CACHE_LENGTH = 16
"""Tokens that a cache has room for at first."""

SHRINK, SMALLEST = 4, 8
"""A batch shrinks to one part in so many once no more of its sentences are left, but not below so
many sentences: what that would save does not pay for the compiling."""


@dataclass(frozen=True)
class Ensemble:
    """Models that decode together: what is static of them, and their parameters."""

    models: tuple[ModelConfig, ...]
    params: tuple[DecodingParams, ...]


def make_ensemble(members: list[tuple[ModelConfig, Params]], dtype: str) -> Ensemble:
    """Members of one vocabulary, in the precision `decode.dtype`."""
    models = tuple(
        model if dtype == "model" else replace(model, dtype=dtype) for model, _ in members
    )
    prepare = jax.jit(decoding_params, static_argnums=0)
    return Ensemble(models, tuple(prepare(m, p) for m, (_, p) in zip(models, members)))


def ensemble_step(
    models: tuple[ModelConfig, ...],
    params: tuple[DecodingParams, ...],
    caches: Caches,
    tokens: Int[Array, "R"],
) -> tuple[Float[Array, "R V"] | Mixture, Caches]:
    """Logits of one model, or the mean probability of several."""
    steps = [decode_step(*member, tokens) for member in zip(models, params, caches)]
    logits, caches = zip(*steps)
    return logits[0] if len(logits) == 1 else mixture(logits), caches


def mixture(logits: Sequence[Float[Array, "*B V"]]) -> Mixture:
    """The mean of several models' probabilities."""
    each = [jax.nn.softmax(of_one.astype(jnp.float32)) for of_one in logits]
    return Mixture(sum(each) / len(each))


def reorder_all(caches: Caches, rows: Int[Array, "R"]) -> Caches:
    """Each cache's hypotheses in a new order."""
    return tuple(reorder(cache, rows) for cache in caches)


def search_on(ensemble: Ensemble, method: Method, state: State, most: int) -> SearchResult:
    """The search from `state` to its end, with room for at most `most` tokens in the caches.

    It pauses when a cache is full, and when no more than a quarter of the sentences is left, which
    go on in a batch of that size. After a pause the cache has twice the room. So attention looks at
    few empty places, and sentences that are done cost little.
    """
    rows = np.arange(len(state.done))
    state, result = proceed(ensemble, method, state)
    tokens, scores = np.array(result.tokens), np.array(result.scores)
    while not (done := np.asarray(state.done)).all():
        chosen = _those_that_go_on(done)
        state = _resized(most, state, chosen)  # by that name, for the old one to leave the memory
        state, result = proceed(ensemble, method, state)
        rows = rows[chosen]
        tokens[rows], scores[rows] = result.tokens, result.scores
    return SearchResult(tokens, scores)


def with_room(state: State, most: int) -> State:
    """The same state with room for twice as many tokens, if its cache is full."""
    cache = state.cache[0]
    if cache.position < cache.ancestry.shape[-1]:
        return state
    return _resized(most, state, np.arange(len(state.done)))


def _those_that_go_on(done: Bool[np.ndarray, "B"]) -> Int[np.ndarray, "C"]:
    """Sentences that are not done, filled up with others to the size of the next batch."""
    size, going = len(done), np.sum(~done)
    while going <= _fewest(size):
        size //= SHRINK
    return np.argsort(done, kind="stable")[:size]


def _fewest(size: int) -> int:
    """How many sentences are too few for a batch of this size."""
    return size // SHRINK if size // SHRINK >= SMALLEST else 0


def proceed(
    ensemble: Ensemble, method: Method, state: State, tokens: int = 2**30
) -> tuple[State, SearchResult]:
    """The search until it pauses, after so many tokens at most, and what it has found by then.
    Gives up the old state."""
    return _proceed(ensemble.models, method, ensemble.params, state, tokens)


@partial(jax.jit, static_argnums=(0, 1), donate_argnums=3)
def _proceed(
    models: tuple[ModelConfig, ...],
    method: Method,
    params: tuple[DecodingParams, ...],
    state: State,
    tokens: Int[Array, ""] | int,
) -> tuple[State, SearchResult]:
    cache = state.cache[0]
    batch, _, length = cache.ancestry.shape
    room = length - (cache.position - state.position)  # what is left beside a prompt
    until = jnp.minimum(room, state.position + tokens)
    step = partial(ensemble_step, models, params)
    state = method.proceed(step, reorder_all, state, until, _fewest(batch))
    return state, method.finish(state)


@partial(jax.jit, static_argnums=0)
def _resized(most: int, state: State, chosen: Int[Array, "C"]) -> State:
    """The search with the chosen sentences alone, and room for twice as many tokens."""
    state = jax.tree.map(lambda leaf: leaf[chosen] if leaf.ndim else leaf, state)
    length = min(2 * state.cache[0].ancestry.shape[-1], most)
    return state.replace(cache=tuple(lengthened(cache, length) for cache in state.cache))
