"""Translations of sentences, aligned unit by unit with their sources."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from transformer.data.tokenizer import BLANK
from transformer.decoding.alignment import PieceAttention, piece_attention
from transformer.decoding.translator import Translator, best_hypotheses
from transformer.documents.placement import Aligned
from transformer.documents.units import Span, units

UNKNOWN = "<unk>"
SLACK = 16
"""Characters within which the next piece is looked for in a text; normalisation changes some."""


def aligned_translations(
    translator: Translator, sentences: Sequence[str], needs_alignment: bool
) -> list[Aligned]:
    """The best translation of each sentence, without spaces around it; aligned with the sentence
    without its target tag, if that is needed."""
    found = best_hypotheses(translator, sentences)
    attention: list[list[PieceAttention]] = [[] for _ in sentences]
    if needs_alignment:
        attention = piece_attention(translator, sentences, [one.tokens for one in found])
    texts = [translator.tokenizers.source.split_tag(sentence)[1] for sentence in sentences]
    translations = [one.text.strip() for one in found]
    return [
        Aligned(target, unit_weights(source, target, parts), one.truncated)
        for source, target, one, parts in zip(texts, translations, found, attention)
    ]


def unit_weights(
    source: str, target: str, parts: Sequence[PieceAttention]
) -> Float[np.ndarray, "T S"]:
    """The attention between the units of a text and those of its translation. A target unit has the
    mean over its characters; a source unit has the sum over its pieces."""
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
    """The place of each piece in the text; an empty one, if the text was normalised there."""
    found: list[Span] = []
    place, slack = 0, SLACK
    lowered = text.lower() if len(text.lower()) == len(text) else text
    for piece in pieces:
        visible = piece.replace(BLANK, "")
        start = -1
        if visible:
            end = place + slack + len(visible)
            start = text.find(visible, place, end)
            start = start if start >= 0 else lowered.find(visible.lower(), place, end)
        # An unknown piece may be any number of characters.
        slack = SLACK if start >= 0 else slack + SLACK + len(text) * (piece == UNKNOWN)
        place = start + len(visible) if start >= 0 else place
        found.append((place - len(visible), place) if start >= 0 else (place, place))
    return found


def overlaps(first: Sequence[Span], second: Sequence[Span]) -> Float[np.ndarray, "first second"]:
    """The characters that two lists of spans have in common."""
    a, b = (np.array(one).reshape(-1, 2) for one in (first, second))
    ends = np.minimum(a[:, None, 1], b[None, :, 1])
    return np.maximum(ends - np.maximum(a[:, None, 0], b[None, :, 0]), 0).astype(float)
