"""sacreBLEU's BLEU, chrF and TER, with what is needed to compare them: signature and interval."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial

from sacrebleu.metrics import BLEU, CHRF, TER

from transformer.data.languages import read_code, script_code
from transformer.errors import UserError

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
Metric = BLEU | CHRF | TER


@dataclass(frozen=True)
class Score:
    """One metric over a test set; `low` and `high` bound its 95 % bootstrap interval.

    sacreBLEU's interval is as wide on both sides of a mean; ours ends at 0 and 100, where scores
    do (TER has no upper end). Both are None of one sentence, and where the score is so near 0 that
    sacreBLEU gives no interval.
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
    tokenizer: str = "auto",
    more_references: Sequence[Sequence[str]] = (),
) -> list[Score]:
    """BLEU (cased), chrF, chrF++ and TER of detokenized text against raw references.

    The language, such as "de", decides how BLEU and TER find words: see `metrics`. With
    `also_lowercased` there is BLEU of lower-cased text too, under a name that says so.
    `more_references` are lists of further references of the same sentences.
    The interval comes from resampling the sentences 1,000 times (Koehn, 2004).
    Raises UserError when the counts differ, which sacreBLEU would overlook.
    """
    for one in (references, *more_references):
        _check_counts(hypotheses, one)
    measured = partial(measure, more_references=more_references)
    found = [measured(metric, hypotheses, references) for metric in metrics(language, tokenizer)]
    if also_lowercased:
        metric = bleu_metric(language, tokenizer, lowercase=True)
        lowercased = measured(metric, hypotheses, references)
        found.insert(1, replace(lowercased, name="BLEU of lower-cased text"))
    return found


NAMES = ("BLEU", "chrF2", "chrF2++", "TER")
"""Of the metrics; of TER less is better."""


def metrics(language: str, tokenizer: str = "auto") -> list[Metric]:
    """What a translator is scored by, in the order of NAMES: see `bleu_metric`. TER counts Chinese
    and Japanese by characters."""
    by_character = script_code(language) in CHARACTERS_FOR_TER
    ter = TER(normalized=by_character, asian_support=by_character)
    return [bleu_metric(language, tokenizer), CHRF(), CHRF(word_order=2), ter]


def measure(
    metric: Metric,
    hypotheses: Sequence[str],
    references: Sequence[str],
    more_references: Sequence[Sequence[str]] = (),
) -> Score:
    """One metric, with its interval."""
    hypotheses, references = list(hypotheses), [*map(list, (references, *more_references))]
    try:
        result = metric.corpus_score(hypotheses, references, n_bootstrap=RESAMPLES)
    except TypeError:  # sacreBLEU fails when some resamples score 0 and some do not
        result = metric.corpus_score(hypotheses, references)
    signature = metric.get_signature().format()
    report = json.loads(result.format(width=4, signature=signature, is_json=True))
    low = high = None
    if "confidence_mean" in report and len(hypotheses) > 1:  # one is alike in every resample
        low = max(0.0, report["confidence_mean"] - report["confidence_var"])
        high = report["confidence_mean"] + report["confidence_var"]
        high = high if isinstance(metric, TER) else min(100.0, high)
    return Score(result.name, result.score, low, high, signature)


def bleu(
    hypotheses: Sequence[str], references: Sequence[str], language: str, tokenizer: str = "auto"
) -> float:
    """The BLEU of `score`, without the interval."""
    _check_counts(hypotheses, references)
    metric = bleu_metric(language, tokenizer)
    return metric.corpus_score(list(hypotheses), [list(references)]).score


def chrf(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """The chrF of `score`, without the interval."""
    _check_counts(hypotheses, references)
    return CHRF().corpus_score(list(hypotheses), [list(references)]).score


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
            f"BLEU of text in {language} needs the tokenizer {tokenizer}, which is not there "
            f"({str(error).partition(chr(10))[0]}): {remedy}set data.bleu_tokenizer, such as to "
            "char (eval.py: --bleu-tokenizer)"
        ) from error


def few_long(references: Sequence[str], metric: BLEU) -> str:
    """A sentence if less than half of the references are long enough for BLEU, else ""."""
    order = metric.max_ngram_order
    long = sum(len(metric.tokenizer(text).split()) >= order for text in references)
    if 2 * long >= sum(bool(text.strip()) for text in references):
        return ""
    return (
        f"{long:,} of {len(references):,} references have {order} words, and BLEU compares {order} "
        "in a row"
    )


def doubt(language: str, tokenizer: str = "auto") -> str:
    """What a user should know of how BLEU finds words in text of a language; "" if nothing."""
    if read_code(language) or tokenizer != "auto":
        return ""
    return (
        f"{language!r} is not a known language code (such as zh, zho, zh-CN or zho_Hans): BLEU "
        "finds words by spaces and punctuation (13a), unless data.bleu_tokenizer says otherwise"
    )


def _check_counts(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    if len(hypotheses) != len(references):
        raise UserError(
            f"{len(hypotheses)} translations and {len(references)} references cannot be compared: "
            "line k of one must translate line k of the other"
        )
    if not hypotheses:
        raise UserError("there is nothing to score: the test set is empty")
