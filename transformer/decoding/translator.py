"""Sentences in, sentences out: tokenize, sort by length, batch, search, restore the order."""

import warnings
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from threading import Event
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int

from transformer.config import Config, DecodeConfig, ModelConfig
from transformer.data.tags import read_source
from transformer.data.vocabularies import Tokenizers
from transformer.decoding.batches import (
    LONGEST,
    SEARCH_LENGTHS,
    SearchBatch,
    in_series,
    in_shares,
    last_position,
    longest_output,
    longest_prefix,
    longest_text,
    round_up,
    search_batches,
)
from transformer.decoding.ensemble import Ensemble, make_ensemble
from transformer.decoding.long_text import sentences_of
from transformer.decoding.schedule import search_in_turn
from transformer.decoding.search import (
    IMPOSSIBLE,
    BeamSearch,
    SearchResult,
    SearchState,
    length_penalty,
    start,
)
from transformer.model.batch import EOS, PAD
from transformer.model.cached_decoder import DecodingParams, init_cache
from transformer.model.encoder_decoder import encode, widened
from transformer.model.params import Params

BATCHES_AT_ONCE = 2
"""Searches side by side: while one is in an operation that uses a single core, the other has the
rest."""


@dataclass(frozen=True)
class Translator:
    """One model or several of one vocabulary, how they search, and their tokenizers."""

    ensemble: Ensemble
    settings: DecodeConfig
    tokenizers: Tokenizers


@dataclass(frozen=True)
class Hypothesis:
    """A translation: its text, its normalised score, its natural log-probability, and its tokens,
    EOS included; `truncated` if it reached the limit of its length before its end."""

    text: str
    score: float
    log_prob: float
    tokens: tuple[int, ...]
    truncated: bool = False


EMPTY = Hypothesis("", 0.0, 0.0, ())
"""What becomes of a blank line."""


class Part(NamedTuple):
    """What is translated at once: text number `text` or a sentence of it, as tokens, the rest that
    was cut off, what its translation is to begin with, the blank before it in the text, and how
    many tokens at its beginning are repeated from the first part: the target tag."""

    text: int
    source: list[int]
    rest: list[int]
    prefix: list[int]
    before: str
    repeated: int


def make_translator(config: Config, params: Params, tokenizers: Tokenizers) -> Translator:
    """The translator of one model, as `decode` says."""
    return make_joint_translator([(config.model, params)], config.decode, tokenizers)


def make_joint_translator(
    members: list[tuple[ModelConfig, Params]], settings: DecodeConfig, tokenizers: Tokenizers
) -> Translator:
    """The translator of several models of one vocabulary, whose mean probability counts."""
    return Translator(make_ensemble(members, settings.dtype), settings, tokenizers)


def translate(translator: Translator, sentences: Sequence[str]) -> list[str]:
    """The best translation of each sentence, in the order given; one line each, none dropped.

    A sentence without a token (a blank line) becomes an empty one. A text that is longer than
    `decode.max_source_length`, or than learned positions reach, is translated sentence by sentence;
    a sentence that is longer is cut, with a warning.
    """
    return [found[0].text for found in hypotheses(translator, sentences)]


def hypotheses(
    translator: Translator,
    sentences: Sequence[str],
    count: int = 1,
    prefixes: Sequence[str] | None = None,
) -> list[list[Hypothesis]]:
    """The `count` best translations of each sentence, best first; or one empty translation of an
    empty sentence. A search may find fewer, and of a text in several parts there is one.
    Otherwise as `translate`. `prefixes`: what the translations are to begin with."""
    parts = split(translator, sentences, prefixes)
    found: list[list[Hypothesis]] = [[] for _ in parts]
    for number, tokens, scores in _searched(translator, parts, count):
        real = [row for row, score in zip(tokens.tolist(), scores) if score > IMPOSSIBLE / 2]
        texts = _texts(translator, real[:count])
        found[number] = [
            _hypothesis(translator, parts[number], text, float(score), [t for t in row if t != PAD])
            for text, score, row in zip(texts, scores, real)
        ]
    joined: list[list[Hypothesis]] = [[] for _ in sentences]
    for part, of_part in zip(parts, found):
        joined[part.text] = _joined(translator, joined[part.text], part, of_part or [EMPTY])
    return joined


