"""Where a translator is good and where it is not: BLEU by length, and its best and worst."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from sacrebleu.metrics import BLEU, CHRF

from transformer.evaluation.scores import Score, measure

GROUPS = 5


class Group(NamedTuple):
    """Sentences of like length: tokens of the shortest and the longest source, how many there are,
    BLEU, and characters written to those of the references."""

    shortest: int
    longest: int
    count: int
    bleu: Score
    ratio: float


class Example(NamedTuple):
    """A translation, the number of its line (from 1), and its chrF++."""

    line: int
    score: float
    source: str
    reference: str
    output: str


def groups_by_length(
    lengths: Sequence[int],
    hypotheses: Sequence[str],
    references: Sequence[str],
    metric: BLEU,
    more_references: Sequence[Sequence[str]] = (),
) -> Iterator[Group]:
    """Fifths of the sentences, from the shortest sources to the longest.

    `lengths` are of the sources in tokens. Fifths are about as sure as each other, which groups of
    equal width are not; sentences of equal length stay together.
    """
    lengths = np.asarray(lengths)
    edges = np.unique(np.quantile(lengths, np.linspace(0, 1, GROUPS + 1), method="lower"))
    group = np.searchsorted(edges[1:-1], lengths, side="right")
    for number in np.unique(group):
        chosen = np.flatnonzero(group == number)
        ours, theirs = [hypotheses[i] for i in chosen], [references[i] for i in chosen]
        others = [[more[i] for i in chosen] for more in more_references]
        bleu = measure(metric, ours, theirs, others)
        inside = lengths[chosen]
        ratio = len("".join(ours)) / max(1, len("".join(theirs)))
        yield Group(int(inside.min()), int(inside.max()), len(chosen), bleu, ratio)


def by_length(
    lengths: Sequence[int],
    hypotheses: Sequence[str],
    references: Sequence[str],
    metric: BLEU,
    more_references: Sequence[Sequence[str]] = (),
) -> Iterator[str]:
    """`groups_by_length` as lines of text."""
    yield "length of the source    sentences    BLEU (95 % interval)    translation to reference"
    for one in groups_by_length(lengths, hypotheses, references, metric, more_references):
        low, high = one.bleu.low, one.bleu.high
        span = f"{one.shortest} to {one.longest} tokens"
        interval = "" if low is None else f"({low:.1f} to {high:.1f})"
        yield (
            f"{span:<20} {one.count:>12,}    {one.bleu.value:>4.1f} {interval:<21} {one.ratio:.2f}"
        )


def worst_and_best(
    sources: Sequence[str],
    references: Sequence[str],
    hypotheses: Sequence[str],
    count: int,
    more_references: Sequence[Sequence[str]] = (),
) -> dict[str, list[Example]]:
    """The `count` "worst" and the `count` "best" translations, by chrF++ of each sentence, shown
    with the first reference.

    BLEU says little of single sentences: most have no four words in a row that agree.
    """
    metric = CHRF(word_order=2)
    rows = zip(hypotheses, references, *more_references)
    found = np.asarray([metric.sentence_score(ours, theirs).score for ours, *theirs in rows])
    order = np.lexsort(([len(line) for line in references], found))  # of equals the shorter first
    return {
        name: [
            Example(int(i) + 1, float(found[i]), sources[i], references[i], hypotheses[i])
            for i in chosen
        ]
        for name, chosen in (("worst", order[:count]), ("best", order[::-1][:count]))
    }


def word_for_word(
    references: Sequence[str],
    hypotheses: Sequence[str],
    more_references: Sequence[Sequence[str]] = (),
) -> str:
    """How many translations are the reference itself, or one of them, as a sentence."""
    rows = zip(hypotheses, references, *more_references)
    equal, which = sum(ours in theirs for ours, *theirs in rows), "a" if more_references else "the"
    return f"{equal:,} of {len(hypotheses):,} translations are {which} reference word for word"


def extremes(
    sources: Sequence[str],
    references: Sequence[str],
    hypotheses: Sequence[str],
    count: int,
    more_references: Sequence[Sequence[str]] = (),
) -> str:
    """`worst_and_best` as text."""
    blocks = [word_for_word(references, hypotheses, more_references)]
    found = worst_and_best(sources, references, hypotheses, count, more_references)
    for name, examples in found.items():
        for one in examples:
            blocks.append(
                f"{name}, chrF2++ {one.score:.1f}, line {one.line}\n  source     {one.source}\n"
                f"  reference  {one.reference}\n  output     {one.output}"
            )
    return "\n".join(blocks)
