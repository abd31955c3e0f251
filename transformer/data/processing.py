"""Text that another tool has cut or escaped already: what is left of its marks in translations is
scored as an error, and a reader sees it."""

import re
from collections.abc import Iterator

MARKS = {
    "cut into subwords": re.compile(r"\u2581\w|\w@@(?: |$)|(?:^| )##\w"),
    "tokenised or escaped": re.compile(
        r"[^\W\d_] [,.](?: |$)| @-@ |&(?:apos|quot|amp|lt|gt|nbsp|#\d+|#x[0-9a-fA-F]+);"
    ),
}
"""What has been done, and what it leaves: SentencePiece, subword-nmt, WordPiece; Moses, HTML."""


def processing_of(text: str) -> Iterator[str]:
    """What seems to have been done to a text, as keys of MARKS."""
    return (name for name, mark in MARKS.items() if mark.search(text))
