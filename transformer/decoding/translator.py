"""Sentences in, sentences out: tokenize, sort by length, batch, search, restore the order."""

import sys
import warnings
from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Int

from transformer.config import Config
from transformer.data.batching import pad_sources
from transformer.data.tokenizer import Tokenizers
from transformer.decoding.search import SearchResult, search
from transformer.model.cached_decoder import decode_step, init_cache, reorder, unrolled
from transformer.model.encoder_decoder import encode
from transformer.model.params import Params

LENGTHS = (16, 24, 32, 48, 64, 96, 128, 192, 256)
"""Source lengths to pad to, so that few shapes are compiled; above the last, powers of two."""


def translate(
    config: Config, params: Params, tokenizers: Tokenizers, sentences: Sequence[str]
) -> list[str]:
    """The best translation of each sentence, in the order given; one line each, none dropped.

    A sentence without a token (a blank line) becomes an empty one. One that is longer than
    `decode.max_source_length`, or than learned positions reach, is cut, with a warning.
    """
    encoded = tokenizers.source.encode(list(sentences))
    sources = [_cut(config, text, ids) for text, ids in zip(sentences, encoded)]
    outputs: list[list[int]] = [[] for _ in sources]
    by_length = sorted((i for i, ids in enumerate(sources) if ids), key=lambda i: len(sources[i]))
    for indices in _batches(config, sources, by_length):
        result = search_batch(config, params, _pad_batch(config, [sources[i] for i in indices]))
        for index, tokens in zip(indices, np.asarray(result.tokens[:, 0])):
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
    """`order`, longest last, cut into batches; long sentences travel in smaller ones."""
    batches: list[list[int]] = []
    capacity = config.decode.batch_sentences * 128
    while order:
        rows = config.decode.batch_sentences
        while rows > 1 and rows * len(sources[order[min(rows, len(order)) - 1]]) > capacity:
            rows //= 2
        batches.append(order[:rows])
        order = order[rows:]
    return batches


def _pad_batch(config: Config, sources: list[list[int]]) -> Int[np.ndarray, "B S"]:
    """One of few shapes: the rows a power of two, the length one of LENGTHS."""
    longest = max(map(len, sources)) + 1
    length = next((n for n in LENGTHS if n >= longest), 1 << (longest - 1).bit_length())
    length = min(length, _last_position(config))
    rows = min(1 << (len(sources) - 1).bit_length(), config.decode.batch_sentences)
    return pad_sources(sources, rows, length)


@partial(jax.jit, static_argnums=0)
def search_batch(config: Config, params: Params, source: Int[Array, "B S"]) -> SearchResult:
    """Encodes a batch and searches for its translations; rows of padding cost no steps."""
    memory = encode(config.model, params, source)
    params = unrolled(params)
    tokens = memory.lengths - 1  # without EOS
    limits = jnp.where(tokens > 0, tokens + config.decode.max_extra_length, 0)
    max_length = min(source.shape[1] + config.decode.max_extra_length, _last_position(config))
    limits = jnp.minimum(limits, max_length)
    cache = init_cache(config.model, params, memory, max_length, config.decode.beam_size)
    return search(
        config.decode,
        partial(decode_step, config.model, params),
        reorder,
        cache,
        limits,
        max_length,
    )
