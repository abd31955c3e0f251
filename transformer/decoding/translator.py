"""Sentences in, sentences out: tokenize, sort by length, batch, search, restore the order."""

import warnings
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from threading import Event
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int

from transformer.config import Config, DecodeConfig, ModelConfig
from transformer.data.tags import read_source
from transformer.data.tokenizer import Tokenizer, has_letters
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
from transformer.decoding.continuous import search_continuously
from transformer.decoding.ensemble import Ensemble, make_ensemble
from transformer.decoding.lines import continued, one_line, outer_blanks, split_lines
from transformer.decoding.search import (
    IMPOSSIBLE,
    BeamSearch,
    SearchResult,
    SearchState,
    keep_more,
    length_penalty,
    start,
)
from transformer.decoding.sentences import split_sentences
from transformer.model.batch import EOS, PAD
from transformer.model.cached_decoder import init_cache
from transformer.model.encoder_decoder import encode, pad_memory
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
"""What stands between the blanks of a blank line."""


NO_PREFIX: tuple[list[int], str] = ([], "")


class Part(NamedTuple):
    """What is translated at once: a line of a text, or a sentence of a line that is too long.

    text    the number of the text
    source  the tokens that are read
    rest    those that were cut off
    prefix  the tokens that the translation begins with
    typed   the text of these; "" if some were cut off
    copied  the translation, where that is the text itself: nothing is searched for; else ""
    before  the blanks before the translation
    after   the blanks behind it, and the separator of lines
    repeated  tokens at the beginning that the text does not have there: the target tag of its
              first part
    """

    text: int
    source: list[int]
    rest: list[int]
    prefix: list[int]
    typed: str
    copied: str
    before: str
    after: str
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
    """The best translation of each text, in the order given, none dropped.

    A text is translated line by line; its separators of lines, the blanks around its lines and its
    blank lines stay as they are. A line that is longer than `decode.max_source_length`, or than
    learned positions reach, is translated sentence by sentence; a sentence that is longer is cut,
    with a warning.
    """
    return [best.text for best in best_hypotheses(translator, sentences)]


def best_hypotheses(translator: Translator, sentences: Sequence[str]) -> list[Hypothesis]:
    """What `translate` finds, with scores, tokens and whether it is truncated."""
    return [best for best, *_ in hypotheses(translator, sentences)]


def hypotheses(
    translator: Translator,
    sentences: Sequence[str],
    count: int = 1,
    prefixes: Sequence[str] | None = None,
) -> list[list[Hypothesis]]:
    """The `count` best translations of each text, best first, no two the same; of a blank text
    itself. A search may find fewer, and of a text in several parts there is one. Otherwise as
    `translate`. `prefixes`: what the translations begin with, as it is written there."""
    parts = split(translator, sentences, prefixes)
    found = [[replace(EMPTY, text=part.copied) if part.copied else EMPTY] for part in parts]
    # Of a longer list some may have the same text, so that the whole beam is wanted.
    wanted = 1 if count == 1 else translator.settings.beam_size
    for number, tokens, scores in _searched(translator, parts, wanted):
        found[number] = _distinct(translator, parts[number], tokens, scores, count)
    of_texts = groupby(zip(parts, found), lambda pair: pair[0].text)
    return [_joined(translator, *zip(*of_text)) for _, of_text in of_texts]


def truncation(translator: Translator, count: int, total: int) -> str:
    """The sentence that says how many translations are truncated, and what allows longer ones."""
    models, settings = translator.ensemble.models, translator.settings
    remedy = "raise decode.max_length" if settings.max_length else "raise decode.max_extra_length"
    if last_position(models) < LONGEST:
        remedy += f", which model.max_positions ({last_position(models):,}) bounds"
    return (
        f"{count:,} of {total:,} translations reached the longest length before their end: {remedy}"
    )


def _distinct(
    translator: Translator,
    part: Part,
    tokens: Int[np.ndarray, "K L"],
    scores: Float[np.ndarray, "K"],
    count: int,
) -> list[Hypothesis]:
    """At most `count` of the hypotheses, best first: of those with one text the best."""
    rows = [row for row, score in zip(tokens.tolist(), scores) if score > IMPOSSIBLE / 2]
    rows = rows[:1] if count == 1 else rows
    found: dict[str, Hypothesis] = {}
    for text, score, row in zip(_texts(translator, part, rows), scores, rows):
        if text not in found and len(found) < count:
            kept = [token for token in row if token != PAD]
            found[text] = _hypothesis(translator, part, text, float(score), kept)
    return [*found.values()]


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
    translator: Translator, parts: Sequence[Part], found: Sequence[list[Hypothesis]]
) -> list[Hypothesis]:
    """The translations of a text from those of its parts: of several, the best of each. All tokens
    stay, and each part but the last ends in EOS."""
    if len(parts) == 1:
        [part], [of_part] = parts, found
        if not (part.before or part.after):
            return of_part
        return [replace(one, text=_laid_out(part, one.text)) for one in of_part]
    best = [first for first, *_ in found]
    tokens: list[int] = []
    for one in best[:-1]:
        tokens += one.tokens if one.tokens[-1:] == (EOS,) else (*one.tokens, EOS)
    tokens += best[-1].tokens
    log_prob = sum(one.log_prob for one in best)
    return [
        Hypothesis(
            "".join(_laid_out(part, one.text) for part, one in zip(parts, best)),
            float(log_prob / length_penalty(translator.settings, max(1, len(tokens)))),
            log_prob,
            tuple(tokens),
            any(one.truncated for one in best),
        )
    ]


def _laid_out(part: Part, text: str) -> str:
    return part.before + (text.lstrip() if part.before else text) + part.after


