"""sacreBLEU's BLEU, chrF and TER, with what is needed to compare them: signature and interval."""

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from sacrebleu.metrics import BLEU, CHRF, TER

from transformer.errors import UserError

RESAMPLES = 1000
Metric = BLEU | CHRF | TER


@dataclass(frozen=True)
class Score:
    """One metric over a test set; `low` and `high` bound its 95 % bootstrap interval.

    sacreBLEU's interval is as wide on both sides of a mean; ours ends at 0 and 100, where scores
    do (TER has no upper end). Both are None where the score is so near 0 that sacreBLEU gives no
    interval.
    """

    name: str
    value: float
    low: float | None
    high: float | None
    signature: str

    def __str__(self) -> str:
        interval = (
            "no interval" if self.low is None
            else f"95 % interval {self.low:.1f} to {self.high:.1f}"
        )  # fmt: skip
        return f"{self.name} {self.value:.1f}  ({interval})\n  {self.signature}"

    def to_dict(self) -> dict[str, str | float | None]:
        """For JSON: every field by its name."""
        return asdict(self)


def score(
    hypotheses: Sequence[str],
    references: Sequence[str],
    language: str,
    also_lowercased: bool = False,
) -> list[Score]:
    """BLEU (cased), chrF, chrF++ and TER of detokenized text against raw references.

    The language, such as "de", decides how BLEU finds words: see `bleu_metric`. With
    `also_lowercased` there is BLEU of lower-cased text too, under a name that says so.
    The interval comes from resampling the sentences 1,000 times (Koehn, 2004).
    Raises UserError when the counts differ, which sacreBLEU would overlook.
    """
    _check_counts(hypotheses, references)
    found = [measure(metric, hypotheses, references) for metric in metrics(language)]
    if also_lowercased:
        lowercased = measure(bleu_metric(language, lowercase=True), hypotheses, references)
        found.insert(1, replace(lowercased, name="BLEU of lower-cased text"))
    return found


NAMES = ("BLEU", "chrF2", "chrF2++", "TER")
"""Of the metrics; of TER less is better."""


def metrics(language: str) -> list[Metric]:
    """What a translator is scored by, in the order of NAMES."""
    return [bleu_metric(language), CHRF(), CHRF(word_order=2), TER()]


def measure(metric: Metric, hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """One metric, with its interval."""
    hypotheses, references = list(hypotheses), [list(references)]
    try:
        result = metric.corpus_score(hypotheses, references, n_bootstrap=RESAMPLES)
    except TypeError:  # sacreBLEU fails when some resamples score 0 and some do not
        result = metric.corpus_score(hypotheses, references)
    signature = metric.get_signature().format()
    report = json.loads(result.format(width=4, signature=signature, is_json=True))
    low = high = None
    if "confidence_mean" in report:
        low = max(0.0, report["confidence_mean"] - report["confidence_var"])
        high = report["confidence_mean"] + report["confidence_var"]
        high = high if isinstance(metric, TER) else min(100.0, high)
    return Score(result.name, result.score, low, high, signature)


def bleu(hypotheses: Sequence[str], references: Sequence[str], language: str) -> float:
    """The BLEU of `score`, without the interval."""
    _check_counts(hypotheses, references)
    return bleu_metric(language).corpus_score(list(hypotheses), [list(references)]).score


def bleu_metric(language: str, lowercase: bool = False) -> BLEU:
    """sacreBLEU's BLEU for text in a language: with its tokenizer for zh, ja and ko, else 13a.

    A region after the language, as in zh-CN, changes nothing.
    Raises UserError when the package of that tokenizer is not installed.
    """
    language = re.split("[-_]", language.lower())[0]
    try:
        return BLEU(trg_lang=language, lowercase=lowercase)
    except RuntimeError as error:
        raise UserError(
            f"BLEU of text in {language} needs a tokenizer: pip install 'sacrebleu[{language}]'"
        ) from error


def _check_counts(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    if len(hypotheses) != len(references):
        raise UserError(
            f"{len(hypotheses)} translations and {len(references)} references cannot be compared: "
            "line k of one must translate line k of the other"
        )
    if not hypotheses:
        raise UserError("there is nothing to score: the test set is empty")
