"""BLEU by length, and the best and the worst, against sacreBLEU's own on the same sentences."""

import pytest
import sacrebleu

from transformer.evaluation.details import (
    by_length,
    extremes,
    groups_by_length,
    word_for_word,
    worst_and_best,
)
from transformer.evaluation.scores import References

WORDS = "der Hund schläft im alten Garten und wir sehen ihn dort jeden Abend wieder gern"


def lines(lengths):
    return [" ".join(WORDS.split()[:n]) for n in lengths]


def to(*references, sources=None):
    return References(sources or references[0], references, "de")


def test_each_group_has_the_bleu_of_its_sentences():
    lengths = [5, 6, 7, 8, 9, 10, 11, 12, 13, 14]
    references = lines(lengths)
    hypotheses = [*references[:5], *(line[::-1] for line in references[5:8]), *references[8:]]
    head, *rows = by_length(lengths, hypotheses, to(references))
    assert "BLEU" in head and len(rows) == 5
    assert [row.split(" tokens")[0] for row in rows] == [
        "5 to 5", "6 to 7", "8 to 9", "10 to 11", "12 to 14",
    ]  # fmt: skip
    of_last = sacrebleu.corpus_bleu(hypotheses[7:], [references[7:]]).score
    assert f" {of_last:.1f} (" in rows[-1]
    assert " 1    100.0  " in rows[0] and "to" not in rows[0].split("100.0")[1]  # one sentence
    assert " 100.0 (100.0 to 100.0) " in rows[1] and " 0.0" in rows[3]


def test_sentences_of_one_length_are_one_group():
    _, row = by_length([4] * 7, lines([4] * 7), to(lines([5] * 7)))
    assert row.startswith("4 to 4 tokens") and " 7 " in row
    shorter = len(lines([4])[0]) / len(lines([5])[0])
    assert row.endswith(f"{shorter:.2f}")


def test_of_many_equal_lengths_no_sentence_is_lost():
    lengths = [1] * 50 + [2] * 3 + [9] * 47
    _, *rows = by_length(lengths, lines(lengths), to(lines(lengths)))
    assert sum(int(row.split("tokens")[1].split()[0]) for row in rows) == 100


def test_the_worst_and_the_best_are_shown_with_their_place():
    references = lines([5, 6, 7, 8])
    hypotheses = [references[0], "xyz", references[2] + " nicht", references[3]]
    said = extremes(hypotheses, to(references, sources=["a", "b", "c", "d"]), 1)
    assert said.splitlines() == [
        "2 of 4 translations are the reference word for word",
        "worst, chrF2++ 0.0, line 2",
        "  source     b",
        f"  reference  {references[1]}",
        "  output     xyz",
        "best, chrF2++ 100.0, line 4",
        "  source     d",
        f"  reference  {references[3]}",
        f"  output     {references[3]}",
    ]
    assert extremes(["c"], to(["b"], sources=["a"]), 5).count("worst") == 1
    blank = worst_and_best(["", "c"], to(["", "b"], sources=["", "a"]), 5)
    assert [one.line for one in blank["worst"]] == [one.line for one in blank["best"]] == [2]


def test_the_nearest_of_several_references_counts():
    references = ["eins zwei drei vier"] * 2
    several = to(references, ["a b c d", "eins zwei"], sources=["s", "t"])
    outputs = ["a b c d", "eins zwei drei vier"]
    assert word_for_word(outputs, several).startswith("2 of 2 translations are a ref")
    assert word_for_word(outputs, to(references)).startswith("1 of 2 translations are the ref")
    [worst] = worst_and_best(outputs, several, 1)["worst"]
    assert worst.score == 100 and worst.reference == references[0]
    [row] = groups_by_length([3, 3], outputs, several)
    assert row.scores[0].value == pytest.approx(100)
