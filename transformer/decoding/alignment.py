"""Which source words the words of a translation come from, by cross-attention."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int

from transformer.data.capitals import in_upper_case
from transformer.data.tokenizer import BLANK, Tokenizer
from transformer.decoding.batches import last_position, teacher_forced_batches
from transformer.decoding.ensemble import Ensemble
from transformer.decoding.scoring import shifted
from transformer.decoding.translator import WORKERS, Part, Translator, split
from transformer.model.batch import EOS
from transformer.model.encoder_decoder import decode, encode

Links = list[tuple[int, int]]
"""Pairs of a source word and a target word, counted from 0."""


class WordAttention(NamedTuple):
    """The attention of the words of a translation to those of its part of the text.

    Each row of `weights` is the mean over a word's pieces while they are predicted. It sums to at
    most 1: the rest goes to EOS. Words that were cut off have no attention. Text that is copied
    instead of translated has all attention at the words themselves.
    """

    source: list[str]
    target: list[str]
    weights: Float[np.ndarray, "T S"]


class PieceAttention(NamedTuple):
    """The same for pieces of the vocabularies."""

    source: list[str]
    target: list[str]
    weights: Float[np.ndarray, "T S"]


def alignments(
    translator: Translator, sentences: Sequence[str], found: Sequence[Sequence[int]]
) -> list[Links]:
    """The links between the words of each sentence and of its translation, given as tokens (those
    of a `Hypothesis`)."""
    links: list[Links] = []
    for parts in word_attention(translator, sentences, found):
        read = written = 0  # words in the parts before
        links.append([])
        for part in parts:
            links[-1] += [(s + read, t + written) for s, t in _strongest(part.weights)]
            read += len(part.source)
            written += len(part.target)
    return links


def word_attention(
    translator: Translator, sentences: Sequence[str], found: Sequence[Sequence[int]]
) -> list[list[WordAttention]]:
    """The attention of the words of each translation, given as tokens; for each part of a text that
    was translated separately."""
    by_sentence: list[list[WordAttention]] = [[] for _ in sentences]
    for part, target, attention in _by_part(translator, sentences, found):
        by_sentence[part.number].append(_by_word(translator, attention, part, target))
    return by_sentence


def piece_attention(
    translator: Translator, sentences: Sequence[str], found: Sequence[Sequence[int]]
) -> list[list[PieceAttention]]:
    """The attention of the pieces of each translation, given as tokens; for each part of a text
    that was translated separately."""
    by_sentence: list[list[PieceAttention]] = [[] for _ in sentences]
    for part, target, attention in _by_part(translator, sentences, found):
        source = translator.tokenizers.source.pieces(part.source[part.repeated :])
        written = translator.tokenizers.target.pieces(target)
        weights = np.zeros((len(written), len(source)))
        if attention is not None and weights.size:
            weights = attention[: len(written), part.repeated :][:, : len(source)]
        by_sentence[part.number].append(PieceAttention(source, written, weights))
    return by_sentence


def _by_part(
    translator: Translator, sentences: Sequence[str], found: Sequence[Sequence[int]]
) -> Iterator[tuple[Part, list[int], Float[np.ndarray, "T S"] | None]]:
    """Each part of the sentences, the tokens of its translation without EOS, and the attention
    between them, if both have tokens."""
    parts, targets = parts_with_targets(translator, sentences, found)
    tables = _read(translator, parts, targets)
    for number, (part, target) in enumerate(zip(parts, targets)):
        yield part, [token for token in target if token != EOS], tables.get(number)


def parts_with_targets(
    translator: Translator, sentences: Sequence[str], found: Sequence[Sequence[int]]
) -> tuple[list[Part], list[list[int]]]:
    """The parts of the sentences, and the tokens of the translation of each, with EOS where the
    model has a position for it."""
    longest = last_position(translator.ensemble.models)
    rest = [list(tokens) for tokens in found]
    parts, targets = split(translator, sentences), []
    for part in parts:
        tokens = rest[part.number]
        end = tokens.index(EOS) + 1 if EOS in tokens else len(tokens)
        targets.append(tokens[: min(end, longest)])
        del tokens[:end]
    return parts, targets


def _read(
    translator: Translator, parts: list[Part], targets: list[list[int]]
) -> dict[int, Float[np.ndarray, "T S"]]:
    """The attention between the pieces of each part, by its number, if both sides have pieces."""
    attention: dict[int, np.ndarray] = {}
    sources = [part.source for part in parts]
    models, settings = translator.ensemble.models, translator.settings
    batches = [*teacher_forced_batches(models, settings, sources, targets)]
    tables = [batch[1:] for batch in batches]
    with ThreadPoolExecutor(WORKERS) as pool:
        read = pool.map(lambda pair: attention_to_source(translator.ensemble, *pair), tables)
        for (numbers, *_), found in zip(batches, read):
            attention |= dict(zip(numbers, found))
    return attention


def _by_word(
    translator: Translator,
    attention: Float[np.ndarray, "T S"] | None,
    part: Part,
    target: list[int],
) -> WordAttention:
    source_side, target_side = translator.tokenizers
    whole = [*part.source, *part.rest][part.repeated :]
    source, written = _words(source_side, whole), _words(target_side, target)
    if part.copied and not target:
        return WordAttention(source, source, np.eye(len(source)))
    if part.capitals:
        source = [in_upper_case(source_side, word) for word in source]
        written = [in_upper_case(target_side, word) for word in written]
    weights = np.zeros((len(written), len(source)))
    if attention is not None and weights.size:
        pieces = source_side.pieces(part.source[part.repeated :]), target_side.pieces(target)
        found = word_weights(attention[:, part.repeated :], *pieces)
        weights[:, : found.shape[1]] = found
    return WordAttention(source, written, weights)


def _words(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    """The words of a text, given as tokens."""
    rows: list[list[int]] = []
    for token, number in zip(ids, word_numbers(tokenizer.pieces(ids))):
        rows += [[]] if number == len(rows) else []
        rows[-1].append(token)
    return tokenizer.decode(rows)


def attention_to_source(
    ensemble: Ensemble, source: Int[np.ndarray, "B S"], target: Int[np.ndarray, "B T"]
) -> Float[np.ndarray, "B T S"]:
    """The attention to each token of the source while each token of the targets, EOS included, is
    predicted: the mean over the models and all heads, without those of the first layer if there are
    more layers."""
    return np.asarray(_attention(ensemble.models, ensemble.params, source, target))


@partial(jax.jit, static_argnums=0)
def _attention(models, params, source, target) -> Float[Array, "B T S"]:
    def of_layers(model, params):
        weights: Any = decode(model, params, encode(model, params, source), shifted(target))[2]
        cross = [layer.cross for layer in weights]
        return jnp.stack(cross[min(1, len(cross) - 1) :])

    each = [of_layers(*member) for member in zip(models, params)]
    return sum(layers.mean((0, 2)) for layers in each) / len(each)


def word_links(
    attention: Float[np.ndarray, "T S"], source: Sequence[str], target: Sequence[str]
) -> Links:
    """For each target word the source word with the most attention while it is predicted. `source`
    and `target` are pieces, without EOS; `attention` may have more rows and columns."""
    return _strongest(word_weights(attention, source, target))


def word_weights(
    attention: Float[np.ndarray, "T S"], source: Sequence[str], target: Sequence[str]
) -> Float[np.ndarray, "target_words source_words"]:
    """The same table for words: the sum over a source word's pieces, the mean over a target's."""
    rows, columns = word_numbers(target), word_numbers(source)
    by_word = np.zeros((rows.max(initial=-1) + 1, columns.max(initial=-1) + 1))
    between = attention[: len(target), : len(source)]
    np.add.at(by_word, (rows[:, None], columns[None]), between)
    return by_word / np.bincount(rows)[:, None]


def _strongest(weights: Float[np.ndarray, "T S"]) -> Links:
    if not weights.size:
        return []
    return [(int(found), number) for number, found in enumerate(weights.argmax(1))]


def word_numbers(pieces: Sequence[str]) -> Int[np.ndarray, "P"]:
    """The word that each piece belongs to. Words begin with SentencePiece's blank; several in a row
    are one."""
    begins = np.array([piece.startswith(BLANK) for piece in pieces], bool)
    is_blank = np.array([not piece.strip(BLANK) for piece in pieces], bool)
    begins[1:] &= ~(is_blank[:-1] & begins[:-1])
    begins[:1] = True
    return np.cumsum(begins) - 1


def pharaoh(links: Links) -> str:
    """The links as text, such as "0-0 1-2": source word, target word."""
    return " ".join(f"{source}-{target}" for source, target in sorted(links))