def truncation(translator: Translator, count: int, total: int) -> str:
    """The sentence that says how many translations are truncated, and what allows longer ones."""
    models, settings = translator.ensemble.models, translator.settings
    remedy = "raise decode.max_length" if settings.max_length else "raise decode.max_extra_length"
    if last_position(models) < LONGEST:
        remedy += f", which model.max_positions ({last_position(models):,}) bounds"
    return (
        f"{count:,} of {total:,} translations reached the longest length before their end: {remedy}"
    )


def _hypothesis(
    translator: Translator, part: Part, text: str, score: float, tokens: list[int]
) -> Hypothesis:
    log_prob = score * length_penalty(translator.settings, len(tokens))
    truncated = tokens[-1] != EOS
    if translator.settings.forced_end and not truncated:
        read = len(part.source), len(part.prefix)
        limit = longest_output(translator.ensemble.models, translator.settings, *read)
        truncated = len(tokens) >= limit
    return Hypothesis(text, score, float(log_prob), tuple(tokens), truncated)


def _joined(
    translator: Translator, before: list[Hypothesis], part: Part, found: list[Hypothesis]
) -> list[Hypothesis]:
    """The translations of a text with those of its next part behind them. All tokens stay, EOS of
    each part among them."""
    if not before:
        return found
    first, second = before[0], found[0]
    end = () if first.tokens[-1:] == (EOS,) else (EOS,)
    tokens = (*first.tokens, *end, *second.tokens)
    log_prob = first.log_prob + second.log_prob
    score = float(log_prob / length_penalty(translator.settings, len(tokens)))
    truncated = first.truncated or second.truncated
    return [Hypothesis(first.text + part.before + second.text, score, log_prob, tokens, truncated)]


def _texts(translator: Translator, rows: Sequence[Sequence[int]]) -> list[str]:
    """One line each."""
    return [" ".join(text.splitlines()) for text in translator.tokenizers.target.decode(rows)]


def split(
    translator: Translator, sentences: Sequence[str], prefixes: Sequence[str] | None = None
) -> list[Part]:
    """The sentences as tokens, those that are too long in parts, each with the target tag."""
    source, setting, longest = translator.tokenizers.source, *_longest_source(translator)
    parts = []
    beginnings = _cut_prefixes(translator, list(prefixes or [""] * len(sentences)))
    tagged = [read_source(source, sentence) for sentence in sentences]
    whole = source.encode([tag + text for tag, text in tagged])
    for number, ((tag, sentence), ids) in enumerate(zip(tagged, whole)):
        cut = [sentence] if len(ids) <= longest else sentences_of(sentence)
        rows = [ids] if len(cut) == 1 else source.encode([tag + text for text in cut])
        for place, (text, row) in enumerate(zip(cut, rows)):
            if len(row) > longest:
                warnings.warn(
                    f"a sentence of {len(row):,} tokens was cut after {longest:,} ({setting}): "
                    f"{text[:60]!r} ...",
                    stacklevel=4,
                )
            prefix = beginnings[number] if place == 0 else []
            blank = " " if place and cut[place - 1][-1:].isspace() else ""
            repeated = 1 if tag and place else 0
            parts.append(Part(number, row[:longest], row[longest:], prefix, blank, repeated))
    return parts


def _cut_prefixes(translator: Translator, prefixes: list[str]) -> list[list[int]]:
    """As tokens, as many as there is room for."""
    longest = longest_prefix(translator.ensemble.models, translator.settings)
    rows = translator.tokenizers.target.encode(prefixes)
    for prefix, row in zip(prefixes, rows):
        if len(row) > longest:
            warnings.warn(
                f"a prefix of {len(row):,} tokens was cut after {longest:,} (decode.max_length, or "
                f"model.max_positions): {prefix[:60]!r} ...",
                stacklevel=5,
            )
    return [row[:longest] for row in rows]


