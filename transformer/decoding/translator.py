"""Sentences in, sentences out: tokenize, sort by length, batch, search, restore the order."""

import warnings
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain, groupby, islice
from threading import Event
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Int

from transformer.config import Config, DecodeConfig, ModelConfig
from transformer.data.batching import pad
from transformer.data.capitals import in_capitals, in_upper_case, with_case_restored
from transformer.data.tags import read_source
from transformer.data.tokenizer import has_letters
from transformer.data.vocabularies import Tokenizers
from transformer.decoding.batches import (
    LENGTHS,
    LONGEST,
    SearchBatch,
    SearchInput,
    balance,
    group_by_shape,
    last_position,
    longest_output,
    longest_prefix,
    longest_text,
    pad_terms,
    round_up,
    search_batches,
)
from transformer.decoding.continuous import search_continuously
from transformer.decoding.ensemble import Ensemble, among, make_ensemble
from transformer.decoding.glossary import Glossary
from transformer.decoding.lines import (
    Line,
    continued,
    distinct,
    one_line,
    split_lines,
    split_sentences,
)
from transformer.decoding.search import (
    BeamSearch,
    SearchResult,
    SearchState,
    keep_more,
    length_penalty,
    start,
)
from transformer.decoding.shortlist import Lexicon, frequent_tokens, with_shortlist
from transformer.decoding.terms import Term, count_terms, start_terms
from transformer.errors import UserError
from transformer.model.batch import EOS, PAD
from transformer.model.cached_decoder import init_cache, initial_capacity, with_output_rows
from transformer.model.encoder_decoder import encode, pad_memory
from transformer.model.params import Params

WORKERS = 2
"""Searches at the same time: while one is in an operation that uses a single core, the other has
the rest."""


@dataclass(frozen=True)
class Translator:
    """One model or several of one vocabulary, how they search, and their tokenizers."""

    ensemble: Ensemble
    settings: DecodeConfig
    tokenizers: Tokenizers
    glossary: Glossary | None = None
    """Terms that translations must have."""
    temperature: float = 1.0
    """By which logits are divided for the confidence of words."""
    lexicon: Lexicon | None = None
    """Of which shortlists are made; without one, translations choose among all tokens."""

    @cached_property
    def among_frequent(self) -> Ensemble:
        """The models with logits of frequent tokens alone."""
        return among(self.ensemble, frequent_tokens(self.lexicon, self.settings.frequent))

    def ensemble_for(self, inputs: SearchInput) -> Ensemble:
        """The models with logits of the tokens that these translations may have: prefixes and terms
        may need any."""
        if self.lexicon is None or not self.settings.frequent:
            return self.ensemble
        is_free = inputs.prefix is None and inputs.terms is None
        return self.among_frequent if is_free else self.ensemble


@dataclass(frozen=True)
class Hypothesis:
    """A translation: its text, its normalised score, its natural log-probability, and its tokens,
    EOS included; `truncated` if it reached its longest length without EOS."""

    text: str
    score: float
    log_prob: float
    tokens: tuple[int, ...]
    truncated: bool = False


NO_PREFIX: tuple[list[int], str] = ([], "")


