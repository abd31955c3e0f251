"""The translation of a document: which sentences are translated, and where the results go."""

from collections.abc import Callable, Generator, Sequence
from typing import NamedTuple

import numpy as np

from transformer.data.tokenizer import has_letters
from transformer.documents.document import Document, segments, written
from transformer.documents.placeholders import NUMBERS, PLACEHOLDER, as_markup, lost
from transformer.documents.placement import Aligned, put_back
from transformer.documents.segment import Segment
from transformer.documents.sentences import split_sentences
from transformer.documents.units import units

Translation = Generator[list[str], Sequence[Aligned] | None, str]
"""It asks for translations of sentences, is sent them, and returns the document."""


class Handling(NamedTuple):
    """How text is treated: its language, and whether numbers stay as they are."""

    language: str
    keep_numbers: bool = False


def translated(
    document: Document, translate: Callable[[list[str]], Sequence[Aligned]], handling: Handling
) -> str:
    """The document with its segments translated. Placeholders and markup occur once, as they are;
    what has no letters stays."""
    translation = translation_of(document, handling)
    found: Sequence[Aligned] | None = None
    try:
        while True:
            found = translate(translation.send(found))
    except StopIteration as end:
        return end.value


def translation_of(document: Document, handling: Handling) -> Translation:
    """The steps of a translation: first all sentences as they are, then once more those segments
    whose translations lost placeholders, with the placeholders as markup."""
    pattern = NUMBERS if handling.keep_numbers else PLACEHOLDER
    wanted = segments(document)
    found = yield from _aligned(wanted, handling.language)
    again = {
        number: as_markup(segment, pattern)
        for number, (segment, one) in enumerate(zip(wanted, found))
        if one is not None and lost(segment, one.text, pattern)
    }
    protected = yield from _aligned([*again.values()], handling.language)
    for (number, segment), one in zip(again.items(), protected):
        wanted[number], found[number] = segment, one
    return written(
        document,
        [one and put_back(segment, one) for segment, one in zip(wanted, found)],
    )


def _aligned(
    wanted: Sequence[Segment], language: str
) -> Generator[list[str], Sequence[Aligned] | None, list[Aligned | None]]:
    """The translation of each segment; None for those without letters."""
    cut = [split_sentences(one.text, language) if one.is_translatable else [] for one in wanted]
    asked = [text.strip() for texts in cut for text in texts if has_letters(text)]
    answers = iter(((yield asked) if asked else None) or [])
    return [
        joined(texts, [next(answers) if has_letters(text) else unchanged(text) for text in texts])
        if texts
        else None
        for texts in cut
    ]


def joined(sentences: Sequence[str], found: Sequence[Aligned]) -> Aligned:
    """The translations of the sentences of a text as one, with the whitespace between them."""
    text = ""
    for sentence, one in zip(sentences, found):
        text += one.text.strip() + sentence[len(sentence.rstrip()) :]
    sizes = np.array([one.weights.shape for one in found])
    weights = np.zeros(sizes.sum(0))
    for (rows, columns), one in zip(sizes.cumsum(0) - sizes, found):
        weights[rows : rows + len(one.weights), columns : columns + one.weights.shape[1]] = (
            one.weights
        )
    return Aligned(text, weights)


def unchanged(text: str) -> Aligned:
    """A text as its own translation."""
    return Aligned(text.strip(), np.eye(len(units(text))))
