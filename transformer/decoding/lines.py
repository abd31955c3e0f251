"""What a translation keeps of a text as it was typed: lines and the separators behind them, blanks,
and the text that it is to begin with."""

import re
from itertools import takewhile

SEPARATOR = re.compile("(\r\n|[\n\r\v\f\x85\u2028\u2029])")
"""What ends a line (The Unicode Standard, section 5.8, Newline Guidelines)."""


def split_lines(text: str) -> list[tuple[str, str]]:
    """The lines of a text, each with the separator behind it: together they are the text.

    The last line has "" behind it where the text does not end in a separator; an empty text has no
    lines.
    """
    parts = [*SEPARATOR.split(text), ""]
    lines = list(zip(parts[::2], parts[1::2]))
    return lines if lines[-1][0] else lines[:-1]


def one_line(text: str) -> str:
    """The lines of a text on one line, with blanks between them."""
    return " ".join(line for line, _ in split_lines(text))


def outer_blanks(line: str) -> tuple[str, str, str]:
    """The blanks at the beginning of a line, what stands between them and those at its end, and
    these; a blank line is all beginning."""
    text = line.strip()
    start = line.find(text) if text else len(line)
    return line[:start], text, line[start + len(text) :]


def continued(typed: str, known: str, text: str) -> str:
    """`typed`, and what a decoded text adds to `known`, which is how its first tokens are decoded:
    that lacks what the vocabulary lacks, and outer blanks."""
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(known, text)))
    added = text[same:]
    return typed + (added.lstrip(" ") if typed[-1:].isspace() else added)
