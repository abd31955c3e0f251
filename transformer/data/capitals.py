"""Lines in capitals: read in the case that the model knows, and translated into capitals.

To a model, GATE and gate are different words, and few training texts have capitals. So each word of
such a line is given the case in which the vocabulary needs the fewest pieces for it, and among
those the likeliest: it is made from training text. No list of words is needed.
"""

import re
from collections.abc import Iterator
from functools import lru_cache

from transformer.data.perturbation import kept_symbols, outside
from transformer.data.tokenizer import Tokenizer
from transformer.model.batch import UNK

WORD = re.compile(r"[^\W\d_]+")

SENTENCE_END = re.compile(r"[.!?\u2026]\W*\s")
"""What stands between two words of different sentences."""

MARGIN = 2.0
"""By how much the score of a form with a capital must be higher than that of the one without: the
first words of sentences have capitals too."""

FEWEST_WORDS = 2
"""Words of a line in capitals; one alone may be an acronym."""


def in_capitals(text: str) -> bool:
    """Whether all letters of a line are capitals, in at least two words of more than one letter.
    Scripts without case have no capitals."""
    if not text.isupper() or not all(map(str.isupper, filter(str.isalpha, text))):
        return False
    return sum(len(word) > 1 for word in WORD.findall(text)) >= FEWEST_WORDS


def with_case_restored(tokenizer: Tokenizer, text: str) -> str:
    """A line in capitals in the case that the vocabulary is best at; sentences begin with a
    capital, and symbols of the vocabulary stay as they are."""
    return "".join(_parts(tokenizer, text))


def in_upper_case(tokenizer: Tokenizer, text: str) -> str:
    """A text in capitals, except for symbols of the vocabulary."""
    return outside(kept_symbols((*tokenizer.symbols, *tokenizer.tags)), str.upper, text)


def _parts(tokenizer: Tokenizer, text: str) -> Iterator[str]:
    place, kept = 0, kept_symbols(tokenizer.symbols)
    inside = {place for match in kept.finditer(text) for place in range(*match.span())}
    for match in WORD.finditer(text):
        if match.start() in inside:
            continue
        between = text[place : match.start()]
        is_first = not place or bool(SENTENCE_END.search(between))
        yield between
        yield _likeliest(tokenizer, match[0], is_first)
        place = match.end()
    yield text[place:]


@lru_cache(maxsize=10_000)
def _likeliest(tokenizer: Tokenizer, word: str, is_first: bool) -> str:
    """The best form of a word in capitals; SS may stand for \u00df."""
    lowered = dict.fromkeys((word.lower(), word.lower().replace("ss", "\u00df")))
    forms = [*lowered, *(form[:1].upper() + form[1:] for form in lowered), word]
    rows, scores = tokenizer.encode(forms), _scores(tokenizer)

    def cost(number: int) -> tuple[int, bool, int, float]:
        row, is_low = rows[number], forms[number] in lowered
        score = sum(scores[token] for token in row) + MARGIN * is_low
        return row.count(UNK), is_low and is_first, len(row), -score

    return forms[min(range(len(forms)), key=cost)]


@lru_cache(maxsize=4)
def _scores(tokenizer: Tokenizer) -> list[float]:
    """The score of each token, 0 for special ones."""
    scores = tokenizer.scores()
    return [scores.get(piece, 0.0) for piece in tokenizer.pieces(range(tokenizer.vocab_size))]
