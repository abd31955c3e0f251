"""Text that is too long to be translated at once, cut where sentences end."""

import re
from itertools import pairwise

LATIN = re.compile(r"""[.!?\u2026][\"'\u201c\u201d\u2019\u00bb\u00ab)\]]*\s+""")
CHINESE = re.compile("[\u3002\uff01\uff1f][\u300d\u300f\u201d\uff09]*\\s*")
OTHER = re.compile("[\u0964\u06d4\u061f]\\s+")
"""Ends of sentences and what follows them: blanks; in Chinese and Japanese there need be none;
Hindi, Urdu and Arabic."""


def split_sentences(text: str) -> list[str]:
    """The sentences of a text, each with the blanks that follow it: together they are the text.

    One ends in a full stop, an exclamation mark or a question mark with a blank behind it, also
    where that is an abbreviation: what follows is translated apart, and nothing is lost.
    """
    ends = {match.end() for pattern in (LATIN, CHINESE, OTHER) for match in pattern.finditer(text)}
    edges = [0, *sorted(ends - {len(text)}), len(text)]
    return [text[start:end] for start, end in pairwise(edges)]
