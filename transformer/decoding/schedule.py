"""When a search pauses, and whose turn it is: room in caches, sentences that are done or wait.

What is compiled has a fixed number of places for sentences, and of places for tokens in its caches.
A search pauses when a cache is full, which then gets twice the room, and when too many sentences
are done. Where others wait, each takes the place of one that is done, without a pause ("continuous
batching": Yu et al., 2022, https://www.usenix.org/conference/osdi22/presentation/yu).
"""

from collections.abc import Iterable
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
    SearchResult,
    SearchState,
    farthest,
)
from transformer.model.cached_decoder import (
    FIRST_LENGTH,
    halved,
    lengthened,
    places_needed,
    seated,
)
from transformer.model.params import Params

State = SearchState | SamplingState

SHRINK, SMALLEST = 4, 8
"""A batch shrinks to one part in so many once no more of its sentences are left, but not below so
many sentences: what that would save does not pay for the compiling."""

SPARE = 4
"""Half of a cache goes when the other half has so many places more than are needed."""


@struct.dataclass
class Waiting:
    """Sentences that wait for a place, a row each; and those that are done, in the rows of the ones
    that took their places.

    state   their searches
    places  [B]  the place that each took
    taken   how many have been taken, the first ones
    """

    state: SearchState
    places: Array
    taken: Array


def search_on(ensemble: Ensemble, method: Method, state: State) -> SearchResult:
    """The search from `state` to its end.

    It pauses when a cache is full, which gets twice the room, and when no more than a quarter of
    the sentences is left, which go on in a batch of that size. So attention looks at few empty
    places, and sentences that are done cost little.
    """
    rows = np.arange(len(state.done))
    state = with_room(state)  # by that name, here and below, for the old one to leave the memory
    state, result = proceed(ensemble, method, state)
    tokens, scores = np.array(result.tokens), np.array(result.scores)
    while not (done := np.asarray(state.done)).all():
        chosen = _those_that_go_on(done)
        if chosen is not None:
            state = _narrowed(state, chosen)
            rows = rows[chosen]
        state = with_room(state)
        state, result = proceed(ensemble, method, state)
        tokens[rows], scores[rows] = result.tokens, result.scores
    return SearchResult(tokens, scores)


def search_in_turn(
    ensemble: Ensemble, method: BeamSearch, begun: Iterable[SearchState]
) -> list[SearchResult]:
    """The searches of one or more batches of one shape, which have not begun, to their ends.

    The sentences of the first begin together; each other one takes the place of one that is done.
    """
    batches = iter(begun)
    state = next(batches)
    size = len(state.done)
    sentences = np.arange(size)  # the one in each place, counted over all batches
    found: list[SearchResult] = []
    order: list[int] = []  # whose results they are
    for number, batch in enumerate(batches, 1):
        waiting = Waiting(batch, np.zeros(size, np.int32), np.int32(0))
        del batch
        while waiting.taken < size:
            state = _fitted(state)
            state, waiting, result = _proceed(
                ensemble.models, method, ensemble.params, state, waiting, 2**30
            )
        found.append(result)
        for row, place in enumerate(np.asarray(waiting.places)):
            order.append(sentences[place])
            sentences[place] = number * size + row
        del waiting
    state = with_room(state)
    found.append(search_on(ensemble, method, state))
    back = np.argsort([*order, *sentences])
    tokens = np.concatenate([result.tokens for result in found])[back]
    scores = np.concatenate([result.scores for result in found])[back]
    return [
        SearchResult(*both) for both in zip(*(np.split(a, len(found)) for a in (tokens, scores)))
    ]


def with_room(state: State) -> State:
    """The same state with twice the room for tokens, if its cache is full."""
    return _lengthened(state) if _needed(state) > _room(state) else state


def _fitted(state: SearchState) -> SearchState:
    """The same state with twice the room for tokens, or half, as those that are there now need."""
    if _room(state) > FIRST_LENGTH and _needed(state) + SPARE <= _room(state) // 2:
        return _halved(state)
    return with_room(state)


def _those_that_go_on(done: Bool[np.ndarray, "B"]) -> Int[np.ndarray, "C"] | None:
    """Sentences that are not done, filled up with others to the size of the next batch; None where
    that is as large."""
    size, going = len(done), np.sum(~done)
    while going <= _fewest(size):
        size //= SHRINK
    return np.argsort(done, kind="stable")[:size] if size < len(done) else None


