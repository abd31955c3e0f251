"""Texts as lines and sentences, and what their translations keep of them: separators of lines,
whitespace, and a prefix as it was typed."""

import re
from collections.abc import Iterable
from itertools import pairwise, takewhile
from typing import NamedTuple, TypeVar

Item = TypeVar("Item")
SEPARATOR = re.compile("(\r\n|[\n\r\v\f\x85\u2028\u2029])")
"""What ends a line (The Unicode Standard, section 5.8, Newline Guidelines)."""

LATIN = re.compile(r"""[.!?\u2026][\"'\u201c\u201d\u2019\u00bb\u00ab)\]]*\s+""")
CHINESE = re.compile("[\u3002\uff01\uff1f][\u300d\u300f\u201d\uff09]*\\s*")
OTHER = re.compile("[\u0964\u06d4\u061f]\\s+")
"""Ends of sentences and the whitespace after them, which Chinese and Japanese do not need; OTHER is
Hindi, Urdu and Arabic."""


class Line(NamedTuple):
    """The text of a line or sentence, the whitespace before it, and the whitespace and separator
    after it."""

    before: str
    text: str
    after: str

    @classmethod
    def of(cls, line: str, separator: str = "") -> "Line":
        """A line in its parts; of one without text, all whitespace is `before`."""
        text = line.strip()
        start = line.find(text) if text else len(line)
        return cls(line[:start], text, line[start + len(text) :] + separator)

    def around(self, translation: str) -> str:
        """The translation in the place of the text."""
        return self.before + (translation.lstrip() if self.before else translation) + self.after


def split_lines(text: str) -> list[tuple[str, str]]:
    """The lines of a text, each with the separator after it: together they are the text.

    The last line has "" after it where the text does not end in a separator; an empty text has no
    lines.
    """
    parts = [*SEPARATOR.split(text), ""]
    lines = list(zip(parts[::2], parts[1::2]))
    return lines if lines[-1][0] else lines[:-1]


def one_line(text: str) -> str:
    """The lines of a text on one line, with spaces between them."""
    return " ".join(line for line, _ in split_lines(text))


def split_sentences(text: str) -> list[str]:
    """The sentences of a text, each with the whitespace after it: together they are the text.

    One ends in a full stop, an exclamation mark or a question mark before whitespace, also where
    that is an abbreviation: what follows is translated separately, and nothing is lost.
    """
    ends = {match.end() for pattern in (LATIN, CHINESE, OTHER) for match in pattern.finditer(text)}
    edges = [0, *sorted(ends - {len(text)}), len(text)]
    return [text[start:end] for start, end in pairwise(edges)]


def continued(typed: str, known: str, text: str) -> str:
    """`typed`, and what a decoded text adds to `known`, which is how its first tokens are decoded:
    without what the vocabulary lacks and without outer whitespace."""
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(known, text)))
    added = text[same:]
    return typed + (added.lstrip(" ") if typed[-1:].isspace() else added)


def distinct(texts: Iterable[str], items: Iterable[Item]) -> list[tuple[str, Item]]:
    """Each text once, with the first of its items."""
    found: dict[str, Item] = {}
    for text, item in zip(texts, items):
        found.setdefault(text, item)
    return [*found.items()]
