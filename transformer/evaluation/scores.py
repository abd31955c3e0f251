"""Scores of translations, with what is needed to compare them: signature and interval.

Another score is a row of METRICS and a value of `train.best_by`: eval.py, comparisons, details, the
report and the choice of the best checkpoint read both.
"""

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from sacrebleu.metrics import BLEU, CHRF, TER, base

from transformer.config import DataConfig
from transformer.data.languages import read_code, script_code
from transformer.errors import UserError, one_line

TOKENIZERS = {
    "Hans": "zh", "Hant": "zh", "Hani": "zh", "Jpan": "ja-mecab", "Hira": "ja-mecab",
    "Kana": "ja-mecab", "Kore": "ko-mecab", "Hang": "ko-mecab",
    "Khmr": "char", "Laoo": "char", "Mymr": "char", "Thai": "char", "Tibt": "char",
}  # fmt: skip
"""sacreBLEU's tokenizer for a script, where it is not 13a. Characters are the words of scripts that
put no spaces between words and have no tokenizer there that works without a download."""

CHARACTERS_FOR_TER = ("Hans", "Hant", "Hani", "Jpan", "Hira", "Kana")
"""Scripts whose ideographs and punctuation TER counts one by one (tercom's asian support); Korean
has spaces between its words."""

RESAMPLES = 1000
SentenceFunction = Callable[
    [Sequence[str], Sequence[str], Sequence[Sequence[str]]], Iterable[float]
]


@dataclass(frozen=True)
class References:
    """What translations are scored against.

    sources    the texts that are translated
    texts      one list of their translations, or several
    language   of the translations, such as "de": decides how BLEU and TER find words
    tokenizer  `data.bleu_tokenizer`
    """

    sources: Sequence[str]
    texts: Sequence[Sequence[str]]
    language: str
    tokenizer: str = "auto"

    @classmethod
    def of(
        cls,
        data: DataConfig,
        pairs: Sequence[tuple[str, str]],
        more: Sequence[Sequence[str]] = (),
    ) -> "References":
        """The references of pairs, and `more` lists of references of the same sources."""
        sources, texts = [source for source, _ in pairs], [target for _, target in pairs]
        return cls(sources, [texts, *more], data.target, data.bleu_tokenizer)

    def at(self, places: Sequence[int]) -> "References":
        """Those of some of the sentences."""
        sources, *texts = ([column[i] for i in places] for column in (self.sources, *self.texts))
        return replace(self, sources=sources, texts=texts)


class Metric(NamedTuple):
    """A score: its name in logs and curves, what computes it, and the highest value there is."""

    label: str
    make: Callable[[References], base.Metric]
    highest: float = 100.0


METRICS = {
    "bleu": Metric("BLEU", lambda to: bleu_metric(to.language, to.tokenizer)),
    "chrf": Metric("chrF", lambda _: CHRF()),
    "chrf++": Metric("chrF++", lambda _: CHRF(word_order=2)),
    "ter": Metric("TER", lambda to: ter_metric(to.language), math.inf),
    "exact": Metric("exact match", lambda to: SentenceMean("exact match", exact, to.sources)),
}
"""By their names in `train.best_by` and metrics.jsonl, in the order in which they are printed."""


@dataclass(frozen=True)
class Score:
    """One metric over a test set; `low` and `high` bound its 95 % bootstrap interval.

    sacreBLEU's interval is as wide on both sides of a mean; ours ends at 0 and at the metric's
    highest value. Both are None of one sentence, and where the score is so near 0 that sacreBLEU
    gives no interval.
    """

    name: str
    value: float
    low: float | None
    high: float | None
    signature: str

    @property
    def interval(self) -> str:
        """Such as "31.2 to 33.5"; "" where there is none."""
        return "" if self.low is None else f"{self.low:.1f} to {self.high:.1f}"

    def __str__(self) -> str:
        interval = f"95 % interval {self.interval}" if self.interval else "no interval"
        return f"{self.name} {self.value:.1f}  ({interval})\n  {self.signature}"


def score(
    hypotheses: Sequence[str], references: References, also_lowercased: bool = False
) -> list[Score]:
    """All METRICS of detokenized text against raw references.

    With `also_lowercased` there is BLEU of lower-cased text too, under a name that says so.
    The interval comes from resampling the sentences 1,000 times (Koehn, 2004).
    Raises UserError when the counts differ, which sacreBLEU would overlook.
    """
    _check_counts(hypotheses, references)
    found = [_measure(metric, hypotheses, references) for metric in METRICS.values()]
    if also_lowercased:
        cased = METRICS["bleu"]._replace(
            make=lambda to: bleu_metric(to.language, to.tokenizer, lowercase=True)
        )
        lowercased = _measure(cased, hypotheses, references)
        found.insert(1, replace(lowercased, name="BLEU of lower-cased text"))
    return found


