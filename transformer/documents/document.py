"""Documents: text that stays, and slots for translations."""

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from transformer.documents.segment import Item, Segment

MARKUP = re.compile("<[A-Za-z/!?]|&[A-Za-z0-9#]")
"""How a tag or a character reference begins."""

Pieces = list[tuple[str, Item | None]]
"""A translation: text, or an item with the space that it replaces, if any."""


class Slot(NamedTuple):
    """The place of a translation.

    segment   the text to translate
    raw       the text that stands there now
    escape    writes a character of the translation
    before    is written before the translation, such as the tag of an element for it
    after     is written after the translation
    """

    segment: Segment
    raw: str
    escape: Callable[[str], str]
    before: str = ""
    after: str = ""


Document = list[str | Slot]
"""The parts of a document, in order."""


def lines(text: str) -> list[str]:
    """The lines of a text, each with its line feed."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def segments(document: Document) -> list[Segment]:
    """The texts to translate."""
    return [part.segment for part in document if isinstance(part, Slot)]


def written(document: Document, translations: Sequence[Pieces | None]) -> str:
    """The document with the translations of its segments; None is a segment that is copied."""
    text = []
    own = iter(translations)
    for part in document:
        if isinstance(part, str):
            text.append(part)
            continue
        pieces = next(own)
        inner = part.segment.raw if pieces is None else spelled(part, pieces)
        text += [part.before, inner, part.after]
    return "".join(text)


def spelled(slot: Slot, pieces: Pieces) -> str:
    """A translation as the document writes it: the k-th time that a character occurs, as it is
    written for the k-th time in the source, unless it would begin markup there."""
    left = {text: [*reversed(raws)] for text, raws in slot.segment.spellings.items()}
    found = []
    for text, item in pieces:
        if item is not None:
            found.append(item.raw)
            continue
        for character in text:
            raws = left.get(character)
            if raws is None:
                found.append(slot.escape(character))
            else:
                found.append(raws.pop() if len(raws) > 1 else raws[0])
    return "".join(_without_new_markup(slot, [*filter(None, found)]))


def _without_new_markup(slot: Slot, found: Sequence[str]) -> Iterator[str]:
    """The characters and items of a translation, where a bare < or & that would begin markup is
    escaped, unless the source has the same there."""
    source = {one.raw + after.raw[:1] for one, after in pairwise(slot.segment.symbols)}
    for one, after in pairwise([*found, ""]):
        begin = one + after[:1]
        yield slot.escape(one) if MARKUP.fullmatch(begin) and begin not in source else one


def original(document: Document) -> str:
    """The document as it was read."""
    return "".join(part if isinstance(part, str) else part.raw for part in document)
