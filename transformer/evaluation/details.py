"""Where a translator is good and where it is not: scores by length, and its best and worst."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from transformer.evaluation.scores import METRICS, References, Score, score

GROUPS = 5


class Group(NamedTuple):
    """Sentences of like length: tokens of the shortest and the longest source, how many there are,
    their scores, and characters written to those of the references."""

    shortest: int
    longest: int
    count: int
    scores: list[Score]
    ratio: float


class Example(NamedTuple):
    """A translation, the number of its line (from 1), and its chrF++."""

    line: int
    score: float
    source: str
    reference: str
    output: str


def groups_by_length(
    lengths: Sequence[int], hypotheses: Sequence[str], references: References
) -> Iterator[Group]:
    """Fifths of the sentences, from the shortest sources to the longest.

    `lengths` are of the sources in tokens. Fifths have intervals of about the same width, which
    groups of equal width have not; sentences of equal length stay together.
    """
    tokens = np.asarray(lengths)
    edges = np.unique(np.quantile(tokens, np.linspace(0, 1, GROUPS + 1), method="lower"))
    group = np.searchsorted(edges[1:-1], tokens, side="right")
    for number in np.unique(group):
        chosen = np.flatnonzero(group == number).tolist()
        ours, theirs = [hypotheses[i] for i in chosen], references.at(chosen)
        inside = tokens[chosen]
        ratio = len("".join(ours)) / max(1, len("".join(theirs.texts[0])))
        yield Group(int(inside.min()), int(inside.max()), len(chosen), score(ours, theirs), ratio)


def by_length(
    lengths: Sequence[int], hypotheses: Sequence[str], references: References
) -> Iterator[str]:
    """`groups_by_length` as lines of text, with the interval of the first score."""
    groups = list(groups_by_length(lengths, hypotheses, references))
    first, *others = (one.name for one in groups[0].scores)
    columns = "".join(f"    {name}" for name in others)
    yield (
        f"length of the source    sentences    {first} (95 % interval){columns}    translation to "
        "reference"
    )
    for group in groups:
        first, *others = group.scores
        span = f"{group.shortest} to {group.longest} tokens"
        interval = f"({first.interval})" if first.interval else ""
        columns = "".join(f"{one.value:>{len(one.name) + 4}.1f}" for one in others)
        yield (
            f"{span:<20} {group.count:>12,}    {first.value:>4.1f} {interval:<15}{columns}    "
            f"{group.ratio:.2f}"
        )


def worst_and_best(
    hypotheses: Sequence[str], references: References, count: int
) -> dict[str, list[Example]]:
    """The `count` "worst" and the `count` "best" translations, by chrF++ of each sentence, shown
    with the first reference; blank lines that are blank in the reference are neither.

    BLEU says little of single sentences: most have no four words in a row that agree.
    """
    metric, (texts, *_) = METRICS["chrf++"].make(references), references.texts
    rows = zip(hypotheses, *references.texts)
    found = np.asarray([metric.sentence_score(ours, theirs).score for ours, *theirs in rows])
    order = np.lexsort(([len(line) for line in texts], found))  # of equals the shorter first
    order = [i for i in order if hypotheses[i].strip() or texts[i].strip()]
    return {
        name: [
            Example(int(i) + 1, float(found[i]), references.sources[i], texts[i], hypotheses[i])
            for i in chosen
        ]
        for name, chosen in (("worst", order[:count]), ("best", order[::-1][:count]))
    }


def word_for_word(hypotheses: Sequence[str], references: References) -> str:
    """How many translations are the reference itself, or one of them, as a sentence."""
    equal = sum(ours in theirs for ours, *theirs in zip(hypotheses, *references.texts))
    which = "a" if len(references.texts) > 1 else "the"
    return f"{equal:,} of {len(hypotheses):,} translations are {which} reference word for word"


def extremes(hypotheses: Sequence[str], references: References, count: int) -> str:
    """`worst_and_best` as text."""
    blocks = [word_for_word(hypotheses, references)]
    for name, examples in worst_and_best(hypotheses, references, count).items():
        for one in examples:
            blocks.append(
                f"{name}, chrF2++ {one.score:.1f}, line {one.line}\n  source     {one.source}\n"
                f"  reference  {one.reference}\n  output     {one.output}"
            )
    return "\n".join(blocks)
