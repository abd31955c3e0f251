"""Translations of sentences, aligned unit by unit with their sources."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from transformer.data.tags import with_tag
from transformer.data.tokenizer import BLANK
from transformer.decoding.alignment import PieceAttention, piece_attention
from transformer.decoding.translator import Hypothesis, Translator, best_hypotheses
from transformer.documents.placement import Aligned
from transformer.documents.units import Span, units

SLACK = 16
"""Characters within which the next piece is looked for in a text; normalisation changes some."""


def aligned_translations(
    translator: Translator, sentences: Sequence[str], target: str = ""
) -> list[Aligned]:
    """The best translation of each sentence; into this language, for a model that has several."""
    tagged = [with_tag(translator.tokenizers.source, one, target) for one in sentences]
    return aligned(translator, tagged, best_hypotheses(translator, tagged))


def aligned(
    translator: Translator, sentences: Sequence[str], found: Sequence[Hypothesis]
) -> list[Aligned]:
    """Translations, aligned with their sentences without target tags."""
    attention = piece_attention(translator, sentences, [one.tokens for one in found])
    texts = [translator.tokenizers.source.split_tag(sentence)[1] for sentence in sentences]
    return [
        Aligned(one.text, unit_weights(text, one.text, parts))
        for text, one, parts in zip(texts, found, attention)
    ]


def unit_weights(
    source: str, target: str, parts: Sequence[PieceAttention]
) -> Float[np.ndarray, "T S"]:
    """The attention between the units of a text and those of its translation: of a target unit the
    mean over its characters, of a source unit the sum over those of its pieces."""
    read = [piece for part in parts for piece in part.source]
    written = [piece for part in parts for piece in part.target]
    weights = np.zeros((len(written), len(read)))
    row = column = 0
    for part in parts:
        rows, columns = part.weights.shape
        weights[row : row + rows, column : column + columns] = part.weights
        row, column = row + rows, column + columns
    columns = overlaps(units(source), spans(source, read))
    rows = overlaps(units(target), spans(target, written))
    rows /= np.maximum(rows.sum(1, keepdims=True), 1)
    return rows @ weights @ (columns / np.maximum(columns.sum(0), 1)).T


def spans(text: str, pieces: Sequence[str]) -> list[Span]:
    """Where each piece stands in the text; nowhere, if the text was normalised there."""
    found: list[Span] = []
    place, lowered = 0, text.lower() if len(text.lower()) == len(text) else text
    for piece in pieces:
        visible = piece.replace(BLANK, "")
        start = -1
        if visible:
            end = place + SLACK + len(visible)
            start = text.find(visible, place, end)
            start = start if start >= 0 else lowered.find(visible, place, end)
        place = start + len(visible) if start >= 0 else place
        found.append((place - len(visible), place) if start >= 0 else (place, place))
    return found


def overlaps(first: Sequence[Span], second: Sequence[Span]) -> Float[np.ndarray, "first second"]:
    """The characters that two lists of spans have in common."""
    a, b = (np.array(one).reshape(-1, 2) for one in (first, second))
    ends = np.minimum(a[:, None, 1], b[None, :, 1])
    return np.maximum(ends - np.maximum(a[:, None, 0], b[None, :, 0]), 0).astype(float)
