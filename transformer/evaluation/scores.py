"""sacreBLEU's BLEU and chrF, with what is needed to compare them: signature and interval."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from sacrebleu.metrics import BLEU, CHRF

from transformer.config import UserError

RESAMPLES = 1000


@dataclass(frozen=True)
class Score:
    """One metric over a test set; `low` and `high` bound its 95 % bootstrap interval."""

    name: str
    value: float
    low: float
    high: float
    signature: str

    def __str__(self) -> str:
        return (
            f"{self.name} {self.value:.1f}  (95 % interval {self.low:.1f} to {self.high:.1f})"
            f"\n  {self.signature}"
        )

    def to_dict(self) -> dict[str, str | float]:
        return asdict(self)


def score(hypotheses: Sequence[str], references: Sequence[str]) -> list[Score]:
    """BLEU (13a, cased) and chrF of detokenized text against raw references.

    The interval comes from resampling the sentences 1,000 times (Koehn, 2004).
    Raises UserError when the counts differ, which sacreBLEU would overlook.
    """
    _check_counts(hypotheses, references)
    return [_score(metric, hypotheses, references) for metric in (BLEU(), CHRF())]


def _score(metric: BLEU | CHRF, hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    result = metric.corpus_score(list(hypotheses), [list(references)], n_bootstrap=RESAMPLES)
    signature = metric.get_signature().format()
    report = json.loads(result.format(width=4, signature=signature, is_json=True))
    mean, half_width = report["confidence_mean"], report["confidence_var"]
    return Score(result.name, result.score, mean - half_width, mean + half_width, signature)


def bleu(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """The BLEU of `score`, without the interval."""
    _check_counts(hypotheses, references)
    return BLEU().corpus_score(list(hypotheses), [list(references)]).score


def _check_counts(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    if len(hypotheses) != len(references):
        raise UserError(
            f"{len(hypotheses)} translations and {len(references)} references cannot be compared: "
            "line k of one must translate line k of the other"
        )
    if not hypotheses:
        raise UserError("there is nothing to score: the test set is empty")
