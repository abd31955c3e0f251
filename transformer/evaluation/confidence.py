"""How often words of each confidence stand in the reference, and the fit of confidence to it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path

import numpy as np

from transformer.machine.files import write_text

EDGES = (0.0, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)
"""Limits of the confidence in the table."""

TEMPERATURES = tuple(np.geomspace(0.2, 3.0, 15).round(3).tolist())
"""Temperatures that are tried."""


@dataclass(frozen=True)
class JudgedWords:
    """The natural log-probabilities of words of translations, and whether each stands in the
    reference."""

    log_probs: np.ndarray
    right: np.ndarray


def judged(
    translations: Sequence[Sequence[tuple[str, float]]], references: Sequence[Sequence[list[str]]]
) -> JudgedWords:
    """The words of translations, each with its log-probability, beside the words of the references
    of each; of several references the one with most words in common counts."""
    marks = [
        best_match([word for word, _ in words], theirs)
        for words, theirs in zip(translations, references)
    ]
    return JudgedWords(
        np.array([log_prob for words in translations for _, log_prob in words], float),
        np.array([mark for of_one in marks for mark in of_one], bool),
    )


def best_match(words: Sequence[str], references: Sequence[Sequence[str]]) -> list[bool]:
    """For each word whether it is in a common subsequence with the reference (of several, the one
    with the longest)."""
    best = [False] * len(words)
    for reference in references:
        marks = [False] * len(words)
        matcher = SequenceMatcher(None, words, reference, autojunk=False)
        for start, _, size in matcher.get_matching_blocks():
            marks[start : start + size] = [True] * size
        best = max(best, marks, key=sum)
    return best


def fit_temperature(words: Mapping[float, JudgedWords]) -> float:
    """The temperature at which the probabilities of words are likeliest as probabilities to be
    right; `words` are the same words at several temperatures."""
    return max(words, key=lambda temperature: likelihood(words[temperature]))


def likelihood(words: JudgedWords) -> float:
    """The log-likelihood of what is right, if the probability of a word is that of being right."""
    log_probs = np.minimum(words.log_probs, -1e-7)
    return float(np.where(words.right, log_probs, np.log(-np.expm1(log_probs))).sum())


def by_confidence(words: JudgedWords) -> list[tuple[float, float, int, float]]:
    """Least and largest confidence of a group of words, how many there are, and the share of them
    that is not in the reference. Empty groups are left out."""
    confidence = np.exp(words.log_probs)
    group = np.clip(np.searchsorted(EDGES, confidence, side="right") - 1, 0, len(EDGES) - 2)
    return [
        (EDGES[n], EDGES[n + 1], int((group == n).sum()), float(1 - words.right[group == n].mean()))
        for n in np.unique(group).tolist()
    ]


def calibration_error(words: JudgedWords) -> float:
    """The mean over all words of the difference between the mean confidence of a word's group and
    the share of the group that is right (expected calibration error, Naeini et al., 2015,
    https://ojs.aaai.org/index.php/AAAI/article/view/9602)."""
    confidence = np.exp(words.log_probs)
    group = np.minimum((confidence * 10).astype(int), 9)
    difference = np.bincount(group, confidence - words.right, minlength=10)
    return float(np.abs(difference).sum() / max(1, len(group)))


def as_table(words: JudgedWords) -> list[str]:
    """`by_confidence` as lines of text."""
    lines = ["confidence      words    not in the reference"]
    for least, most, count, missing in by_confidence(words):
        lines.append(f"{least:.2f} to {most:.2f} {count:>9,} {missing:>23.1%}")
    return [*lines, f"expected calibration error {calibration_error(words):.3f}"]


def save_temperature(path: Path, temperature: float, label: str) -> None:
    """Keeps it in the run, for translate.py and the server; the label names its checkpoint."""
    write_text(path, json.dumps({"temperature": temperature, "checkpoint": label}) + "\n")
