"""The translation of documents, sentence by sentence."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from transformer.documents.document import Document, Pieces, segments, written
from transformer.documents.placeholders import NUMBERS, PLACEHOLDER, as_markup, lost
from transformer.documents.placement import Aligned, put_back
from transformer.documents.segment import Segment
from transformer.documents.sentences import sentences
from transformer.documents.units import UNSPACED_CHARACTER, units

Translate = Callable[[list[str], bool], Sequence[Aligned]]
"""From sentences, and whether they need alignment, to their translations."""


class Handling(NamedTuple):
    """How text is treated: its language, and whether numbers stay as they are."""

    language: str
    keep_numbers: bool = False


def translated(document: Document, translate: Translate, handling: Handling) -> str:
    """The document with its segments translated. Placeholders and markup occur once, as they are.
    Text without letters is copied."""
    [text] = all_translated([document], translate, handling)
    return text


def all_translated(
    documents: Sequence[Document], translate: Translate, handling: Handling
) -> list[str]:
    """Several documents, translated together."""
    pattern = NUMBERS if handling.keep_numbers else PLACEHOLDER
    cut = [
        [[*sentences(segment, handling.language)] for segment in segments(document)]
        for document in documents
    ]
    wanted = [one for of_document in cut for own in of_document for one in own]
    wanted = [one for one in wanted if one.is_translatable]
    found = _aligned(wanted, translate)
    again = [n for n, one in enumerate(found) if lost(wanted[n], one.text, pattern)]
    protected = [as_markup(wanted[n], pattern) for n in again]
    found = [put_back(segment, one) for segment, one in zip(wanted, found)]
    for n, segment, one in zip(again, protected, _aligned(protected, translate)):
        found[n] = put_back(segment, one)
    translations = iter(found)
    return [
        written(document, [_joined(own, translations) for own in of_document])
        for document, of_document in zip(documents, cut)
    ]


def _aligned(wanted: Sequence[Segment], translate: Translate) -> list[Aligned]:
    """The translation of each sentence; of one without letters, itself."""
    found: list[Any] = [
        None if segment.is_translatable else unchanged(segment.text) for segment in wanted
    ]
    for needs_alignment in (False, True):
        numbers = [
            number
            for number, segment in enumerate(wanted)
            if segment.is_translatable and segment.needs_alignment == needs_alignment
        ]
        if numbers:
            texts = [wanted[number].text for number in numbers]
            for number, one in zip(numbers, translate(texts, needs_alignment), strict=True):
                found[number] = one
    return found


def _joined(own: Sequence[Segment], translations) -> Pieces | None:
    """The translation of a segment from those of its sentences; None if it has no letters."""
    if not any(sentence.is_translatable for sentence in own):
        return None
    pieces: Pieces = []
    for before, sentence in zip([None, *own], own):
        if before and _needs_space(before, pieces):
            pieces.append((" ", None))
        if sentence.is_translatable:
            pieces += next(translations)
        else:
            pieces += put_back(sentence, unchanged(sentence.text))
    return pieces


def _needs_space(before: Segment, pieces: Pieces) -> bool:
    """Whether a sentence of a script without spaces was translated into one with spaces."""
    written = (text if item is None else item.raw for text, item in reversed(pieces))
    last = next(filter(None, written), "")[-1:]
    return bool(
        last
        and UNSPACED_CHARACTER.match(before.symbols[-1].raw[-1:])
        and not (last.isspace() or UNSPACED_CHARACTER.match(last))
    )


def unchanged(text: str) -> Aligned:
    """A text as its own translation."""
    return Aligned(text, np.eye(len(units(text))))
