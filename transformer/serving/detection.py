"""The language of a text, as far as vocabularies tell."""

import math
from collections.abc import Mapping, Sequence

from transformer.data.tokenizer import BLANK, Tokenizer
from transformer.model.batch import UNK

UNKNOWN = 5
"""Pieces that an unknown character counts as."""


def confidences(vocabularies: Mapping[str, Sequence[Tokenizer]], text: str) -> dict[str, float]:
    """How sure each language is, in percent, the surest first, given the vocabularies of its side.

    A vocabulary spells its own language in few pieces, so the language with the fewest is the
    likeliest: each piece more costs a factor of e. Languages with the same vocabulary are equally
    sure. Of one language alone nothing can be compared: its confidence is 0.
    """
    if len(vocabularies) == 1:
        return dict.fromkeys(vocabularies, 0.0)
    costs = {
        language: min(_cost(vocabulary, text) for vocabulary in known)
        for language, known in vocabularies.items()
    }
    weights = {name: math.exp(min(costs.values()) - cost) for name, cost in costs.items()}
    total = sum(weights.values())
    order = sorted(weights, key=weights.__getitem__, reverse=True)
    return {name: round(100 * weights[name] / total, 1) for name in order}


def _cost(vocabulary: Tokenizer, text: str) -> int:
    """Pieces of a text. Of unknown characters, which together are one piece, each counts."""
    [ids] = vocabulary.encode([text])
    if UNK not in ids:
        return len(ids)
    known = "".join(vocabulary.pieces([number for number in ids if number != UNK]))
    unknown = len("".join(text.split())) - len(known.replace(BLANK, ""))
    return len(ids) + UNKNOWN * max(0, unknown)