def _texts(translator: Translator, part: Part, rows: Sequence[Sequence[int]]) -> list[str]:
    """One line each, which begins with the prefix as it was typed."""
    texts = [one_line(text) for text in translator.tokenizers.target.decode(rows)]
    if not part.typed:
        return texts
    [known] = translator.tokenizers.target.decode([part.prefix])
    return [continued(part.typed, one_line(known), text) for text in texts]


def split(
    translator: Translator, sentences: Sequence[str], prefixes: Sequence[str] | None = None
) -> list[Part]:
    """The lines of the texts as tokens, those that are too long in parts, each with the target
    tag."""
    source, setting, longest = translator.tokenizers.source, *_longest_source(translator)
    copies = translator.settings.copy_without_letters
    parts: list[Part] = []
    beginnings = _cut_prefixes(translator, list(prefixes or [""] * len(sentences)))
    lines = [_tagged_lines(source, text) for text in sentences]
    encoded = iter(source.encode([tag + line for of_text in lines for tag, line, *_ in of_text]))
    for number, (of_text, beginning) in enumerate(zip(lines, beginnings)):
        for (tag, line, separator, repeated), ids in zip(of_text, encoded):
            cut = [line] if len(ids) <= longest else split_sentences(line)
            rows = [ids] if len(cut) == 1 else source.encode([tag + text for text in cut])
            for place, (text, row) in enumerate(zip(cut, rows), start=1):
                prefix, typed = beginning if row else NO_PREFIX
                beginning = NO_PREFIX if row else beginning
                before, core, after = outer_blanks(text)
                before = "" if typed else before
                after += separator if place == len(cut) else ""
                is_copied = copies and not (prefix or typed or has_letters(core))
                if len(row) > longest and not is_copied:
                    warnings.warn(
                        f"a sentence of {len(row):,} tokens was cut after {longest:,} ({setting}): "
                        f"{text[:60]!r} ...",
                        stacklevel=4,
                    )
                read = row[:longest], row[longest:]
                given = prefix, typed, core if is_copied else ""
                added = int(repeated if place == 1 else bool(tag))
                parts.append(Part(number, *read, *given, before, after, added))
    return parts


def _tagged_lines(source: Tokenizer, text: str) -> list[tuple[str, str, str, bool]]:
    """For each line of a text its target tag, or that of the line before; its text; the separator
    behind it; and whether the tag is that of the line before."""
    lines, tag = [], ""
    for line, separator in split_lines(text) or [("", "")]:
        own, _ = source.split_tag(line)
        tag = own or tag
        if line.strip():
            _, rest = read_source(source, line if own else tag + line)
            line = rest.lstrip() if own else line
        used = tag if line.strip() else ""
        lines.append((used, line, separator, bool(used) and not own))
    return lines


def _cut_prefixes(translator: Translator, prefixes: list[str]) -> list[tuple[list[int], str]]:
    """As tokens, as many as there is room for, and the text of these where it is all of it."""
    longest = longest_prefix(translator.ensemble.models, translator.settings)
    rows = translator.tokenizers.target.encode([*map(one_line, prefixes)])
    for prefix, row in zip(prefixes, rows):
        if len(row) > longest:
            warnings.warn(
                f"a prefix of {len(row):,} tokens was cut after {longest:,} (decode.max_length, or "
                f"model.max_positions): {prefix[:60]!r} ...",
                stacklevel=5,
            )
    return [
        (row[:longest], prefix if len(row) <= longest else "")
        for prefix, row in zip(prefixes, rows)
    ]


def _longest_source(translator: Translator) -> tuple[str, int]:
    """The most tokens of a source, without EOS, and the setting that says so."""
    longest = longest_text(translator.ensemble.models, translator.settings)
    is_own = longest == translator.settings.max_source_length
    return "decode.max_source_length" if is_own else "model.max_positions", longest


def _searched(
    translator: Translator, parts: list[Part], wanted: int
) -> Iterator[tuple[int, Int[np.ndarray, "W L"], Float[np.ndarray, "W"]]]:
    """For each part that is to be searched its number, and the hypotheses that were found."""
    ensemble, settings = translator.ensemble, translator.settings
    sources = [[] if part.copied else part.source for part in parts]
    prefixes = [part.prefix for part in parts]
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
    its sentences'. Where more than one is wanted, up to twice the beam may be found."""
    begun = (begin_search(ensemble.models, settings, ensemble.params, *batch) for batch in batches)
    if wanted > 1:
        begun = (keep_more(state, 2 * settings.beam_size) for state in begun)
    return search_continuously(ensemble, BeamSearch(settings, wanted), begun)


@partial(jax.jit, static_argnums=(0, 1))
def begin_search(
    models: tuple[ModelConfig, ...],
    settings: DecodeConfig,
    params: tuple[Params, ...],
    source: Int[Array, "B S"],
    prefix: Int[Array, "B P"] | None = None,
) -> SearchState:
    """The sentences encoded, and a search that has not begun.

    What the search is given has few lengths, so that it is compiled for few shapes.
    """
    memories = [encode(model, member, source) for model, member in zip(models, params)]
    tokens = memories[0].lengths - 1  # without EOS
    reach = round_up(source.shape[1], SEARCH_LENGTHS)
    given = 0
    if prefix is not None:
        given = (prefix != PAD).sum(1)
        reach = max(reach, round_up(prefix.shape[1], SEARCH_LENGTHS))
    limits = longest_output(models, settings, tokens, given)
    limits = jnp.where(tokens > 0, limits, 0)
    caches = tuple(
        init_cache(*member, pad_memory(memory, reach), len(source), 0, settings.beam_size)
        for *member, memory in zip(models, params, memories)
    )
    max_length = longest_output(models, settings, reach)
    return start(settings, caches, limits, max_length, prefix=prefix)
