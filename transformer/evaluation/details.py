"""Where a translator is good and where it is not: BLEU by length, and its best and worst."""

from collections.abc import Iterator, Sequence

import numpy as np
from sacrebleu.metrics import CHRF

from transformer.evaluation.scores import bleu_metric, measure

GROUPS = 5


def by_length(
    lengths: Sequence[int], hypotheses: Sequence[str], references: Sequence[str], language: str
) -> Iterator[str]:
    """A line for each fifth of the sentences, from the shortest sources to the longest.

    `lengths` are of the sources in tokens. Fifths are about as sure as each other, which groups of
    equal width are not; sentences of equal length stay together.
    """
    lengths = np.asarray(lengths)
    edges = np.unique(np.quantile(lengths, np.linspace(0, 1, GROUPS + 1), method="lower"))
    group = np.searchsorted(edges[1:-1], lengths, side="right")
    yield "length of the source    sentences    BLEU (95 % interval)    translation to reference"
    for number in np.unique(group):
        chosen = np.flatnonzero(group == number)
        ours, theirs = [hypotheses[i] for i in chosen], [references[i] for i in chosen]
        bleu = measure(bleu_metric(language), ours, theirs)
        inside = lengths[chosen]
        span = f"{inside.min()} to {inside.max()} tokens"
        interval = "" if bleu.low is None else f"({bleu.low:.1f} to {bleu.high:.1f})"
        ratio = len("".join(ours)) / max(1, len("".join(theirs)))
        yield f"{span:<20} {len(chosen):>12,}    {bleu.value:>4.1f} {interval:<21} {ratio:.2f}"


def extremes(
    sources: Sequence[str], references: Sequence[str], hypotheses: Sequence[str], count: int
) -> str:
    """The `count` worst and the `count` best translations, by chrF++ of each sentence.

    BLEU says little of single sentences: most have no four words in a row that agree.
    """
    metric = CHRF(word_order=2)
    pairs = zip(hypotheses, references)
    found = np.asarray([metric.sentence_score(ours, [theirs]).score for ours, theirs in pairs])
    order = np.lexsort(([len(line) for line in references], found))  # of equals the shorter first
    equal = sum(ours == theirs for ours, theirs in zip(hypotheses, references))
    blocks = [f"{equal:,} of {len(found):,} translations are the reference word for word"]
    for name, chosen in (("worst", order[:count]), ("best", order[::-1][:count])):
        for i in chosen:
            blocks.append(
                f"{name}, chrF2++ {found[i]:.1f}, line {i + 1}\n  source     {sources[i]}\n"
                f"  reference  {references[i]}\n  output     {hypotheses[i]}"
            )
    return "\n".join(blocks)
