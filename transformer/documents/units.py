"""Units of a text that markup may stand between: words, numbers, punctuation marks, and the
characters of scripts that do not separate words."""

import regex

UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
WORD = rf"(?:(?![{UNSPACED}])[\p{{L}}\p{{N}}\p{{M}}_])+"
UNIT = regex.compile(rf"{WORD}(?:['\u2019]{WORD})*|[{UNSPACED}]\p{{M}}*|(?!\s)\X")
"""A word with its apostrophes; a character with its marks; or any other visible character."""

Span = tuple[int, int]
"""First character, and the character after the last."""


def units(text: str) -> list[Span]:
    """The units of a text, in order. Only whitespace is outside all units."""
    return [match.span() for match in UNIT.finditer(text)]
