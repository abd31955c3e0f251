"""Our scores against sacreBLEU's own command."""

import json
import subprocess
import sys
from typing import get_args

import pytest
import sacrebleu
from sacrebleu.metrics import BLEU, CHRF, TER

from transformer.config import DataConfig
from transformer.config.settings import LOWER_IS_BETTER, BestBy
from transformer.errors import UserError
from transformer.evaluation.comparison import compare
from transformer.evaluation.details import groups_by_length
from transformer.evaluation.scores import (
    METRICS,
    Metric,
    References,
    SentenceMean,
    bleu,
    doubt,
    score,
    value_of,
)
from transformer.evaluation.validation import ValidationScorer

REFERENCES = [
    "Der Hund schläft im Garten.",
    "Wir sehen das alte Haus, nicht wahr?",
    "Sie liest jeden Abend ein Buch.",
    "Morgen fahren wir mit dem Zug nach Berlin.",
    "Das Kind hat den Ball gefunden.",
]
HYPOTHESES = [
    "Der Hund schläft in dem Garten.",
    "Wir sehen das Haus, nicht wahr?",
    "sie liest am Abend ein Buch.",
    "Morgen fahren wir mit dem Zug nach Berlin.",
    "Das Kind fand einen Ball.",
]


def to(references=REFERENCES, language="de", tokenizer="auto", more=()):
    return References(references, [references, *more], language, tokenizer)


def test_scores_and_signatures_are_those_of_the_sacrebleu_command(tmp_path):
    for name, lines in (("hypotheses", HYPOTHESES), ("references", REFERENCES)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    command = [sys.executable, "-m", "sacrebleu", str(tmp_path / "references")]
    command += ["-i", str(tmp_path / "hypotheses"), "-w", "4", "--confidence"]
    asked = [["-m", "bleu", "chrf"], ["-m", "chrf", "--chrf-word-order", "2"], ["-m", "ter"]]
    asked += [["-m", "bleu", "-lc"]]
    output = [
        subprocess.run([*command, *words], capture_output=True, text=True, check=True).stdout
        for words in asked
    ]
    theirs = [json.loads(said) for said in output]
    bleu_and_chrf, *others = theirs
    expected = {one["name"]: one for one in [*bleu_and_chrf, *others[:2]]}
    ours = score(HYPOTHESES, to(), also_lowercased=True)
    lowercased = ours.pop(1)
    assert lowercased.name == "BLEU of lower-cased text"
    assert lowercased.signature == others[2]["signature"]
    assert lowercased.value == pytest.approx(others[2]["score"], abs=1e-4)
    assert [metric.name for metric in ours[:4]] == [*expected]
    assert [*expected] == ["BLEU", "chrF2", "chrF2++", "TER"]
    for metric, theirs in zip(ours, expected.values()):
        assert metric.value == pytest.approx(theirs["score"], abs=1e-4)
        assert metric.signature == theirs["signature"]
        middle, half_width = theirs["confidence_mean"], theirs["confidence_var"]
        assert metric.low == pytest.approx(middle - half_width, abs=1e-3)
        assert metric.high == pytest.approx(middle + half_width, abs=1e-3)


def test_bleu_is_cased_and_tokenized_by_13a():
    expected = sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES], tokenize="13a", lowercase=False)
    assert bleu(HYPOTHESES, REFERENCES, "de") == pytest.approx(expected.score)
    assert bleu([line.lower() for line in HYPOTHESES], REFERENCES, "de") < expected.score
    signature = score(HYPOTHESES, to())[0].signature
    assert "case:mixed" in signature and "tok:13a" in signature


CHINESE = ["今天的天气很好。", "我的朋友住在北京。", "孩子们在花园里玩。"]
NEARLY = ["今天天气很好。", "我的朋友在北京。", "孩子们在公园里玩。"]


