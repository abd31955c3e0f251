"""Paired tests of significance against sacreBLEU's own command, and what they make one say."""

import itertools
import re
import subprocess
import sys

import pytest

from transformer.evaluation.comparison import compare, verdict
from transformer.evaluation.scores import References

REFERENCES = [f"Der Hund Nummer {n} schläft im Garten und die Katze sieht zu." for n in range(40)]
FIRST = [line if n % 3 else line.replace("schläft", "liegt") for n, line in enumerate(REFERENCES)]
SECOND = [line.replace("Katze", "Kuh").replace("Garten", "Haus") for line in REFERENCES]
ALIKE = [line if n % 3 != 1 else line.replace("Katze", "Maus") for n, line in enumerate(REFERENCES)]


def to(references):
    return References(references, [references], "de")


@pytest.mark.parametrize(
    "second", [SECOND, pytest.param(ALIKE, marks=pytest.mark.slow)], ids=["worse", "alike"]
)
def test_scores_and_probabilities_are_those_of_the_sacrebleu_command(tmp_path, second):
    for name, lines in (("first", FIRST), ("second", second), ("references", REFERENCES)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    systems = [str(tmp_path / "first"), str(tmp_path / "second")]
    command = [sys.executable, "-m", "sacrebleu", str(tmp_path / "references"), "-i", *systems]
    found = compare(FIRST, second, to(REFERENCES))
    by_name = {one.name: one for one in found}
    for kind, field in (("--paired-bs", "bootstrap"), ("--paired-ar", "randomisation")):
        for words, name in ((["bleu"], "BLEU"), (["chrf", "--chrf-word-order", "2"], "chrF2++")):
            said = subprocess.run(
                [*command, kind, "-m", *words, "-w", "4", "-f", "text"],
                capture_output=True, text=True, check=True,
            ).stdout  # fmt: skip
            scores = re.findall(r" (\d+\.\d{4}) ", said)
            [chance] = re.findall(r"p = (\d\.\d+)", said)
            assert by_name[name].first == pytest.approx(float(scores[0]), abs=1e-3)
            assert any(by_name[name].second == pytest.approx(float(n), abs=1e-3) for n in scores)
            assert getattr(by_name[name], field) == pytest.approx(float(chance), abs=1e-4)
    assert [one.name for one in found[:4]] == ["BLEU", "chrF2", "chrF2++", "TER"]
    verdicts = {one.verdict for one in found}
    assert verdicts == (
        {"the first is better"} if second is SECOND
        else {"no significant difference on this test set"}
    )  # fmt: skip


def test_a_translator_is_no_better_than_itself():
    """sacreBLEU gives two equal ones the smallest probability there is."""
    for one in compare(FIRST, FIRST, to(REFERENCES)):
        assert one.verdict.startswith("no significant difference")
        assert (one.bootstrap, one.randomisation) == (1, 1)


@pytest.mark.parametrize("count, least", [(1, 1), (5, 0.0625)])
def test_few_sentences_that_differ_show_no_difference(count, least):
    """jhclark/multeval#3 and #5: where ties do not count, one sentence would be enough."""
    worse = [line if n >= count else "" for n, line in enumerate(REFERENCES[:8])]
    for one in compare(REFERENCES[:8], worse, to(REFERENCES[:8])):
        assert least <= one.randomisation < least + 0.05
        assert one.verdict == "no significant difference on this test set"


@pytest.mark.parametrize(
    "lower_is_better, first, second, chance, expected",
    [
        (False, 30.0, 20.0, 0.02, "the first is better"),
        (False, 20.0, 30.0, 0.02, "the second is better"),
        (True, 30.0, 20.0, 0.02, "the second is better"),
        (True, 20.0, 30.0, 0.02, "the first is better"),
        (False, 30.0, 20.0, 0.05, "no significant difference on this test set"),
    ],
)
def test_a_difference_counts_if_it_is_unlikely(lower_is_better, first, second, chance, expected):
    assert verdict(first, second, chance, lower_is_better) == expected


def test_a_difference_counts_if_both_tests_see_it(monkeypatch):
    chances = itertools.cycle([0.01, 0.07])  # of one metric after the other, the two tests
    monkeypatch.setattr("transformer.evaluation.comparison._probability", lambda _: next(chances))
    for one in compare(FIRST, SECOND, to(REFERENCES)):
        assert (one.bootstrap, one.randomisation) == (0.01, 0.07)
        assert one.verdict.startswith("no significant difference")
