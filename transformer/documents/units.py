"""Units of a text, between which markup may stand: words, numbers, punctuation marks, and single
characters of scripts without spaces."""

import regex

UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
WORD = rf"(?:(?![{UNSPACED}])[\p{{L}}\p{{N}}\p{{M}}_])+"
UNIT = regex.compile(rf"{WORD}(?:['\u2019]{WORD})*|[{UNSPACED}]\p{{M}}*|(?!\s)\X")
"""A word with its apostrophes; a character with its marks; or any other visible character."""

UNSPACED_CHARACTER = regex.compile(rf"[{UNSPACED}\u3000-\u303f\uff00-\uffef]")
"""A character of such a script, or one of its punctuation marks."""

Span = tuple[int, int]
"""First character, and the character after the last."""


def units(text: str) -> list[Span]:
    """The units of a text, in order. Only whitespace is outside all units."""
    return [match.span() for match in UNIT.finditer(text)]