def _longest_source(translator: Translator) -> tuple[str, int]:
    """The most tokens of a source, without EOS, and the setting that says so."""
    longest = longest_text(translator.ensemble.models, translator.settings)
    is_own = longest == translator.settings.max_source_length
    return "decode.max_source_length" if is_own else "model.max_positions", longest


def _searched(
    translator: Translator, parts: list[Part], wanted: int
) -> Iterator[tuple[int, Int[np.ndarray, "W L"], Float[np.ndarray, "W"]]]:
    """For each part that has a token its number, and the hypotheses that were found."""
    ensemble, settings = translator.ensemble, translator.settings
    sources, prefixes = [part.source for part in parts], [part.prefix for part in parts]
    batches = search_batches(ensemble.models, settings, sources, prefixes)
    is_over = Event()

    def asked(series: list[SearchBatch]) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
        for batch in series:
            if is_over.is_set():
                raise CancelledError
            yield batch.source, batch.prefix

    def search_for(share: list[SearchBatch]) -> list[tuple[SearchBatch, SearchResult]]:
        found = []
        for series in in_series(share):
            found += zip(series, search_series(ensemble, settings, asked(series), wanted))
        return found

    with ThreadPoolExecutor(BATCHES_AT_ONCE) as pool:
        shares = in_shares(batches, BATCHES_AT_ONCE)
        try:
            for share in as_completed([pool.submit(search_for, share) for share in shares]):
                for batch, result in share.result():
                    yield from zip(batch.numbers, result.tokens, result.scores)
        finally:
            is_over.set()  # for Ctrl-C and errors, which would else wait until all is translated


def search_batch(
    ensemble: Ensemble,
    settings: DecodeConfig,
    source: Int[np.ndarray | Array, "B S"],
    wanted: int = 1,
    prefix: Int[np.ndarray | Array, "B P"] | None = None,
) -> SearchResult:
    """Encodes a batch and searches for the `wanted` best translations, which begin with `prefix`;
    rows of padding cost no steps."""
    [result] = search_series(ensemble, settings, [(source, prefix)], wanted)
    return result


def search_series(
    ensemble: Ensemble,
    settings: DecodeConfig,
    batches: Iterable[tuple[Array | np.ndarray, Array | np.ndarray | None]],
    wanted: int,
) -> list[SearchResult]:
    """The same for the sources and prefixes of batches of one shape, each encoded when the turn is
    its sentences'."""
    begun = (begin_search(ensemble.models, settings, ensemble.params, *batch) for batch in batches)
    return search_in_turn(ensemble, BeamSearch(settings, wanted), begun)


@partial(jax.jit, static_argnums=(0, 1))
def begin_search(
    models: tuple[ModelConfig, ...],
    settings: DecodeConfig,
    params: tuple[DecodingParams, ...],
    source: Int[Array, "B S"],
    prefix: Int[Array, "B P"] | None = None,
) -> SearchState:
    """The sentences encoded, and a search that has not begun.

    What the search is given has few lengths, so that it is compiled for few shapes.
    """
    memories = [encode(model, member.params, source) for model, member in zip(models, params)]
    tokens = memories[0].lengths - 1  # without EOS
    reach = round_up(source.shape[1], SEARCH_LENGTHS)
    given = 0
    if prefix is not None:
        given = (prefix != PAD).sum(1)
        reach = max(reach, round_up(prefix.shape[1], SEARCH_LENGTHS))
    limits = longest_output(models, settings, tokens, given)
    limits = jnp.where(tokens > 0, limits, 0)
    caches = tuple(
        init_cache(*member, widened(memory, reach), len(source), 0, settings.beam_size)
        for *member, memory in zip(models, params, memories)
    )
    max_length = longest_output(models, settings, reach)
    return start(settings, caches, limits, max_length, prefix=prefix)