class Part(NamedTuple):
    """What is translated at once: a line of a text, or a sentence of a line that is too long.

    number    of the text
    source    the tokens that are read
    rest      the tokens that were cut off
    prefix    the tokens that the translation begins with
    typed     the prefix as text; "" if some of it was cut off
    copied    the translation, where that is the text itself and there is no search; otherwise ""
    line      the text as it was typed, with what stands around it
    repeated  tokens before those of the text: the target tag of an earlier line or sentence
    terms     that the translation must have
    capitals  whether it was typed in capitals, and is translated into capitals
    """

    number: int
    source: list[int]
    rest: list[int]
    prefix: list[int]
    typed: str
    copied: str
    line: Line
    repeated: int
    terms: list[Term]
    capitals: bool


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

    A text is translated line by line; its separators, the whitespace around its lines and its blank
    lines stay as they are. A line that is longer than `decode.max_source_length`, or than learned
    positions reach, is translated sentence by sentence; a longer sentence is cut, with a warning.
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
    itself. A search may find fewer, and there is one of a text in several parts. Otherwise as
    `translate`. `prefixes` are the beginnings of the translations."""
    parts = split(translator, sentences, prefixes)
    found = [[Hypothesis(part.copied, 0.0, 0.0, ())] for part in parts]
    # Several hypotheses may have the same text, so a longer list needs the whole beam.
    wanted = 1 if count == 1 else translator.settings.beam_size
    for number, result in _search(translator, parts, wanted):
        found[number] = _distinct(translator, parts[number], result, count)
    of_texts = groupby(zip(parts, found), lambda pair: pair[0].number)
    return [_joined(translator, *zip(*of_text)) for _, of_text in of_texts]


def truncation(translator: Translator, count: int, total: int) -> str:
    """How many translations are truncated, and which setting allows longer ones, as a sentence."""
    return (
        f"{count:,} of {total:,} translations were truncated at the longest length: "
        f"{_longer(translator)}"
    )


def _longer(translator: Translator) -> str:
    """What allows longer translations."""
    models, settings = translator.ensemble.models, translator.settings
    remedy = "raise decode.max_extra_length" + " and decode.max_length" * (settings.max_length > 0)
    if last_position(models) < LONGEST:
        remedy += f" (at most {last_position(models):,}: model.max_positions)"
    return remedy


def _distinct(
    translator: Translator, part: Part, found: list[tuple[list[int], float]], count: int
) -> list[Hypothesis]:
    """At most `count` hypotheses of different texts, best first. Raises UserError if there are
    none."""
    if not found:
        raise UserError(
            "no translation has the given prefix, terms and decode.forbidden within the longest "
            f"length, for {part.line.text!r}: {_longer(translator)}"
        )
    found = found[:1] if count == 1 else found
    texts = _texts(translator, part, [tokens for tokens, _ in found])
    best = islice(distinct(texts, found), count)
    return [_hypothesis(translator, part, text, score, tokens) for text, (tokens, score) in best]


def _hypothesis(
    translator: Translator, part: Part, text: str, score: float, tokens: list[int]
) -> Hypothesis:
    truncated, bonus = tokens[-1] != EOS, 0.0
    if translator.settings.term_bonus and part.terms and not truncated:
        table = pad_terms([part.terms], 1, translator.glossary.continues)
        padded = pad([tokens], 1, round_up(len(tokens), LENGTHS))[0]
        bonus = translator.settings.term_bonus * count_terms(table, padded)
    log_prob = (score - bonus) * length_penalty(translator.settings, len(tokens))
    if translator.settings.forced_end and not truncated:
        read = len(part.source), len(part.prefix)
        limit = longest_output(translator.ensemble.models, translator.settings, *read)
        truncated = len(tokens) >= limit
    return Hypothesis(text, score, float(log_prob), tuple(tokens), truncated)


def _joined(
    translator: Translator, parts: Sequence[Part], found: Sequence[list[Hypothesis]]
) -> list[Hypothesis]:
    """The translations of a text from those of its parts; of several parts the best of each, with
    all tokens, each part but the last ending in EOS."""
    if len(parts) == 1:
        [part], [hypotheses] = parts, found
        return [replace(one, text=part.line.around(one.text)) for one in hypotheses]
    *before, last = best = [first for first, *_ in found]
    ended = [one.tokens if one.tokens[-1:] == (EOS,) else (*one.tokens, EOS) for one in before]
    tokens = (*chain.from_iterable(ended), *last.tokens)
    log_prob = sum(one.log_prob for one in best)
    return [
        Hypothesis(
            "".join(part.line.around(one.text) for part, one in zip(parts, best)),
            float(log_prob / length_penalty(translator.settings, max(1, len(tokens)))),
            log_prob,
            tokens,
            any(one.truncated for one in best),
        )
    ]


def _texts(translator: Translator, part: Part, rows: Sequence[Sequence[int]]) -> list[str]:
    """The texts of tokens, on one line each, beginning with the prefix as it was typed."""
    texts = [one_line(text) for text in translator.tokenizers.target.decode(rows)]
    if part.typed:
        [known] = translator.tokenizers.target.decode([part.prefix])
        texts = [continued(part.typed, one_line(known), text) for text in texts]
    if not part.capitals:
        return texts
    typed, target = len(part.typed), translator.tokenizers.target
    return [text[:typed] + in_upper_case(target, text[typed:]) for text in texts]


def split(
    translator: Translator, sentences: Sequence[str], prefixes: Sequence[str] | None = None
) -> list[Part]:
    """The texts in parts, as tokens: lines, or sentences of lines that are too long, each with the
    target tag."""
    source = translator.tokenizers.source
    longest = longest_text(translator.ensemble.models, translator.settings)
    copies, glossary = translator.settings.copy_without_letters, translator.glossary
    parts: list[Part] = []
    beginnings = _cut_prefixes(translator, list(prefixes or [""] * len(sentences)))
    lines = [_tagged_lines(translator, text) for text in sentences]
    encoded = iter(source.encode([one.tag + one.text for of_text in lines for one in of_text]))
    for number, (of_text, beginning) in enumerate(zip(lines, beginnings)):
        for line, ids in zip(of_text, encoded):
            cut = [line.text] if len(ids) <= longest else split_sentences(line.text)
            rows = [ids] if len(cut) == 1 else source.encode([line.tag + text for text in cut])
            for place, (text, row) in enumerate(zip(cut, rows), start=1):
                prefix, typed = beginning if row else NO_PREFIX
                beginning = NO_PREFIX if row else beginning
                typed_line = Line.of(text, line.separator if place == len(cut) else "")
                is_copied = copies and not (prefix or typed or has_letters(text))
                if len(row) > longest and not is_copied:
                    _warn_of_cut(translator, row, longest, text)
                parts.append(
                    Part(
                        number,
                        row[:longest],
                        row[longest:],
                        prefix,
                        typed,
                        copied=typed_line.text if is_copied else "",
                        line=typed_line._replace(before="") if typed else typed_line,
                        repeated=int(line.repeats_tag if place == 1 else bool(line.tag)),
                        terms=glossary.terms(text) if glossary and not is_copied else [],
                        capitals=line.capitals,
                    )
                )
    return parts


def _warn_of_cut(translator: Translator, row: list[int], longest: int, text: str) -> None:
    is_own = longest == translator.settings.max_source_length
    setting = "decode.max_source_length" if is_own else "model.max_positions"
    warnings.warn(
        f"a sentence of {len(row):,} tokens was truncated to {longest:,} ({setting}): "
        f"{text[:60]!r} ...",
        stacklevel=5,
    )


class TaggedLine(NamedTuple):
    """A line of a text.

    tag          its target tag, or that of an earlier line
    text         the rest of the line; of a line in capitals, in the usual case if case is restored
    separator    what stands after it
    repeats_tag  whether the tag is that of an earlier line
    capitals     whether its case was restored
    """

    tag: str
    text: str
    separator: str
    repeats_tag: bool
    capitals: bool


def _tagged_lines(translator: Translator, text: str) -> list[TaggedLine]:
    source, lines, tag = translator.tokenizers.source, [], ""
    for line, separator in split_lines(text) or [("", "")]:
        own, _ = source.split_tag(line)
        tag = own or tag
        if line.strip():
            _, rest = read_source(source, line if own else tag + line)
            line = rest.lstrip() if own else line
        capitals = translator.settings.restore_case and in_capitals(line)
        line = with_case_restored(source, line) if capitals else line
        used = tag if line.strip() else ""
        lines.append(TaggedLine(used, line, separator, bool(used) and not own, capitals))
    return lines


def _cut_prefixes(translator: Translator, prefixes: list[str]) -> list[tuple[list[int], str]]:
    """Prefixes as tokens, as many as fit, and as text if all of them do."""
    longest = longest_prefix(translator.ensemble.models, translator.settings)
    rows = translator.tokenizers.target.encode([*map(one_line, prefixes)])
    for prefix, row in zip(prefixes, rows):
        if len(row) > longest:
            warnings.warn(
                f"a prefix of {len(row):,} tokens was truncated to {longest:,} (decode.max_length "
                f"or model.max_positions): {prefix[:60]!r} ...",
                stacklevel=5,
            )
    return [
        (row[:longest], prefix if len(row) <= longest else "")
        for prefix, row in zip(prefixes, rows)
    ]


def _search(
    translator: Translator, parts: list[Part], wanted: int
) -> Iterator[tuple[int, list[tuple[list[int], float]]]]:
    """For each part that needs a search its number and its hypotheses, tokens and score."""
    models, settings = translator.ensemble.models, translator.settings
    sources = [[] if part.copied else part.source for part in parts]
    prefixes, terms = [part.prefix for part in parts], [part.terms for part in parts]
    continues = translator.glossary and translator.glossary.continues
    batches = search_batches(models, settings, sources, prefixes, terms, continues)
    batches = [with_shortlist(translator.lexicon, settings, batch) for batch in batches]
    is_over = Event()

    def inputs(batches: list[SearchBatch]) -> Iterator[SearchInput]:
        for batch in batches:
            if is_over.is_set():
                raise CancelledError
            yield batch.inputs

    def search_all(batches: list[SearchBatch]) -> list[tuple[SearchBatch, SearchResult]]:
        found = []
        for group in group_by_shape(batches):
            ensemble = translator.ensemble_for(group[0].inputs)
            found += zip(group, search_series(ensemble, settings, inputs(group), wanted))
        return found

    with ThreadPoolExecutor(WORKERS) as pool:
        work = [pool.submit(search_all, own) for own in balance(batches, WORKERS)]
        try:
            for one in as_completed(work):
                for batch, result in one.result():
                    for row, number in enumerate(batch.numbers):
                        yield number, result.hypotheses(row)
        finally:
            is_over.set()  # after Ctrl-C or an error the other worker stops at its next batch


def search_batch(
    ensemble: Ensemble,
    settings: DecodeConfig,
    source: Int[np.ndarray | Array, "B S"],
    wanted: int = 1,
    prefix: Int[np.ndarray | Array, "B P"] | None = None,
) -> SearchResult:
    """Encodes a batch and searches for the `wanted` best translations, which begin with `prefix`.
    Rows of padding take no steps."""
    [result] = search_series(ensemble, settings, [SearchInput(source, prefix)], wanted)
    return result


def search_series(
    ensemble: Ensemble,
    settings: DecodeConfig,
    batches: Iterable[SearchInput],
    wanted: int,
) -> list[SearchResult]:
    """The same for the inputs of several batches of one shape, each encoded when it is needed. If
    more than one is wanted, up to twice the beam may be found."""
    models, params, tokens = ensemble.models, ensemble.params, ensemble.tokens
    states = (begin_search(models, settings, params, batch, tokens) for batch in batches)
    if wanted > 1:
        states = (keep_more(state, 2 * settings.beam_size) for state in states)
    return search_continuously(ensemble, BeamSearch(settings, wanted), states)


@partial(jax.jit, static_argnums=(0, 1))
def begin_search(
    models: tuple[ModelConfig, ...],
    settings: DecodeConfig,
    params: tuple[Params, ...],
    inputs: SearchInput,
    allowed: Int[Array, "C"] | None = None,
) -> SearchState:
    """The sentences encoded, and their search before its first token. `allowed` are the tokens that
    the models have logits of, if these are not all.

    Its inputs have few lengths, so that it is compiled for few shapes.
    """
    source, prefix, terms, shortlist = inputs
    memories = [encode(model, member, source) for model, member in zip(models, params)]
    tokens = memories[0].lengths - 1  # without EOS
    given = 0 if prefix is None else (prefix != PAD).sum(1)
    limits = longest_output(models, settings, tokens, given)
    limits = jnp.where(tokens > 0, limits, 0)
    rows, length = len(source), inputs.length
    capacity = initial_capacity(rows, length)
    caches = tuple(
        init_cache(*member, pad_memory(memory, length), rows, capacity, settings.beam_size)
        for *member, memory in zip(models, params, memories)
    )
    if shortlist is not None:
        caches = tuple(map(partial(with_output_rows, shortlist), models, params, caches))
    elif allowed is not None:
        shortlist = jnp.broadcast_to(allowed, (rows, len(allowed)))
    max_length = longest_output(models, settings, length)
    if terms is not None:
        needed = jnp.where(limits > 0, (terms.forms != PAD).sum((1, 2)) + 1, 0)
        limits = jnp.minimum(jnp.maximum(limits, needed), max_length)
    state = start(settings, caches, limits, max_length, prefix=prefix)
    return state.replace(
        terms=terms and start_terms(terms, settings.beam_size), shortlist=shortlist
    )
