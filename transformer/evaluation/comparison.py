"""Whether one translator is better than another on a test set: two paired tests of significance.

Koehn (2004), https://aclanthology.org/W04-3250: paired bootstrap; Riezler and Maxwell (2005),
https://aclanthology.org/W05-0908: approximate randomisation. Both are sacreBLEU's.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from sacrebleu.significance import PairedTest, Result

from transformer.evaluation.scores import NAMES, Metric

SURE = 0.05
"""A difference counts if both tests give it so small a probability to have come by chance."""


@dataclass(frozen=True)
class Comparison:
    """One metric of two translators, and the probability of such a difference by chance."""

    name: str
    first: float
    second: float
    bootstrap: float
    randomisation: float
    signature: str

    @property
    def verdict(self) -> str:
        """In plain words."""
        if max(self.bootstrap, self.randomisation) >= SURE:
            return "no difference that this test set can show"
        is_higher = self.first > self.second
        return (
            "the first is better" if is_higher != (self.name == "TER") else "the second is better"
        )

    def __str__(self) -> str:
        return (
            f"{self.name} {self.first:.1f} and {self.second:.1f}: {self.verdict} (p "
            f"{self.bootstrap:.4f} by paired bootstrap, {self.randomisation:.4f} by approximate "
            f"randomisation)\n  {self.signature}"
        )

    def to_dict(self) -> dict[str, str | float]:
        """For JSON: every field by its name, and the verdict in words."""
        return asdict(self) | {"verdict": self.verdict}


def compare(
    first: Sequence[str],
    second: Sequence[str],
    references: Sequence[str],
    metrics: Sequence[Metric],
    more_references: Sequence[Sequence[str]] = (),
) -> list[Comparison]:
    """Two lists of translations of the same sentences, by the metrics of scores.py; sacreBLEU's
    numbers of samples (1,000 and 10,000) and its seed.

    sacreBLEU does not count samples whose difference is exactly as large. Without a difference that
    would be all of them, and the probability is 1. Of the 2^n ways to swap the n translations that
    differ, two leave the difference as it is (none and all), so that approximate randomisation
    cannot give a probability below 2^(1 - n).
    """
    systems = [("first", list(first)), ("second", list(second))]
    by_name = dict(zip(NAMES, metrics))
    found = {
        kind: PairedTest(systems, by_name, [*map(list, (references, *more_references))], kind)()
        for kind in ("bs", "ar")
    }
    signatures, bootstrapped = found["bs"]
    _, randomised = found["ar"]
    differing = sum(one != other for one, other in zip(first, second, strict=True))
    least = min(1.0, 2.0 ** (1 - differing))
    return [
        Comparison(
            name,
            float(scored[0].score),
            float(scored[1].score),
            _probability(scored),
            max(_probability(randomised[name]), least),
            signatures[name].format(),
        )
        for name, scored in bootstrapped.items()
        if name != "System"
    ]


def _probability(results: Sequence[Result]) -> float:
    """That of a difference as large by chance, of the results of both translators."""
    first, second = results
    return 1.0 if first.score == second.score else float(second.p_value)
