"""How much text a corpus has, and in which scripts: what advice (`config/advice.py`) depends on."""

import unicodedata
from collections import Counter

from transformer.config import DataConfig
from transformer.config.advice import CorpusSize
from transformer.data.corpus import read_pairs

SAMPLE = 2_000
"""Pairs whose text is examined."""

LONGEST_WORDS = 12
"""Characters per word, with its space, above which spaces do not separate words: English has 5 to
6, Finnish 9, and Chinese without spaces as many as its clauses."""

EAST_ASIAN = ("CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "IDEOGRAPHIC")
"""Scripts that are mixed in one sentence."""


def corpus_size(data: DataConfig) -> CorpusSize:
    """One pass over the training text. Raises UserError if it cannot be read."""
    texts, characters, words = 0, 0, 0
    sizes = [0, 0]
    scripts: tuple[Counter[str], Counter[str]] = Counter(), Counter()
    read = [side for side, name in enumerate(("source", "target")) if name in data.sides]
    for pair in read_pairs(data, "train"):
        for side in read:
            text = pair[side]
            sizes[side] += len(text.encode())
            if texts < SAMPLE:
                scripts[side][script_of(text)] += 1
                characters += len(text)
                words += len(text.split())
        texts += 1
    del scripts[0][""], scripts[1][""]  # of texts without letters
    usual = {most_common(counts) for counts in scripts} - {""}
    has_words = characters <= LONGEST_WORDS * words
    return CorpusSize(texts, min(sizes[side] for side in read), len(usual) < 2, has_words)


def script_of(text: str) -> str:
    """The script of most letters, such as LATIN or CYRILLIC; "" without letters."""
    names = (unicodedata.name(letter, "").partition(" ")[0] for letter in text if letter.isalpha())
    letters = Counter("JAPANESE OR CHINESE" if name in EAST_ASIAN else name for name in names)
    return most_common(letters)


def most_common(counts: Counter[str]) -> str:
    """The first of the most common ones, "" of none."""
    return max(counts, key=counts.__getitem__, default="")
