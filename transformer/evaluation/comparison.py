"""Whether one translator is better than another on a test set: two paired tests of significance.

Koehn (2004), https://aclanthology.org/W04-3250: paired bootstrap; Riezler and Maxwell (2005),
https://aclanthology.org/W05-0908: approximate randomisation. Both are sacreBLEU's.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sacrebleu.significance import PairedTest, Result

from transformer.config.settings import LOWER_IS_BETTER
from transformer.evaluation.scores import METRICS, References

SURE = 0.05
"""A difference counts if both tests give it a smaller probability under chance."""


@dataclass(frozen=True)
class Comparison:
    """One metric of two translators, the probability of such a difference by chance, and a verdict
    in words."""

    name: str
    first: float
    second: float
    bootstrap: float
    randomisation: float
    signature: str
    verdict: str

    def __str__(self) -> str:
        return (
            f"{self.name} {self.first:.1f} and {self.second:.1f}: {self.verdict} (p "
            f"{self.bootstrap:.4f} by paired bootstrap, {self.randomisation:.4f} by approximate "
            f"randomisation)\n  {self.signature}"
        )


def compare(
    first: Sequence[str], second: Sequence[str], references: References
) -> list[Comparison]:
    """Two lists of translations of the same sentences by each of METRICS; sacreBLEU's numbers of
    samples (1,000 and 10,000) and its seed.

    sacreBLEU does not count samples whose difference is exactly as large. Without a difference that
    would be all of them, and the probability is 1. Of the 2^n ways to swap the n translations that
    differ, two leave the difference as it is (none and all), so that approximate randomisation
    cannot give a probability below 2^(1 - n).
    """
    systems = [("first", list(first)), ("second", list(second))]
    made = {name: metric.make(references) for name, metric in METRICS.items()}
    texts = [*map(list, references.texts)]
    signatures, bootstrapped = PairedTest(systems, made, texts, "bs")()
    _, randomised = PairedTest(systems, made, texts, "ar")()
    differing = sum(one != other for one, other in zip(first, second, strict=True))
    least = min(1.0, 2.0 ** (1 - differing))
    found = []
    for key, name in zip(METRICS, signatures):  # sacreBLEU's names, in the same order
        chances = (
            _probability(bootstrapped[name]),
            max(_probability(randomised[name]), least),
        )
        scores = tuple(float(result.score) for result in bootstrapped[name])
        said = verdict(*scores, max(chances), key in LOWER_IS_BETTER)
        found.append(Comparison(name, *scores, *chances, signatures[name].format(), said))
    return found


def verdict(first: float, second: float, chance: float, lower_is_better: bool) -> str:
    """In plain words, from two scores and the larger of the probabilities."""
    if chance >= SURE:
        return "no significant difference on this test set"
    return f"the {'first' if (first > second) != lower_is_better else 'second'} is better"


def _probability(results: Sequence[Result]) -> float:
    """The probability of such a difference by chance, from the results of both translators."""
    first, second = results
    return 1.0 if first.score == second.score else float(second.p_value)
