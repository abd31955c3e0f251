"""Documents: text that stays, and slots for translations."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from transformer.documents.segment import Item, Segment

Escape = Callable[[str], str]
"""How a document writes a character."""


class Slot(NamedTuple):
    """The place of a translation.

    segment   what is translated
    raw       what stands there now, and stays if nothing is translated
    escape    how the document writes a character of the translation
    before    what is written before a translation, such as the tag of an element for it
    after     what is written after it
    """

    segment: Segment
    raw: str
    escape: Escape
    before: str = ""
    after: str = ""


Document = list[str | Slot]
"""The parts of a document, in order."""


def segments(document: Document) -> list[Segment]:
    """What is translated."""
    return [part.segment for part in document if isinstance(part, Slot)]


def written(
    document: Document, translations: Sequence[list[tuple[str, Item | None]] | None]
) -> str:
    """The document with the translations of its segments, each as `put_back` returns it; None is a
    segment that is copied."""
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


def spelled(slot: Slot, pieces: list[tuple[str, Item | None]]) -> str:
    """A translation as the document writes it: the k-th time that a character occurs, as it is
    written for the k-th time in the source."""
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
    return "".join(found)


def original(document: Document) -> str:
    """The document as it was read."""
    return "".join(part if isinstance(part, str) else part.raw for part in document)
