"""How much text a corpus has, and in which scripts."""

import pytest

from transformer.config import DataConfig
from transformer.config.advice import CorpusSize
from transformer.data.size import corpus_size, script_of


def test_letters_decide_on_the_script():
    assert script_of("abc \u0434") == "LATIN"
    assert script_of("\u4f60\u597d a") == script_of("\u306f\u30ab\u30ca") == "JAPANESE OR CHINESE"
    assert script_of("12 !") == ""


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ("yes\tja\nno\tnein\n", CorpusSize(2, 5, True)),
        ("yes\t\u0434\u0430\nno\t\u043d\u0435\u0442\n", CorpusSize(2, 5, False)),
        ("yes\t1\nno\t0\n12\t\u0434\u0430\n", CorpusSize(3, 6, False)),
        ("1\t2\n", CorpusSize(1, 1, True)),
    ],
)
def test_the_side_with_fewer_bytes_counts(tmp_path, rows, expected):
    table = tmp_path / "pairs.tsv"
    table.write_text(rows, encoding="utf-8")
    assert corpus_size(DataConfig(dataset="", train_files=(str(table),))) == expected


def test_of_one_side_that_side_counts_and_of_a_classifier_its_text(tmp_path):
    table = tmp_path / "questions.tsv"
    table.write_text("who\t1\nwhere is it\t0\n", encoding="utf-8")
    one_side = {"dataset": "", "train_files": (str(table),), "source": "en", "target": ""}
    assert corpus_size(DataConfig(**one_side)) == CorpusSize(2, 14)
    assert corpus_size(DataConfig(**one_side, label_column=2)) == CorpusSize(2, 14)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Mies osti uuden kolmivaihemittarin.", True),
        ("\u4f60\u597d\u4e16\u754c" * 5, False),
        ("\u4f60\u597d \u4e16\u754c " * 5, True),
    ],
    ids=["Finnish", "Chinese", "Chinese with spaces"],
)
def test_whether_spaces_separate_words(tmp_path, text, expected):
    table = tmp_path / "questions.tsv"
    table.write_text(f"{text}\t1\n{text}\t0\n", encoding="utf-8")
    data = DataConfig(dataset="", train_files=(str(table),), source="fi", target="", label_column=2)
    assert corpus_size(data).has_words is expected
