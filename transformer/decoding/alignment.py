"""Which source words the words of a translation come from, by cross-attention."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from transformer.data.tokenizer import BLANK
from transformer.decoding.batches import teacher_forced_batches
from transformer.decoding.scoring import attention_to_source
from transformer.decoding.translator import BATCHES_AT_ONCE, Part, Translator, split
from transformer.model.batch import EOS

Links = list[tuple[int, int]]
"""Pairs of a source word and a target word, counted from 0."""


def alignments(
    translator: Translator, sentences: Sequence[str], found: Sequence[Sequence[int]]
) -> list[Links]:
    """The links between the words of each sentence and of its translation, given as tokens (those
    of a `Hypothesis`)."""
    links: list[Links] = [[] for _ in sentences]
    words = [[0, 0] for _ in sentences]  # in the parts before
    rest = [list(tokens) for tokens in found]
    parts, targets = split(translator, sentences), []
    for part in parts:
        tokens = rest[part.text]
        end = tokens.index(EOS) + 1 if EOS in tokens else len(tokens)
        targets.append(tokens[:end])
        del tokens[:end]
    for part, of_part in zip(parts, _links_of_parts(translator, parts, targets)):
        before = words[part.text]
        links[part.text] += [(s + before[0], t + before[1]) for s, t in of_part.links]
        before[0] += of_part.source_words
        before[1] += of_part.target_words
    return links


class _Linked(NamedTuple):
    links: Links
    source_words: int
    target_words: int


def _links_of_parts(
    translator: Translator, parts: list[Part], targets: list[list[int]]
) -> list[_Linked]:
    source_side, target_side = translator.tokenizers
    attention: dict[int, np.ndarray] = {}
    sources = [part.source for part in parts]
    models, settings = translator.ensemble.models, translator.settings
    batches = [*teacher_forced_batches(models, settings, sources, targets)]
    tables = [batch[1:] for batch in batches]
    with ThreadPoolExecutor(BATCHES_AT_ONCE) as pool:
        read = pool.map(lambda pair: attention_to_source(translator.ensemble, *pair), tables)
        for (numbers, *_), found in zip(batches, read):
            attention |= dict(zip(numbers, found))
    linked = []
    for number, (part, target) in enumerate(zip(parts, targets)):
        pieces = (
            source_side.pieces(part.source),
            target_side.pieces([token for token in target if token != EOS]),
        )
        links = word_links(attention[number], *pieces) if number in attention else []
        whole = [*pieces[0], *source_side.pieces(part.rest)], pieces[1]
        counts = (int(word_numbers(side)[-1]) + 1 if side else 0 for side in whole)
        linked.append(_Linked(links, *counts))
    return linked


def word_links(
    attention: Float[np.ndarray, "T S"], source: Sequence[str], target: Sequence[str]
) -> Links:
    """For each target word the source word that is looked at most while it is predicted. `source`
    and `target` are pieces, without EOS; `attention` may have more rows and columns."""
    source_words, target_words = word_numbers(source), word_numbers(target)
    if not (len(source) and len(target)):
        return []
    looked = attention[: len(target), : len(source)]
    by_word = np.zeros((target_words[-1] + 1, source_words[-1] + 1))
    np.add.at(by_word, (target_words[:, None], source_words[None]), looked)
    return [(int(found), number) for number, found in enumerate(by_word.argmax(1))]


def word_numbers(pieces: Sequence[str]) -> Int[np.ndarray, "P"]:
    """The word that each piece belongs to. Words begin with a blank; several in a row are one."""
    begins = np.array([piece.startswith(BLANK) for piece in pieces], bool)
    is_blank = np.array([not piece.strip(BLANK) for piece in pieces], bool)
    begins[1:] &= ~(is_blank[:-1] & begins[:-1])
    begins[:1] = True
    return np.cumsum(begins) - 1


def pharaoh(links: Links) -> str:
    """The links as text, such as "0-0 1-2": source word, target word."""
    return " ".join(f"{source}-{target}" for source, target in sorted(links))
