"""Sentences in, sentences out: tokenize, sort by length, batch, search, restore the order."""

import sys
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int

from transformer.config import Config, DecodeConfig, ModelConfig
from transformer.data.batching import pad_sources
from transformer.data.vocabularies import Tokenizers
from transformer.decoding.ensemble import CACHE_LENGTH, Ensemble, make_ensemble, search_on
from transformer.decoding.search import IMPOSSIBLE, BeamSearch, SearchResult, SearchState, start
from transformer.model.batch import PAD
from transformer.model.cached_decoder import DecodingParams, init_cache
from transformer.model.encoder_decoder import encode, widened
from transformer.model.params import Params

LENGTHS = (16, 24, 32, 48, 64, 96, 128, 192, 256)
"""Source lengths to pad to, so that few shapes are compiled; above the last, powers of two."""

MANY = 32
"""A batch of so many sentences rather ends than that all of them are padded to a longer shape."""

SEARCH_LENGTHS = (32, 64, 128, 256)
"""The same for the search, which costs more to compile, and less to pad."""

BATCHES_AT_ONCE = 2
"""While one batch is in an operation that uses a single core, the other has the rest."""


@dataclass(frozen=True)
class Translator:
    """One model or several of one vocabulary, how they search, and their tokenizers."""

    ensemble: Ensemble
    settings: DecodeConfig
    tokenizers: Tokenizers


@dataclass(frozen=True)
class Hypothesis:
    """A translation: its text, its normalised score, and its tokens, EOS included."""

    text: str
    score: float
    tokens: tuple[int, ...]


def make_translator(config: Config, params: Params, tokenizers: Tokenizers) -> Translator:
    """The translator of one model, as `decode` says."""
    ensemble = make_ensemble([(config.model, params)], config.decode.dtype)
    return Translator(ensemble, config.decode, tokenizers)


def translate(translator: Translator, sentences: Sequence[str]) -> list[str]:
    """The best translation of each sentence, in the order given; one line each, none dropped.

    A sentence without a token (a blank line) becomes an empty one. One that is longer than
    `decode.max_source_length`, or than learned positions reach, is cut, with a warning.
    """
    outputs: list[list[int]] = [[] for _ in sentences]
    for index, tokens, _ in _searched(translator, sentences):
        outputs[index] = tokens[0].tolist()
    return _texts(translator, outputs)


def hypotheses(translator: Translator, sentences: Sequence[str]) -> list[list[Hypothesis]]:
    """What the search found for each sentence, best first: at most `decode.beam_size`, or one empty
    translation of an empty sentence. Otherwise as `translate`."""
    found = [[Hypothesis("", 0.0, ())] for _ in sentences]
    for index, tokens, scores in _searched(translator, sentences):
        real = [row for row, score in zip(tokens.tolist(), scores) if score > IMPOSSIBLE / 2]
        texts = _texts(translator, real)
        found[index] = [
            Hypothesis(text, float(score), tuple(token for token in row if token != PAD))
            for text, score, row in zip(texts, scores, real)
        ]
    return found


def _texts(translator: Translator, rows: Sequence[Sequence[int]]) -> list[str]:
    """One line each."""
    return [" ".join(text.splitlines()) for text in translator.tokenizers.target.decode(rows)]


def _searched(
    translator: Translator, sentences: Sequence[str]
) -> Iterator[tuple[int, Int[np.ndarray, "W L"], Float[np.ndarray, "W"]]]:
    """For each sentence that has a token its number, and the hypotheses that were found."""
    encoded = translator.tokenizers.source.encode(list(sentences))
    sources = [_cut(translator, text, ids) for text, ids in zip(sentences, encoded)]
    by_length = sorted((i for i, ids in enumerate(sources) if ids), key=lambda i: len(sources[i]))
    batches = _batches(translator.settings, sources, by_length)

    def search_for(indices: list[int]) -> SearchResult:
        source = _pad_batch(translator, [sources[i] for i in indices])
        return search_batch(translator.ensemble, translator.settings, source)

    with ThreadPoolExecutor(BATCHES_AT_ONCE) as pool:
        for indices, result in zip(batches, pool.map(search_for, batches)):
            yield from zip(indices, result.tokens, result.scores)