def _measure(metric: Metric, hypotheses: Sequence[str], references: References) -> Score:
    maker, texts = metric.make(references), [*map(list, references.texts)]
    try:
        result = maker.corpus_score(list(hypotheses), texts, n_bootstrap=RESAMPLES)
    except TypeError:  # sacreBLEU fails when some resamples score 0 and some do not
        result = maker.corpus_score(list(hypotheses), texts)
    signature = maker.get_signature().format()
    report = json.loads(result.format(width=4, signature=signature, is_json=True))
    low = high = None
    if "confidence_mean" in report and len(hypotheses) > 1:  # one is alike in every resample
        low = max(0.0, report["confidence_mean"] - report["confidence_var"])
        high = min(metric.highest, report["confidence_mean"] + report["confidence_var"])
    return Score(result.name, result.score, low, high, signature)


def value_of(name: str, hypotheses: Sequence[str], references: References) -> float:
    """One of METRICS, without the interval."""
    _check_counts(hypotheses, references)
    maker = METRICS[name].make(references)
    return maker.corpus_score(list(hypotheses), [*map(list, references.texts)]).score


def bleu(
    hypotheses: Sequence[str], references: Sequence[str], language: str, tokenizer: str = "auto"
) -> float:
    """The BLEU of `score`, without the interval."""
    return value_of("bleu", hypotheses, References((), [references], language, tokenizer))


def check_metrics(data: DataConfig, names: Iterable[str] = METRICS) -> None:
    """Raises UserError for a metric that needs what is not installed."""
    for name in names:
        METRICS[name].make(References.of(data, ()))


def bleu_metric(language: str, tokenizer: str = "auto", lowercase: bool = False) -> BLEU:
    """sacreBLEU's BLEU with the tokenizer of that name; "auto": the one for the script of the
    language (TOKENIZERS), 13a for all others and for unknown codes.

    Raises UserError when the package or the file of that tokenizer is not there.
    """
    if tokenizer == "auto":
        tokenizer = TOKENIZERS.get(script_code(language), "13a")
    try:
        return BLEU(tokenize=tokenizer, lowercase=lowercase)
    except (Exception, SystemExit) as error:  # of MeCab, of a download
        extra = tokenizer.partition("-mecab")[0]
        remedy = f"pip install 'sacrebleu[{extra}]', or " if extra != tokenizer else ""
        raise UserError(
            f"BLEU of text in {language} needs the tokenizer {tokenizer}, which cannot be loaded "
            f"({one_line(error)[:200]}): {remedy}set data.bleu_tokenizer, such as to "
            "char (eval.py: --bleu-tokenizer)"
        ) from error


def ter_metric(language: str) -> TER:
    """sacreBLEU's TER, which counts Chinese and Japanese by characters."""
    by_character = script_code(language) in CHARACTERS_FOR_TER
    return TER(normalized=by_character, asian_support=by_character)


class SentenceMean(base.Metric):
    """The mean over sentences, in per cent, of any function of sources, translations and their
    references that has a value from 0 to 1 for each; sacreBLEU resamples it like its own."""

    def __init__(self, name: str, function: SentenceFunction, sources: Sequence[str]):
        super().__init__()
        self.name, self.function, self.sources = name, function, sources

    def _extract_corpus_statistics(self, hypotheses, references):
        self.num_refs = len(references)
        values = self.function(self.sources, hypotheses, [*zip(*references)])
        return [[value, 1.0] for value in values]

    def _aggregate_and_compute(self, stats):
        return self._compute_score_from_stats(np.sum(stats, axis=0))

    def _compute_score_from_stats(self, stats):
        return base.Score(self.name, 100 * float(stats[0] / stats[1]))

    # Steps of sacreBLEU's `_extract_corpus_statistics`, which is replaced.
    _preprocess_segment = _extract_reference_info = _compute_segment_statistics = None


def exact(
    _: Sequence[str], hypotheses: Sequence[str], references: Sequence[Sequence[str]]
) -> Iterable[float]:
    """1 where a translation is one of its references: names, glossaries, answers to a task."""
    return [float(ours in theirs) for ours, theirs in zip(hypotheses, references, strict=True)]


def few_long(references: References) -> str:
    """A sentence if less than half of the references are long enough for BLEU, otherwise ""."""
    metric, texts = bleu_metric(references.language, references.tokenizer), references.texts[0]
    order = metric.max_ngram_order
    texts = [text for text in texts if text.strip()]
    long = sum(len(metric.tokenizer(text).split()) >= order for text in texts)
    if 2 * long >= len(texts):
        return ""
    return (
        f"{long:,} of {len(texts):,} references have {order} words or more, but BLEU "
        f"compares sequences of {order} words"
    )


def doubt(language: str, tokenizer: str = "auto") -> str:
    """What a user should know of how BLEU finds words in text of a language; "" if nothing."""
    if read_code(language) or tokenizer != "auto":
        return ""
    return (
        f"{language!r} is not a known language code (such as zh, zho, zh-CN or zho_Hans): BLEU "
        "splits words at spaces and punctuation (13a) unless you set data.bleu_tokenizer"
    )


def _check_counts(hypotheses: Sequence[str], references: References) -> None:
    for texts in references.texts:
        if len(hypotheses) != len(texts):
            raise UserError(
                f"{len(hypotheses)} translations and {len(texts)} references cannot be compared: "
                "line k of one must translate line k of the other"
            )
    if not hypotheses:
        raise UserError("there is nothing to score: the test set is empty")
