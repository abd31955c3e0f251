"""How sure a translator is of each word of its translations.

The confidence of a word is the probability of its pieces, given the source and the words before,
with logits divided by a temperature that eval.py fits on a validation set (Guo et al., 2017,
https://arxiv.org/abs/1706.04599). Then it is the share of words with this confidence that stand in
the reference too. Without this temperature, label smoothing makes a model seem less sure than it
is.
"""

import json
import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from transformer.data.capitals import in_upper_case
from transformer.data.tokenizer import Tokenizer
from transformer.decoding.alignment import parts_with_targets, word_numbers
from transformer.decoding.batches import teacher_forced_batches
from transformer.decoding.glossary import UNSPACED
from transformer.decoding.scoring import token_log_probabilities
from transformer.decoding.translator import Translator
from transformer.model.batch import EOS

FILE = "confidence.json"
"""In a run folder: what eval.py has fitted."""


class Word(NamedTuple):
    """A word of a translation; in scripts without spaces, a piece of the vocabulary."""

    text: str
    log_prob: float


def words_with_confidence(
    translator: Translator, sentences: Sequence[str], found: Sequence[Sequence[int]]
) -> list[list[tuple[str, float]]]:
    """The words of each translation, given as tokens (those of a `Hypothesis`), with the confidence
    of each, from 0 to 1."""
    return [
        [(word.text, math.exp(word.log_prob)) for word in words]
        for words in word_log_probs(translator, sentences, found, translator.temperature)
    ]


def mean_confidence(words: Sequence[tuple[str, float]]) -> float:
    """The confidence of a translation: the share of its words that are expected to stand in the
    reference. 1 without words, as of a line that is copied."""
    return sum(confidence for _, confidence in words) / len(words) if words else 1.0


def word_log_probs(
    translator: Translator,
    sentences: Sequence[str],
    found: Sequence[Sequence[int]],
    temperature: float = 1.0,
) -> list[list[Word]]:
    """The words of each translation with their natural log-probabilities at a temperature."""
    parts, targets = parts_with_targets(translator, sentences, found)
    models, settings = translator.ensemble.models, translator.settings
    of_part: dict[int, list[Word]] = {}
    sources = [part.source for part in parts]
    for numbers, source, target in teacher_forced_batches(models, settings, sources, targets):
        log_probs = token_log_probabilities(translator.ensemble, source, target, temperature)
        for number, row in zip(numbers, log_probs):
            tokens = [token for token in targets[number] if token != EOS]
            words = _by_word(translator.tokenizers.target, tokens, row[: len(tokens)])
            if parts[number].capitals:
                target_side = translator.tokenizers.target
                words = [Word(in_upper_case(target_side, one.text), one.log_prob) for one in words]
            of_part[number] = words
    found_words: list[list[Word]] = [[] for _ in sentences]
    for number, part in enumerate(parts):
        found_words[part.number] += of_part.get(number, [])
    return found_words


def split_words(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[str]]:
    """The words of texts, cut as those of translations are."""
    rows = tokenizer.encode(list(texts))
    return [
        [word.text for word in _by_word(tokenizer, row, np.zeros(len(row)))]
        if UNSPACED.search(text)
        else text.split()
        for text, row in zip(texts, rows)
    ]


def _by_word(tokenizer: Tokenizer, tokens: list[int], log_probs: np.ndarray) -> list[Word]:
    pieces = tokenizer.pieces(tokens)
    begins = np.diff(word_numbers(pieces), prepend=-1) > 0
    for number, (before, piece) in enumerate(pairwise(pieces), start=1):
        begins[number] |= bool(UNSPACED.match(piece) or UNSPACED.match(before[-1:]))
    edges = [*np.flatnonzero(begins).tolist(), len(pieces)]
    spans = list(pairwise(edges))
    texts = tokenizer.decode([tokens[start:end] for start, end in spans])
    return [
        Word(text.strip(), float(log_probs[start:end].sum()))
        for text, (start, end) in zip(texts, spans)
        if text.strip()
    ]


def load_temperature(folder: Path, label: str) -> float:
    """What eval.py has fitted for the checkpoint of a run with this label; 1 if it has not, or if
    the file is damaged."""
    try:
        fitted = json.loads((folder / FILE).read_bytes())
        value = fitted["temperature"]
        is_known = fitted["checkpoint"] == label and 0 < value < math.inf
    except (OSError, ValueError, KeyError, TypeError):
        return 1.0
    return float(value) if is_known else 1.0
