"""Sentences in, sentences out: tokenize, sort by length, batch, search, restore the order."""

import sys
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Int

from transformer.config import Config, ModelConfig
from transformer.data.batching import pad_sources
from transformer.data.tokenizer import Tokenizers
from transformer.decoding.search import SearchResult, SearchState, finish, proceed, start
from transformer.model.cached_decoder import (
    cast,
    decode_step,
    init_cache,
    lengthened,
    reorder,
    unrolled,
)
from transformer.model.encoder_decoder import encode, widened
from transformer.model.params import Params

LENGTHS = (16, 24, 32, 48, 64, 96, 128, 192, 256)
"""Source lengths to pad to, so that few shapes are compiled; above the last, powers of two."""

MANY = 32
"""A batch of so many sentences rather ends than that all of them are padded to a longer shape."""

SEARCH_LENGTHS = (32, 64, 128, 256)
"""The same for the search, which costs more to compile, and less to pad."""

CACHE_LENGTH = 16
"""Tokens that the cache has room for at first."""

BATCHES_AT_ONCE = 2
"""While one batch is in an operation that uses a single core, the other has the rest."""

SHRINK, SMALLEST = 4, 8
"""A batch shrinks to one part in so many once no more of its sentences are left, but not below so
many sentences: what that would save does not pay for the compiling."""


def decoding_model(config: Config) -> ModelConfig:
    """The model in the precision of `decode.dtype`."""
    if config.decode.dtype == "model":
        return config.model
    return replace(config.model, dtype=config.decode.dtype)


@partial(jax.jit, static_argnums=0)
def decoding_params(config: Config, params: Params) -> Params:
    """The parameters in that precision, with the decoder's layers one by one.

    For `translate` and `search_batch` alone, with the same config. `translate` makes them itself if
    it must: those who call it more than once do it before.
    """
    return unrolled(cast(decoding_model(config), params))


def translate(
    config: Config, params: Params, tokenizers: Tokenizers, sentences: Sequence[str]
) -> list[str]:
    """The best translation of each sentence, in the order given; one line each, none dropped.

    A sentence without a token (a blank line) becomes an empty one. One that is longer than
    `decode.max_source_length`, or than learned positions reach, is cut, with a warning.
    """
    if not isinstance(params.decoder.layers, tuple):
        params = decoding_params(config, params)
    encoded = tokenizers.source.encode(list(sentences))
    sources = [_cut(config, text, ids) for text, ids in zip(sentences, encoded)]
    outputs: list[list[int]] = [[] for _ in sources]
    by_length = sorted((i for i, ids in enumerate(sources) if ids), key=lambda i: len(sources[i]))
    batches = _batches(config, sources, by_length)

    def search_for(indices: list[int]) -> SearchResult:
        return search_batch(config, params, _pad_batch(config, [sources[i] for i in indices]))

    with ThreadPoolExecutor(BATCHES_AT_ONCE) as pool:
        for indices, result in zip(batches, pool.map(search_for, batches)):
            for index, tokens in zip(indices, result.tokens[:, 0]):
                outputs[index] = tokens.tolist()
    return [" ".join(text.splitlines()) for text in tokenizers.target.decode(outputs)]


def _cut(config: Config, sentence: str, ids: list[int]) -> list[int]:
    setting, longest = "decode.max_source_length", config.decode.max_source_length
    if _last_position(config) <= longest:
        setting, longest = "model.max_positions", _last_position(config) - 1  # one is for EOS
    if len(ids) <= longest:
        return ids
    warnings.warn(
        f"a sentence of {len(ids):,} tokens was cut after {longest:,} ({setting}): "
        f"{sentence[:60]!r} ...",
        stacklevel=3,
    )
    return ids[:longest]


def _last_position(config: Config) -> int:
    """How many positions the model knows."""
    return config.model.max_positions if config.model.positions == "learned" else sys.maxsize


def _batches(config: Config, sources: list[list[int]], order: list[int]) -> list[list[int]]:
    """`order`, longest last, cut into batches; long sentences travel in smaller ones.

    A batch ends where the next sentence would be padded to another length, if it has MANY.
    """
    batches: list[list[int]] = []
    capacity = config.decode.batch_sentences * 128
    while order:
        rows = config.decode.batch_sentences
        while rows > 1 and rows * len(sources[order[min(rows, len(order)) - 1]]) > capacity:
            rows //= 2
        lengths = [_padded_length(sources[i]) for i in order[:rows]]
        rows = next((n for n in range(MANY, len(lengths)) if lengths[n] > lengths[n - 1]), rows)
        batches.append(order[:rows])
        order = order[rows:]
    return batches


