"""How much text a corpus has, and in which scripts: what advice (`config/advice.py`) depends on."""

import unicodedata
from collections import Counter

from transformer.config import DataConfig
from transformer.config.advice import CorpusSize
from transformer.data.corpus import read_pairs

SAMPLE = 2_000
"""Pairs whose text is examined."""

EAST_ASIAN = ("CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "IDEOGRAPHIC")
"""Scripts that are mixed in one sentence."""


def corpus_size(data: DataConfig) -> CorpusSize:
    """One pass over the training text. Raises UserError if it cannot be read."""
    texts, sizes = 0, [0, 0]
    scripts: tuple[Counter[str], Counter[str]] = Counter(), Counter()
    for pair in read_pairs(data, "train"):
        for side, text in enumerate(pair):
            sizes[side] += len(text.encode())
            if texts < SAMPLE:
                scripts[side][script_of(text)] += 1
        texts += 1
    del scripts[0][""], scripts[1][""]  # of texts without letters
    usual = {most_common(counts) for counts in scripts} - {""}
    sides = [size for name, size in zip(("source", "target"), sizes) if name in data.sides]
    return CorpusSize(texts, min(sides), len(usual) < 2)


def script_of(text: str) -> str:
    """The script of most letters, such as LATIN or CYRILLIC; "" without letters."""
    names = (unicodedata.name(letter, "").partition(" ")[0] for letter in text if letter.isalpha())
    letters = Counter("JAPANESE OR CHINESE" if name in EAST_ASIAN else name for name in names)
    return most_common(letters)


def most_common(counts: Counter[str]) -> str:
    """The first of the most common ones, "" of none."""
    return max(counts, key=counts.__getitem__, default="")
