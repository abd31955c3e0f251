"""Continuous batching: pending sentences take the slots of finished ones.

A compiled search has a fixed number of slots for sentences, and of tokens in its caches. It pauses
when a cache is full, which then doubles, and when few of its sentences are unfinished. While others
are pending, each is admitted to the slot of a finished one, without a pause (Yu et al., 2022,
https://www.usenix.org/conference/osdi22/presentation/yu).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array
from jaxtyping import Bool, Int

from transformer.config import ModelConfig
from transformer.decoding.ensemble import Ensemble, ensemble_step, reorder_all
from transformer.decoding.sampling import SamplingState
from transformer.decoding.search import (
    BeamSearch,
    Method,
    Reorder,
    SearchResult,
    SearchState,
    Step,
    farthest,
    search,
)
from transformer.model import cached_decoder
from transformer.model.cached_decoder import FIRST_CAPACITY, required_capacity
from transformer.model.params import Params

State = SearchState | SamplingState

SHRINK, SMALLEST = 4, 8
"""A batch shrinks to a fourth once no more of its sentences are unfinished, but not below eight
sentences: what that would save does not pay for the compiling."""

SPARE = 4
"""A cache is halved when one half has at least this many more tokens than are required."""


class Queue(struct.PyTreeNode):
    """Pending sentences, a row each; finished ones are stored in the rows of those that took their
    slots.

    state     their searches
    slots     [B]  the slot that each took
    admitted  how many have been admitted, the first ones
    """

    state: SearchState
    slots: Array
    admitted: Array


def search_to_end(ensemble: Ensemble, method: Method, state: State) -> SearchResult:
    """The search from `state` to its end.

    It pauses when a cache is full, which doubles, and when at most a fourth of the sentences is
    unfinished: these continue in a batch of that size. So attention reads few empty slots of the
    cache, and finished sentences cost little.
    """
    rows = np.arange(len(state.done))
    state = ensure_capacity(state)  # rebind `state`, here and below: the old buffers can be freed
    state, result = search_until_pause(ensemble, method, state)
    tokens, scores = np.array(result.tokens), np.array(result.scores)
    while not (done := np.asarray(state.done)).all():
        chosen = _unfinished(done)
        if chosen is not None:
            state = _take(state, chosen)
            rows = rows[chosen]
        state = ensure_capacity(state)
        state, result = search_until_pause(ensemble, method, state)
        tokens[rows], scores[rows] = result.tokens, result.scores
    return SearchResult(tokens, scores)


def search_continuously(
    ensemble: Ensemble, method: BeamSearch, states: Iterable[SearchState]
) -> list[SearchResult]:
    """The searches of one or more batches of one shape, from their starts to their ends.

    The sentences of the first batch start together; each other one is admitted to the slot of a
    finished sentence.
    """
    batches = iter(states)
    state = next(batches)
    size = len(state.done)
    sentences = np.arange(size)  # the one in each slot, counted over all batches
    found: list[SearchResult] = []
    order: list[int] = []  # the sentences that the results are of
    for number, batch in enumerate(batches, 1):
        queue = Queue(batch, np.zeros(size, np.int32), np.int32(0))
        del batch
        while queue.admitted < size:
            state = _fit_capacity(state)
            state, queue, result = _search(
                ensemble.models, method, ensemble.params, state, queue, 2**30
            )
        found.append(result)
        for row, slot in enumerate(np.asarray(queue.slots)):
            order.append(sentences[slot])
            sentences[slot] = number * size + row
        del queue
    state = ensure_capacity(state)
    found.append(search_to_end(ensemble, method, state))
    back = np.argsort([*order, *sentences])
    tokens = np.concatenate([result.tokens for result in found])[back]
    scores = np.concatenate([result.scores for result in found])[back]
    return [
        SearchResult(*both) for both in zip(*(np.split(a, len(found)) for a in (tokens, scores)))
    ]


def ensure_capacity(state: State) -> State:
    """The same state, with twice the capacity if its cache is full."""
    return _grow(state) if _required(state) > _capacity(state) else state


def _fit_capacity(state: State) -> State:
    """The same state with twice or half the capacity, as its sentences require now."""
    if _capacity(state) > FIRST_CAPACITY and _required(state) + SPARE <= _capacity(state) // 2:
        return _shrink(state)
    return ensure_capacity(state)


def _unfinished(done: Bool[np.ndarray, "B"]) -> Int[np.ndarray, "C"] | None:
    """The unfinished sentences, filled up with others to the size of the next batch; None where
    that is as large."""
    size, going = len(done), np.sum(~done)
    while going <= _fewest(size):
        size //= SHRINK
    return np.argsort(done, kind="stable")[:size] if size < len(done) else None


def _fewest(size: int) -> int:
    """How many unfinished sentences are too few for a batch of this size."""
    return size // SHRINK if size // SHRINK >= SMALLEST else 0


def search_until_pause(
    ensemble: Ensemble, method: Method, state: State, tokens: int = 2**30
) -> tuple[State, SearchResult]:
    """The search until it pauses, after `tokens` tokens at most, and what it has found by then.
    Gives up the old state."""
    state, _, result = _search(ensemble.models, method, ensemble.params, state, None, tokens)
    return state, result


def compile_capacity(ensemble: Ensemble, method: Method, state: State, capacity: int) -> None:
    """Compiles the program of a search from this state whose cache holds `capacity` tokens."""
    while _capacity(state) < capacity:
        state = _grow(state)
    search_until_pause(ensemble, method, ensure_capacity(state), tokens=0)


@partial(jax.jit, static_argnums=(0, 1), donate_argnums=(3, 4))
def _search(
    models: tuple[ModelConfig, ...],
    method: Method,
    params: tuple[Params, ...],
    state: State,
    queue: Queue | None,
    tokens: Int[Array, ""] | int,
) -> tuple[State, Queue | None, SearchResult]:
    """The search until it pauses, and what it has found by then: of the sentences in the rows of
    the queue, if there is one. Then it continues as long as all slots are taken."""
    step, until = partial(ensemble_step, models, params), farthest(state) + tokens

    def is_within(state: State) -> Bool[Array, ""]:
        return (_required(state) <= _capacity(state)) & (farthest(state) < until)

    if queue is None:
        few = _fewest(len(state.done))
        state = search(
            method, step, reorder_all, state, lambda s: (jnp.sum(~s.done) > few) & is_within(s)
        )
        return state, None, method.finish(state)

    def is_busy(both: tuple[SearchState, Queue]) -> Bool[Array, ""]:
        state, queue = both
        return ((queue.admitted < len(queue.slots)) | ~state.done.any()) & is_within(state)

    admitting = _Admitting(method)
    both = search(admitting, step, reorder_all, (state, queue), is_busy)
    return *both, admitting.finish(both)


@dataclass(frozen=True)
class _Admitting:
    """A method that admits pending sentences before each token."""

    method: Method

    def advance(
        self, step: Step, reorder: Reorder, both: tuple[SearchState, Queue]
    ) -> tuple[SearchState, Queue]:
        state, queue = admit(*both)
        return self.method.advance(step, reorder, state), queue

    def finish(self, both: tuple[SearchState, Queue]) -> SearchResult:
        return self.method.finish(both[1].state)


def admit(state: SearchState, queue: Queue) -> tuple[SearchState, Queue]:
    """Each finished sentence changes places with the next pending one."""

    def exchange(both: tuple[SearchState, Queue]) -> tuple[SearchState, Queue]:
        state, queue = both
        slot, row = state.done.argmax(), queue.admitted
        caches = tuple(
            cached_decoder.admit(own, slot, other, row)
            for own, other in zip(state.cache, queue.state.cache)
        )
        leaving, coming = (one.replace(cache=None) for one in (state, queue.state))
        gone, come = _row(leaving, slot), _row(coming, row)
        return _put(leaving, slot, come).replace(cache=caches), Queue(
            state=_put(coming, row, gone).replace(cache=queue.state.cache),
            slots=queue.slots.at[row].set(slot),
            admitted=row + 1,
        )

    def is_possible(both: tuple[SearchState, Queue]) -> Bool[Array, ""]:
        state, queue = both
        return state.done.any() & (queue.admitted < len(queue.slots))

    return jax.lax.while_loop(is_possible, exchange, (state, queue))


def _row(tree: SearchState, row: Int[Array, ""]) -> SearchState:
    return jax.tree.map(lambda leaf: jax.lax.dynamic_index_in_dim(leaf, row), tree)


def _put(tree: SearchState, row: Int[Array, ""], one: SearchState) -> SearchState:
    def put(leaf, new):
        return jax.lax.dynamic_update_index_in_dim(leaf, new, row, 0)

    return jax.tree.map(put, tree, one)


@jax.jit
def _take(state: State, chosen: Int[Array, "C"]) -> State:
    """The search with the chosen sentences alone."""
    return jax.tree.map(lambda leaf: leaf[chosen] if leaf.ndim else leaf, state)


@jax.jit
def _grow(state: State) -> State:
    return state.replace(cache=tuple(map(cached_decoder.grow, state.cache)))


@jax.jit
def _shrink(state: SearchState) -> SearchState:
    return state.replace(cache=tuple(map(cached_decoder.shrink, state.cache)))


def _required(state: State) -> Int[Array, ""]:
    """Tokens that the cache must have room for, the next one among them."""
    cache = state.cache[0]
    return required_capacity(cache.position, cache.begins, state.done)


def _capacity(state: State) -> int:
    return state.cache[0].ancestry.shape[-1]