@pytest.mark.parametrize(
    "language", ["zh", "zh-CN", "zh_cn", "zho_Hans", "cmn", "cmn_Hant", "yue_Hant", "zho"]
)
def test_chinese_is_tokenized_as_chinese(language):
    expected = sacrebleu.corpus_bleu(NEARLY, [CHINESE], tokenize="zh").score
    assert expected > 10 * bleu(NEARLY, CHINESE, "de")
    assert bleu(NEARLY, CHINESE, language) == pytest.approx(expected)
    metric, *_ = score(NEARLY, to(CHINESE, language))
    assert metric.value == pytest.approx(expected) and "tok:zh" in metric.signature


@pytest.mark.parametrize("language", ["tha_Thai", "lo", "khm", "mya", "bo", "dzo_Tibt"])
def test_scripts_without_spaces_are_scored_by_characters(language):
    perfect = score(["สวัสดีครับ"], to(["สวัสดีครับ"], language))[0]
    assert perfect.value == pytest.approx(100) and "tok:char" in perfect.signature


@pytest.mark.parametrize("language", ["zho_Hans", "zh-TW", "jpn_Hira"])
def test_ter_counts_chinese_and_japanese_by_characters(language):
    hypotheses, references = ["今天的天气很好,我们去公园。"], ["今天的天气很好，我们去公园。"]
    ter = score(hypotheses, to(references, language, "char"))[3]
    expected = TER(normalized=True, asian_support=True)
    assert ter.value == pytest.approx(expected.corpus_score(hypotheses, [references]).score)
    assert 0 < ter.value < 20 and "asian:yes" in ter.signature
    plain = score(hypotheses, to(references, "ko-KR", "char"))[3]
    assert plain.value == 100 and "asian:no" in plain.signature


def test_the_tokenizer_may_be_chosen_and_the_signature_says_which():
    assert "tok:intl" in score(HYPOTHESES, to(tokenizer="intl"))[0].signature
    lowercased = score(HYPOTHESES, to(language="zh", tokenizer="char"), also_lowercased=True)[1]
    assert "tok:char" in lowercased.signature
    expected = sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES], tokenize="char").score
    assert bleu(HYPOTHESES, REFERENCES, "xx", "char") == pytest.approx(expected)


def test_several_references_count_as_sacrebleu_counts_them():
    more = [[line.replace("Haus", "Gebäude") for line in HYPOTHESES], REFERENCES[::-1]]
    found = score(HYPOTHESES, to(more=more))
    streams = [REFERENCES, *more]
    for one, metric in zip(found, (BLEU(), CHRF(), CHRF(word_order=2), TER())):
        assert one.value == pytest.approx(metric.corpus_score(HYPOTHESES, streams).score)
        assert one.signature.startswith("nrefs:3|")
    with pytest.raises(UserError, match="5 translations and 4 references"):
        score(HYPOTHESES, to(more=[REFERENCES[:4]]))


def test_an_unknown_code_is_scored_by_13a_and_doubted():
    assert "tok:13a" in score(HYPOTHESES, to(language="klingon"))[0].signature
    assert "'klingon' is not a known language code" in doubt("klingon")
    assert doubt("klingon", "char") == doubt("jpn") == doubt("de") == ""


@pytest.mark.parametrize(
    "language, code", [("ja", "ja"), ("jpn", "ja"), ("jap", "ja"), ("ko", "ko"), ("kor_Hang", "ko")]
)
def test_a_tokenizer_that_is_not_installed_is_named(language, code, monkeypatch):
    monkeypatch.setattr(f"sacrebleu.tokenizers.tokenizer_{code}_mecab.MeCab", None)
    with pytest.raises(UserError, match=rf"pip install 'sacrebleu\[{code}\]'.*--bleu-tokenizer"):
        bleu(HYPOTHESES, REFERENCES, language)


@pytest.mark.parametrize("right, wrong, end", [(1, 3, "low"), (4, 1, "high")])
def test_the_interval_ends_where_scores_end(right, wrong, end):
    hypotheses = REFERENCES[:right] + ["xyz uvw"] * wrong
    metrics = score(hypotheses, to(REFERENCES[:right] + REFERENCES[4:] * wrong))[:2]
    for metric in metrics:
        assert getattr(metric, end) == {"low": 0, "high": 100}[end]
        assert 0 <= metric.low < metric.value < metric.high <= 100


