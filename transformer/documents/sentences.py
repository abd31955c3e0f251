"""Sentences of a segment, by the rules and abbreviations of its language (sentencex)."""

import re
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

from transformer.data.languages import base_of
from transformer.documents.segment import Segment, Symbol
from transformer.errors import UserError

LONGEST = 1_000
"""Characters of the longest sentence; a longer one is divided, at spaces if it has any."""

PART = re.compile(rf".{{1,{LONGEST}}}(?:\s+|$)|\S{{1,{LONGEST}}}\s*|\s+", re.DOTALL)


def sentences(segment: Segment, language: str) -> Iterator[Segment]:
    """The sentences of a segment, and the whitespace between them: together they are the segment.
    Tags before a sentence are in it. Raises UserError if the library is not installed."""
    symbols, text, places = segment.symbols, "", []
    for number, symbol in enumerate(symbols):
        if symbol.role in ("text", "break"):
            is_end = segment.lines == "separate" and symbol.text == "\n"
            is_space = symbol.role == "break" or symbol.text.isspace()
            text += "\n" if is_end else " " if is_space else symbol.text
            places.append(number)
    edges = [0]
    for end in accumulate(map(len, sentences_of_text(text, language))):
        edges.append(_edge(symbols, places[end] if end < len(places) else len(symbols), edges[-1]))
    for start, end in pairwise(edges):
        last = end
        while last > start and symbols[last - 1].text.isspace():
            last -= 1
        for part in (symbols[start:last], symbols[last:end]):
            if part:
                yield Segment(part, segment.lines)


def sentences_of_text(text: str, language: str) -> Iterator[str]:
    """The sentences of lines of text, each with the whitespace after it."""
    try:
        import sentencex
    except ModuleNotFoundError as error:
        raise UserError("documents need sentencex: pip install -e '.[documents]'") from error
    for line in text.splitlines(keepends=True):
        for sentence in sentencex.segment(base_of(language), line):
            yield from PART.findall(sentence) if len(sentence) > LONGEST else [sentence]


def _edge(symbols: Sequence[Symbol], edge: int, least: int) -> int:
    """The place before the tags that stand before a sentence."""
    while least < edge < len(symbols) and symbols[edge - 1].role in ("open", "alone"):
        edge -= 1
    return edge
