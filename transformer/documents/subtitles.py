"""Subtitles: SubRip (.srt) and WebVTT, whose cues have a line of times and then lines of text."""

import re

from transformer.documents.document import Document, Slot, lines
from transformer.documents.embedded_tags import with_tags
from transformer.documents.html import characters, escape
from transformer.documents.segment import Segment, characters_of
from transformer.errors import UserError

TIMES = re.compile(r"\s*(?:\d+:)?\d+:\d\d[,.]\d+\s*-->")
NUMBER = re.compile(r"^\s*\d+\s*\Z", re.MULTILINE)
DASH = re.compile(r"\s*[-\u2010\u2013\u2014]\s*(?=\S)")
"""The beginning of a line of one of several speakers."""


def read_subtitles(source: str) -> Document:
    """The lines of a cue are one text. Its translation is divided at about the same words; a line
    that begins with a dash begins another text. Raises UserError if there is no cue."""
    document: Document = []
    texts: list[str] = []
    is_cue = has_cue = False
    is_webvtt = source.lstrip("\ufeff").startswith("WEBVTT")
    for line in lines(source):
        is_times = bool(TIMES.match(line))
        if is_times or not (is_cue and line.strip("\r\n")):
            texts, number = _without_number(texts, is_times)
            document += [part for text in texts for part in _parts(text, is_webvtt)]
            document += [number, line]
            texts = []
            # A blank line ends a cue of WebVTT; in SubRip, the next number and times do.
            is_cue = is_times or (is_cue and not is_webvtt)
            has_cue |= is_times
        elif texts and not DASH.match(line):
            texts[-1] += line
        else:
            texts.append(line)
    document += [part for text in texts for part in _parts(text, is_webvtt)]
    if source.strip("\ufeff\r\n\t ") and not (is_webvtt or has_cue):
        raise UserError("the document has no line of times, such as 00:00:01,000 --> 00:00:02,000")
    return document


def _without_number(texts: list[str], has_next: bool) -> tuple[list[str], str]:
    """The texts of a cue without the number of the next one, if no blank line is between them."""
    found = NUMBER.search(texts[-1]) if texts and has_next else None
    if not found:
        return texts, ""
    rest = texts[-1][: found.start()]
    return [*texts[:-1], *([rest] if rest else [])], found[0]


def _parts(text: str, is_webvtt: bool) -> Document:
    """A text behind its dash; WebVTT has character references."""
    dash = DASH.match(text)
    before = dash[0] if dash else ""
    rest = text[len(before) :]
    symbols = [*(characters(rest) if is_webvtt else characters_of(rest))]
    segment = Segment((*with_tags(symbols),), lines="kept")
    if not segment.is_translatable:
        return [text]
    return [before, Slot(segment, rest, escape if is_webvtt else str)]