def test_the_interval_holds_the_value_and_has_a_width():
    for metric in score(HYPOTHESES, to()):
        assert metric.low < metric.value < metric.high


def test_one_sentence_has_no_interval():
    for metric in score(HYPOTHESES[:1], to(REFERENCES[:1])):
        assert (metric.low, metric.high) == (None, None)


def test_perfect_translations_score_100():
    assert [metric.value for metric in score(REFERENCES, to())] == pytest.approx(
        [100, 100, 100, 0, 100]
    )


def test_an_exact_match_is_any_of_the_references():
    assert value_of("exact", HYPOTHESES, to()) == 20
    assert value_of("exact", HYPOTHESES, to(more=[[*HYPOTHESES[:2], "", "", ""]])) == 60
    [*_, metric] = score(HYPOTHESES, to())
    assert metric.name == "exact match" and 0 <= metric.low < 20 < metric.high <= 100


def test_a_score_prints_its_value_interval_and_signature():
    metric = score(HYPOTHESES, to())[0]
    shown = str(metric)
    assert f"BLEU {metric.value:.1f}" in shown and metric.signature in shown
    assert f"{metric.low:.1f} to {metric.high:.1f}" in shown


def test_a_score_near_zero_is_still_a_score():
    metric = score(["xyz", "a b c d e", "uvw"], to(["Der Hund", "a b c d f", "Eine Katze"]))[0]
    assert metric.name == "BLEU" and "BLEU" in str(metric)
    assert score(["xyz"], to(["Der Hund"]))[0].value == pytest.approx(0, abs=1)


@pytest.mark.parametrize(
    "hypotheses, references, message",
    [
        (HYPOTHESES[:4], REFERENCES, "4 translations and 5 references"),
        (HYPOTHESES, REFERENCES[:4], "5 translations and 4 references"),
        ([], [], "empty"),
    ],
)
def test_unequal_counts_and_empty_sets_are_errors(hypotheses, references, message):
    with pytest.raises(UserError, match=message):
        score(hypotheses, to(references))
    with pytest.raises(UserError, match=message):
        bleu(hypotheses, references, "de")


def test_any_function_of_sources_translations_and_references_is_a_metric_everywhere(monkeypatch):
    """One that no metric of sacreBLEU's could be: it reads the sources."""

    def copied(sources, hypotheses, references):
        assert {len(one) for one in references} <= {1, 2}
        return [float(ours == source) for source, ours in zip(sources, hypotheses, strict=True)]

    metric = Metric("copied", lambda to: SentenceMean("copied", copied, to.sources))
    monkeypatch.setitem(METRICS, "copied", metric)
    sources = [*HYPOTHESES[:2], "a", "b", "c"]
    references = References(sources, [REFERENCES, REFERENCES], "de")
    *_, found = score(HYPOTHESES, references)
    assert (found.name, found.value) == ("copied", 40)
    assert 0 <= found.low < 10 and 70 < found.high <= 100
    assert found.signature.startswith("nrefs:2|bs:1000|seed:12345")
    *_, compared = compare(HYPOTHESES, REFERENCES, references)
    assert (compared.name, compared.first, compared.second) == ("copied", 40, 0)
    groups = [*groups_by_length([1, 1, 2, 3, 4], HYPOTHESES, references)]
    assert sum(group.count * group.scores[-1].value for group in groups) / 5 == 40
    scorer = ValidationScorer(DataConfig(), "copied", [*zip(sources, REFERENCES)])
    assert scorer.scores(HYPOTHESES).keys() == {"bleu", "copied"}
    assert scorer.scores(HYPOTHESES)["copied"] == 40 and scorer.labels["copied"] == "copied"


def test_every_metric_may_choose_checkpoints():
    assert {*get_args(BestBy)} == {"auto", "loss", "accuracy", *METRICS}
    for name, metric in METRICS.items():
        worst, best = (value_of(name, lines, to()) for lines in (["x"] * 5, REFERENCES))
        assert (best < worst) == (name in LOWER_IS_BETTER)
        assert best <= metric.highest or best == pytest.approx(metric.highest)