def _fewest(size: int) -> int:
    """How many sentences are too few for a batch of this size."""
    return size // SHRINK if size // SHRINK >= SMALLEST else 0


def proceed(
    ensemble: Ensemble, method: Method, state: State, tokens: int = 2**30
) -> tuple[State, SearchResult]:
    """The search until it pauses, after so many tokens at most, and what it has found by then.
    Gives up the old state."""
    state, _, result = _proceed(ensemble.models, method, ensemble.params, state, None, tokens)
    return state, result


def compile_with_room(ensemble: Ensemble, method: Method, state: State, room: int) -> None:
    """Compiles the program of a search from this state whose cache has room for `room` tokens."""
    while _room(state) < room:
        state = _lengthened(state)
    proceed(ensemble, method, with_room(state), tokens=0)


@partial(jax.jit, static_argnums=(0, 1), donate_argnums=(3, 4))
def _proceed(
    models: tuple[ModelConfig, ...],
    method: Method,
    params: tuple[Params, ...],
    state: State,
    waiting: Waiting | None,
    tokens: Int[Array, ""] | int,
) -> tuple[State, Waiting | None, SearchResult]:
    """The search until it pauses, and what it has found by then: of the sentences in the rows of
    `waiting`, if there are any. Then it goes on as long as all places are taken."""
    step, until = partial(ensemble_step, models, params), farthest(state) + tokens

    def goes_on(both: tuple[State, Waiting | None]) -> Bool[Array, ""]:
        state, waiting = both
        if waiting is None:
            is_busy = jnp.sum(~state.done) > _fewest(len(state.done))
        else:
            is_busy = (waiting.taken < len(waiting.places)) | ~state.done.any()
        return is_busy & (_needed(state) <= _room(state)) & (farthest(state) < until)

    def one_token(both: tuple[State, Waiting | None]) -> tuple[State, Waiting | None]:
        state, waiting = both if both[1] is None else seat(*both)
        return method.advance(step, reorder_all, state), waiting

    state, waiting = jax.lax.while_loop(goes_on, one_token, (state, waiting))
    return state, waiting, method.finish(state if waiting is None else waiting.state)


def seat(state: SearchState, waiting: Waiting) -> tuple[SearchState, Waiting]:
    """Each sentence that is done changes places with the next one that waits."""

    def exchange(both: tuple[SearchState, Waiting]) -> tuple[SearchState, Waiting]:
        state, waiting = both
        place, row = state.done.argmax(), waiting.taken
        caches = tuple(
            seated(own, place, other, row) for own, other in zip(state.cache, waiting.state.cache)
        )
        leaving, coming = (one.replace(cache=None) for one in (state, waiting.state))
        gone, come = _row(leaving, place), _row(coming, row)
        return _put(leaving, place, come).replace(cache=caches), Waiting(
            state=_put(coming, row, gone).replace(cache=waiting.state.cache),
            places=waiting.places.at[row].set(place),
            taken=row + 1,
        )

    def is_possible(both: tuple[SearchState, Waiting]) -> Bool[Array, ""]:
        state, waiting = both
        return state.done.any() & (waiting.taken < len(waiting.places))

    return jax.lax.while_loop(is_possible, exchange, (state, waiting))


def _row(tree: SearchState, row: Int[Array, ""]) -> SearchState:
    return jax.tree.map(lambda leaf: jax.lax.dynamic_index_in_dim(leaf, row), tree)


def _put(tree: SearchState, row: Int[Array, ""], one: SearchState) -> SearchState:
    def put(leaf, new):
        return jax.lax.dynamic_update_index_in_dim(leaf, new, row, 0)

    return jax.tree.map(put, tree, one)


@jax.jit
def _narrowed(state: State, chosen: Int[Array, "C"]) -> State:
    """The search with the chosen sentences alone."""
    return jax.tree.map(lambda leaf: leaf[chosen] if leaf.ndim else leaf, state)


@jax.jit
def _lengthened(state: State) -> State:
    return state.replace(cache=tuple(map(lengthened, state.cache)))


@jax.jit
def _halved(state: SearchState) -> SearchState:
    return state.replace(cache=tuple(map(halved, state.cache)))


def _needed(state: State) -> Int[Array, ""]:
    """Tokens that the cache must have room for, the next one among them."""
    cache = state.cache[0]
    return places_needed(cache.position, cache.begins, state.done)


def _room(state: State) -> int:
    return state.cache[0].ancestry.shape[-1]
