"""Plain text: each line is a paragraph, whose sentences are translated."""

from transformer.decoding.lines import split_lines
from transformer.documents.document import Document, Slot
from transformer.documents.segment import Segment, characters_of


def read_paragraphs(source: str) -> Document:
    """Lines with their separators. Whitespace around and between sentences stays."""
    document: Document = []
    for line, separator in split_lines(source):
        segment = Segment((*characters_of(line),))
        document.append(Slot(segment, line, escape=str) if segment.is_translatable else line)
        document.append(separator)
    return document
