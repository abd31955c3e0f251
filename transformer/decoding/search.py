"""Greedy and beam search over any step function; knows no Transformer.

A step function reads one token per row and returns the logits of the next one:

    step(cache, tokens [R]) -> (logits [R, V], cache)

A search is a value: `start` makes it, `search` advances it, again after every pause, and `finish`
reads its hypotheses. `cache` is any tree; `reorder(cache, rows [R])` returns it with its rows taken
in that order.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array
from jaxtyping import Bool, Float, Int

from transformer.config import DecodeConfig
from transformer.decoding import candidates, constraints
from transformer.decoding.candidates import IMPOSSIBLE, AveragedProbabilities
from transformer.decoding.terms import Terms, preference, with_terms
from transformer.model.batch import BOS, EOS, PAD

Cache = Any
Step = Callable[[Cache, Int[Array, "R"]], tuple[Float[Array, "R V"] | AveragedProbabilities, Cache]]
Reorder = Callable[[Cache, Int[Array, "R"]], Cache]
State = TypeVar("State", bound=Any)


class SearchState(struct.PyTreeNode):
    """A search between two tokens, for B sentences of W hypotheses, at most L tokens each.

    position    [B]        tokens chosen so far
    last        [B, W]     the token chosen last, BOS at first
    open        [B, W, L]  unfinished hypotheses, PAD after `position`
    log_probs   [B, W]     their summed log-probabilities
    ended       [B, K, L]  the best hypotheses that ended in EOS, best first; K is W or more
    scores      [B, K]     their normalised scores, IMPOSSIBLE for missing ones
    limits      [B]        most tokens of each sentence, EOS included
    done        [B]        sentences whose result is final
    cache       the step function's own, with B * W rows
    prefix      [B, P]     the beginnings of the translations, then PAD; or None
    shortlist   [B, C]     the tokens that the step function has logits of, or None for all
    terms                  what the translations must have, and what each hypothesis has; or None
    """

    position: Array
    last: Array
    open: Array
    log_probs: Array
    ended: Array
    scores: Array
    limits: Array
    done: Array
    cache: Cache
    prefix: Array | None = None
    shortlist: Array | None = None
    terms: Terms | None = None


@struct.dataclass
class SearchResult:
    """Hypotheses, best first: tokens [B, K, L] with EOS, then PAD; normalised scores [B, K].

    Those that reached the limit without EOS rank after all that ended.
    """

    tokens: Array
    scores: Array

    def hypotheses(self, row: int) -> list[tuple[list[int], float]]:
        """The hypotheses of one sentence, as lists of tokens without PAD, with their scores."""
        found = zip(np.asarray(self.tokens[row]).tolist(), np.asarray(self.scores[row]).tolist())
        found = [(tokens, score) for tokens, score in found if score > IMPOSSIBLE / 2]
        return [([token for token in tokens if token != PAD], score) for tokens, score in found]


def start(
    config: DecodeConfig,
    cache: Cache,
    limits: Int[Array, "B"],
    max_length: int,
    last: Int[Array, "B"] | None = None,
    prefix: Int[Array, "B P"] | None = None,
) -> SearchState:
    """The state before the first token: one possible hypothesis of each sentence, since equal ones
    would stay equal.

    `last` is the token to read first: BOS, or the last one of a prompt of which the cache has read
    the others. The tokens of `prefix` are chosen first, and count in scores.
    """
    shape = (limits.shape[0], config.beam_size)
    first = jnp.full(shape, BOS, jnp.int32) if last is None else jnp.tile(last[:, None], shape[1])
    return SearchState(
        position=jnp.zeros_like(limits),
        last=first,
        open=jnp.full((*shape, max_length), PAD, jnp.int32),
        log_probs=jnp.full(shape, IMPOSSIBLE, jnp.float32).at[:, 0].set(0.0),
        ended=jnp.full((*shape, max_length), PAD, jnp.int32),
        scores=jnp.full(shape, IMPOSSIBLE, jnp.float32),
        limits=limits,
        done=limits <= 0,
        cache=cache,
        prefix=prefix,
    )


def keep_more(state: SearchState, count: int) -> SearchState:
    """A search before its first token with `count` ended hypotheses per sentence: the same ones as
    before, and after them others that ended meanwhile."""
    added = ((0, 0), (0, count - state.scores.shape[1]))
    return state.replace(
        ended=jnp.pad(state.ended, (*added, (0, 0)), constant_values=PAD),
        scores=jnp.pad(state.scores, added, constant_values=IMPOSSIBLE),
    )


@runtime_checkable
class Method(Protocol):
    """How a search advances by one token, and its results so far."""

    def advance(self, step: Step, reorder: Reorder, state: State) -> State:
        """The state after one more token of each sentence that is not done."""
        ...

    def finish(self, state: State) -> SearchResult:
        """The hypotheses, open ones among them."""
        ...


def search(
    method: Method,
    step: Step,
    reorder: Reorder,
    state: State,
    goes_on: Callable[[State], Bool[Array, ""]],
) -> State:
    """Advances a search token by token, while `goes_on(state)` is true."""
    return jax.lax.while_loop(goes_on, partial(method.advance, step, reorder), state)


def farthest(state: State) -> Int[Array, ""]:
    """The most tokens of an unfinished sentence."""
    return jnp.where(state.done, 0, state.position).max()


def advance(
    config: DecodeConfig, step: Step, state: SearchState, reorder: Reorder, wanted: int = 1
) -> SearchState:
    """Beam search by one token: the best hypotheses continue or end in EOS; a sentence is done when
    its `wanted` best hypotheses are known."""
    batch, beam = state.last.shape
    # Twice the beam: even if half of them end here, enough are left to continue.
    totals, origins, tokens, cache = _best_next(config, step, state, 2 * beam)
    terms = state.terms and state.terms.after(origins, tokens)
    sequences = appended(
        jnp.take_along_axis(state.open, origins[..., None], 1), state.position, tokens
    )
    ends = tokens == EOS
    # An end outside the beam does not count, so that a beam of 1 is greedy.
    inside = jnp.arange(ends.shape[1]) < beam
    if terms:
        _, best = jax.lax.top_k(preference(totals, terms.counts()), beam)
        inside = (best[:, :, None] == jnp.arange(ends.shape[1])).any(1)
    counts = ends & inside
    bonus = config.term_bonus * terms.counts() if terms else 0.0
    ended_totals = jnp.where(counts, totals, IMPOSSIBLE)
    ended, scores = _keep_ended(config, state, sequences, ended_totals, bonus)
    open_totals = jnp.where(ends, IMPOSSIBLE, totals)
    preferred = preference(open_totals, terms.counts()) if terms else open_totals
    _, chosen = jax.lax.top_k(preferred, beam)
    rows = jnp.arange(batch)[:, None] * beam + jnp.take_along_axis(origins, chosen, 1)
    return _moved_on(
        config,
        state,
        wanted,
        last=jnp.take_along_axis(tokens, chosen, 1),
        open=jnp.take_along_axis(sequences, chosen[..., None], 1),
        log_probs=jnp.take_along_axis(open_totals, chosen, 1),
        terms=terms and terms.take(chosen),
        ended=ended,
        scores=scores,
        cache=reorder(cache, rows.reshape(-1)),
    )


def advance_greedily(config: DecodeConfig, step: Step, state: SearchState) -> SearchState:
    """Greedy search by one token: the likeliest, and the sentence is done when that is EOS."""
    total, _, token, cache = _best_next(config, step, state, 1)
    sequence = appended(state.open, state.position, token)
    ends = token == EOS
    score = normalise(config, total, state.position[:, None] + 1)
    return _moved_on(
        config,
        state,
        wanted=1,
        last=token,
        open=sequence,
        log_probs=jnp.where(ends, IMPOSSIBLE, total),
        ended=jnp.where(ends[..., None], sequence, state.ended),
        scores=jnp.where(ends, score, state.scores),
        cache=cache,
    )


def _best_next(
    config: DecodeConfig, step: Step, state: SearchState, count: int
) -> tuple[Float[Array, "B N"], Int[Array, "B N"], Int[Array, "B N"], Cache]:
    """The `count` best continuations of each sentence: log-probability, hypothesis, token."""
    given, cache = step(state.cache, state.last.reshape(-1))
    given = jax.tree.map(lambda rows: rows.reshape(*state.last.shape, -1), given)
    every = _continuations(config, state, given)
    allowed = every
    if constraints.has_constraints(config) or state.terms:
        log_probs = jax.nn.log_softmax(_next_logits(config, state, given))
        log_probs = constraints.apply_constraints(config, state.open, state.position, log_probs)
        if state.terms:
            log_probs = state.terms.allowed(log_probs, is_soft=config.term_bonus > 0)
        allowed = candidates.of_log_probs(state.log_probs, log_probs)
    found = candidates.best(allowed, count, config.forbidden)
    if state.terms:
        found = with_terms(state.terms, state.log_probs, log_probs, found, config.forbidden)
    if state.prefix is not None:
        token = constraints.next_forced(state.prefix, state.position)
        found = constraints.force_prefix(token, candidates.of_token(every, token), *found)
    return *found, cache


def _continuations(
    config: DecodeConfig, state: SearchState, given: Array | AveragedProbabilities
) -> candidates.Continuations:
    if isinstance(given, AveragedProbabilities) and not (config.renormalise or config.forced_end):
        found = candidates.of_probabilities(state.log_probs, given.probabilities)
    else:
        found = candidates.of_logits(state.log_probs, _next_logits(config, state, given))
    return found._replace(tokens=state.shortlist)


def _next_logits(
    config: DecodeConfig, state: SearchState, given: Array | AveragedProbabilities
) -> Float[Array, "B W V"]:
    logits = candidates.as_logits(given)
    tokens = jnp.arange(logits.shape[-1])
    if state.shortlist is not None:
        tokens = state.shortlist[:, None]
    if config.renormalise:
        logits = candidates.without(logits, tokens, {PAD, BOS, *config.forbidden})
    if config.forced_end:
        is_last = state.position + 1 >= state.limits
        end_alone = jnp.where(tokens == EOS, 0, -jnp.inf)
        logits = jnp.where(is_last[:, None, None], end_alone, logits)
    return logits


def appended(
    sequences: Int[Array, "B N L"], position: Int[Array, "B"], tokens: Int[Array, "B N"]
) -> Int[Array, "B N L"]:
    """The sequences with one more token each, after the first `position` ones."""
    is_here = jnp.arange(sequences.shape[-1]) == position[:, None, None]
    return jnp.where(is_here, tokens[..., None], sequences)


def _keep_ended(
    config: DecodeConfig,
    state: SearchState,
    sequences: Array,
    totals: Array,
    bonus: Array | float,
) -> tuple[Array, Array]:
    """The best of the hypotheses that ended before and those that end now, whose scores get the
    bonus."""
    possible = totals > IMPOSSIBLE / 2
    lengths = state.position[:, None] + 1
    scores = jnp.where(possible, normalise(config, totals, lengths) + bonus, IMPOSSIBLE)
    all_scores = jnp.concatenate([state.scores, scores], 1)
    all_sequences = jnp.concatenate([state.ended, sequences], 1)
    best, index = jax.lax.top_k(all_scores, state.scores.shape[1])
    return jnp.take_along_axis(all_sequences, index[..., None], 1), best


def _moved_on(config: DecodeConfig, state: SearchState, wanted: int, **changes: Any) -> SearchState:
    """The next state; the results of finished sentences stay as they are."""
    cache = changes.pop("cache")
    changes["position"] = state.position + 1

    def kept(old: Array, new: Array) -> Array:
        return jnp.where(jnp.expand_dims(state.done, range(1, new.ndim)), old, new)

    old = {name: getattr(state, name) for name in changes}
    new = state.replace(cache=cache, **jax.tree.map(kept, old, changes))
    return new.replace(done=state.done | is_done(config, new, wanted))


def normalise(config: DecodeConfig, log_prob: Array, length: Array) -> Array:
    """The score of a hypothesis of `length` tokens, EOS included (Wu et al., 2016, equation 14)."""
    return log_prob / length_penalty(config, jnp.asarray(length, jnp.float32))


def length_penalty(config: DecodeConfig, length: Array | float) -> Array | float:
    """What the log-probability of `length` tokens is divided by."""
    penalty = (5 + length) / 6 if config.normalisation == "gnmt" else length
    return penalty**config.alpha


def is_done(config: DecodeConfig, state: SearchState, wanted: int) -> Bool[Array, "B"]:
    """Whether each sentence can stop (`decode.stop`), or has reached its limit."""
    at_limit = state.position >= state.limits
    best = state.scores[:, : state.log_probs.shape[1]]
    are_full = (best > IMPOSSIBLE / 2).all(1)
    if config.stop == "full":
        return at_limit | are_full
    if config.stop == "heuristic":
        if_ended = normalise(config, state.log_probs.max(1), state.position)
        return at_limit | are_full & (best.min(1) >= if_ended)
    # Log-probabilities only fall and the penalty only grows, so no open hypothesis can score
    # more than its present log-probability at the longest length.
    bound = normalise(config, state.log_probs.max(1), state.limits)
    if state.terms:
        bound += config.term_bonus * state.terms.most()
    return at_limit | (state.scores[:, wanted - 1] >= bound)


def finish(config: DecodeConfig, state: SearchState) -> SearchResult:
    """The ended hypotheses, best first; after them the open ones that have reached the limit."""
    is_whole = (state.open != PAD).sum(-1) >= state.limits[:, None]
    open_scores = normalise(config, state.log_probs, state.limits[:, None])
    is_possible = is_whole & (state.log_probs > IMPOSSIBLE / 2)
    open_scores = jnp.where(is_possible, open_scores, IMPOSSIBLE)
    is_missing = state.scores < IMPOSSIBLE / 2
    open_order = jnp.ones_like(open_scores, jnp.int32)
    if state.terms:
        has_terms = state.terms.are_met
        open_order += ~has_terms
        if not config.term_bonus:  # none without its terms beside one that has them
            is_found = (~is_missing).any(1) | (is_possible & has_terms).any(1)
            open_scores = jnp.where(has_terms | ~is_found[:, None], open_scores, IMPOSSIBLE)
    order = jnp.concatenate([3 * is_missing, open_order], axis=1)
    chosen = jnp.argsort(order, axis=1, stable=True)[:, : state.scores.shape[1]]
    tokens = jnp.concatenate([state.ended, state.open], axis=1)
    scores = jnp.concatenate([state.scores, open_scores], axis=1)
    return SearchResult(
        tokens=jnp.take_along_axis(tokens, chosen[..., None], axis=1),
        scores=jnp.take_along_axis(scores, chosen, axis=1),
    )


@dataclass(frozen=True)
class BeamSearch:
    """Beam search, or greedy search, as a `Method` (`Sampling` is another), for the `wanted` best
    hypotheses."""

    settings: DecodeConfig
    wanted: int = 1

    def advance(self, step: Step, reorder: Reorder, state: SearchState) -> SearchState:
        """The search by one token."""
        if self.settings.beam_size == 1:
            return advance_greedily(self.settings, step, state)
        return advance(self.settings, step, state, reorder, self.wanted)

    def finish(self, state: SearchState) -> SearchResult:
        """The ended hypotheses, best first, then the open ones that have reached the limit."""
        return finish(self.settings, state)