def _cut(translator: Translator, sentence: str, ids: list[int]) -> list[int]:
    setting, longest = "decode.max_source_length", translator.settings.max_source_length
    if (last := last_position(translator.ensemble.models)) <= longest:
        setting, longest = "model.max_positions", last - 1  # one is for EOS
    if len(ids) <= longest:
        return ids
    warnings.warn(
        f"a sentence of {len(ids):,} tokens was cut after {longest:,} ({setting}): "
        f"{sentence[:60]!r} ...",
        stacklevel=5,
    )
    return ids[:longest]


def last_position(models: Sequence[ModelConfig]) -> int:
    """How many positions all of the models know."""
    return min(m.max_positions if m.positions == "learned" else sys.maxsize for m in models)


def longest_text(models: Sequence[ModelConfig], settings: DecodeConfig) -> int:
    """Tokens that are read of a text, when one more stands beside them: BOS or EOS."""
    return min(last_position(models) - 1, settings.max_source_length)


def _batches(settings: DecodeConfig, sources: list[list[int]], order: list[int]) -> list[list[int]]:
    """`order`, longest last, cut into batches; long sentences travel in smaller ones.

    A batch ends where the next sentence would be padded to another length, if it has MANY.
    """
    batches: list[list[int]] = []
    capacity = settings.batch_sentences * 128
    while order:
        rows = settings.batch_sentences
        while rows > 1 and rows * len(sources[order[min(rows, len(order)) - 1]]) > capacity:
            rows //= 2
        lengths = [_padded_length(sources[i]) for i in order[:rows]]
        rows = next((n for n in range(MANY, len(lengths)) if lengths[n] > lengths[n - 1]), rows)
        batches.append(order[:rows])
        order = order[rows:]
    return batches


def _pad_batch(translator: Translator, sources: list[list[int]]) -> Int[np.ndarray, "B S"]:
    """One of few shapes: the rows a power of two, the length one of LENGTHS."""
    length = min(max(map(_padded_length, sources)), last_position(translator.ensemble.models))
    rows = min(1 << (len(sources) - 1).bit_length(), translator.settings.batch_sentences)
    return pad_sources(sources, rows, length)


def _padded_length(source: list[int]) -> int:
    """The length, EOS included, that a sentence is padded to."""
    return round_up(len(source) + 1, LENGTHS)


def round_up(length: int, lengths: Sequence[int]) -> int:
    """The next of `lengths`; above the last, the next power of two."""
    return next((n for n in lengths if n >= length), 1 << (length - 1).bit_length())


def search_batch(
    ensemble: Ensemble, settings: DecodeConfig, source: Int[np.ndarray | Array, "B S"]
) -> SearchResult:
    """Encodes a batch and searches for its translations; rows of padding cost no steps."""
    state = begin_search(ensemble.models, settings, ensemble.params, source)
    return search_on(ensemble, BeamSearch(settings), state, most=state.open.shape[-1])


@partial(jax.jit, static_argnums=(0, 1))
def begin_search(
    models: tuple[ModelConfig, ...],
    settings: DecodeConfig,
    params: tuple[DecodingParams, ...],
    source: Int[Array, "B S"],
) -> SearchState:
    """The sentences encoded, and a search that has not begun.

    What the search is given has few lengths, so that it is compiled for few shapes.
    """
    memories = [encode(model, member.params, source) for model, member in zip(models, params)]
    tokens = memories[0].lengths - 1  # without EOS
    reach = round_up(source.shape[1], SEARCH_LENGTHS)
    most = settings.max_length or sys.maxsize
    max_length = min(reach + settings.max_extra_length, most, last_position(models))
    limits = jnp.where(tokens > 0, tokens + settings.max_extra_length, 0)
    room = min(CACHE_LENGTH, max_length)
    caches = tuple(
        init_cache(*member, widened(memory, reach), len(source), room, settings.beam_size)
        for *member, memory in zip(models, params, memories)
    )
    return start(settings, caches, jnp.minimum(limits, max_length), max_length)
