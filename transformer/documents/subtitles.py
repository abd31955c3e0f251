"""Subtitles: SubRip (.srt) and WebVTT, whose cues have a line of times and then lines of text."""

import re

from transformer.documents.document import Document, Slot
from transformer.documents.segment import Segment, Token
from transformer.documents.tags import with_tags

LINE = re.compile(r"[^\n]*\n|[^\n]+")
TIMES = re.compile(r"\s*(?:\d+:)?\d+:\d\d[,.]\d+\s*-->")
DASH = re.compile(r"\s*[-\u2010\u2013\u2014]\s*(?=\S)")
"""What begins a line of one of several persons."""


def read_subtitles(source: str) -> Document:
    """The lines of a cue are one text. Its translation is divided at about the same share of it; a
    line that begins with a dash begins another text."""
    document: Document = []
    texts: list[str] = []
    is_cue = False
    for line in LINE.findall(source):
        is_text = is_cue and bool(line.strip()) and not TIMES.match(line)
        if not is_text:
            document += [part for text in texts for part in _parts(text)]
            document.append(line)
            texts = []
            is_cue = bool(TIMES.match(line))
        elif texts and not DASH.match(line):
            texts[-1] += line
        else:
            texts.append(line)
    return document + [part for text in texts for part in _parts(text)]


def _parts(text: str) -> Document:
    dash = DASH.match(text)
    before = dash[0] if dash else ""
    rest = text[len(before) :]
    segment = Segment((*with_tags([Token(one, "text", one) for one in rest]),))
    if not segment.is_translatable:
        return [text]
    return [before, Slot(segment, rest, escape=str)]