def _pad_batch(config: Config, sources: list[list[int]]) -> Int[np.ndarray, "B S"]:
    """One of few shapes: the rows a power of two, the length one of LENGTHS."""
    length = min(max(map(_padded_length, sources)), _last_position(config))
    rows = min(1 << (len(sources) - 1).bit_length(), config.decode.batch_sentences)
    return pad_sources(sources, rows, length)


def _padded_length(source: list[int]) -> int:
    """The length, EOS included, that a sentence is padded to."""
    return _round_up(len(source) + 1, LENGTHS)


def _round_up(length: int, lengths: Sequence[int]) -> int:
    """The next of `lengths`; above the last, the next power of two."""
    return next((n for n in lengths if n >= length), 1 << (length - 1).bit_length())


def search_batch(
    config: Config, params: Params, source: Int[np.ndarray | Array, "B S"]
) -> SearchResult:
    """Encodes a batch and searches for its translations; rows of padding cost no steps.

    `params` are best those of `decoding_params`. The search pauses when its cache is full, and when
    no more than a quarter of the sentences is left, which go on in a batch of that size. After a
    pause the cache has twice the room. So attention looks at few empty places, and sentences that
    are done cost little.
    """
    rows = np.arange(len(source))
    state, result = _proceed(config, params, _begin(config, params, source))
    tokens, scores = np.array(result.tokens), np.array(result.scores)
    while not (done := np.asarray(state.done)).all():
        chosen = _those_that_go_on(done)
        state = _resized(state, chosen)  # by that name, for the old one to leave the memory
        state, result = _proceed(config, params, state)
        rows = rows[chosen]
        tokens[rows], scores[rows] = result.tokens, result.scores
    return SearchResult(tokens, scores)


def _those_that_go_on(done: Bool[np.ndarray, "B"]) -> Int[np.ndarray, "C"]:
    """Sentences that are not done, filled up with others to the size of the next batch."""
    size, going = len(done), np.sum(~done)
    while going <= _fewest(size):
        size //= SHRINK
    return np.argsort(done, kind="stable")[:size]


def _fewest(size: int) -> int:
    """How many sentences are too few for a batch of this size."""
    return size // SHRINK if size // SHRINK >= SMALLEST else 0


@partial(jax.jit, static_argnums=0)
def _begin(config: Config, params: Params, source: Int[Array, "B S"]) -> SearchState:
    """The sentences encoded, and a search that has not begun.

    What the search is given has few lengths, so that it is compiled for few shapes.
    """
    model, settings = decoding_model(config), config.decode
    memory = encode(model, params, source)
    tokens = memory.lengths - 1  # without EOS
    reach = _round_up(source.shape[1], SEARCH_LENGTHS)
    max_length = min(reach + settings.max_extra_length, _last_position(config))
    limits = jnp.where(tokens > 0, tokens + settings.max_extra_length, 0)
    length = min(CACHE_LENGTH, max_length)
    cache = init_cache(model, params, widened(memory, reach), length, settings.beam_size)
    return start(settings, cache, jnp.minimum(limits, max_length), max_length)


@partial(jax.jit, static_argnums=0, donate_argnums=2)
def _proceed(
    config: Config, params: Params, state: SearchState
) -> tuple[SearchState, SearchResult]:
    """The search until it pauses, and what it has found by then."""
    batch, _, length = state.cache.ancestry.shape
    step = partial(decode_step, decoding_model(config), params)
    state = proceed(config.decode, step, reorder, state, length, _fewest(batch))
    return state, finish(config.decode, state)


@jax.jit
def _resized(state: SearchState, chosen: Int[Array, "C"]) -> SearchState:
    """The search with the chosen sentences alone, and room for twice as many tokens."""
    state = jax.tree.map(lambda leaf: leaf[chosen] if leaf.ndim else leaf, state)
    length = min(2 * state.cache.ancestry.shape[-1], state.open.shape[-1])
    return state.replace(cache=lengthened(state.cache, length))
