"""A text as lines and the separators behind them, so that a translation keeps its layout."""

import re
from collections.abc import Iterable

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


def join_lines(lines: Iterable[str], separators: Iterable[str]) -> str:
    """The text of lines with these separators behind them, one for each line."""
    return "".join(line + separator for line, separator in zip(lines, separators, strict=True))


def one_line(text: str) -> str:
    """The lines of a text on one line, with blanks between them."""
    return " ".join(line for line, _ in split_lines(text))
