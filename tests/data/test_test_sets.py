"""Test sets by split, by file, and by sacreBLEU's names, against sacreBLEU's own command."""

import gzip
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from sacrebleu.dataset import DATASETS
from sacrebleu.dataset.base import Dataset

from transformer.config import DataConfig
from transformer.data.corpus import read_pairs
from transformer.data.test_sets import (
    TestSet,
    in_files,
    of_sacrebleu,
    perturbed_set,
    split_of,
    with_references,
)
from transformer.errors import UserError

DATA = DataConfig(source="en", target="de", swap_files=True)


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text in {
        "a.en": "one\ntwo\n", "a.de": "eins\nzwei\n", "b.tsv": "drei\tthree\n",
    }.items():  # fmt: skip
        (tmp_path / name).write_text(text)
    return tmp_path


def test_each_pair_of_files_is_a_test_set(files):
    data = replace(DATA, tsv_columns=(2, 1))
    first, second = in_files(data, ["a.en", "a.de", "b.tsv"])
    assert (first.name, first.stem) == ("a.en and a.de", "a")
    assert first.pairs == [("one", "eins"), ("two", "zwei")]
    assert (second.name, second.stem, second.pairs) == ("b.tsv", "b", [("drei", "three")])
    with pytest.raises(UserError, match=r"b\.tsv has no target file|a\.en has no target file"):
        in_files(data, ["b.tsv", "a.en"])


@pytest.mark.parametrize("name", ["b.tsv", "b.tsv.gz"])
@pytest.mark.parametrize(
    "swap, columns, pair",
    [
        (False, (1, 2), ("drei", "three")),
        (True, (1, 2), ("three", "drei")),
        (True, (2, 1), ("drei", "three")),
        (True, (1, 3), ("three!", "drei")),
    ],
)
def test_a_table_is_read_as_the_config_reads_those_of_training(files, name, swap, columns, pair):
    (files / "b.tsv").write_text("drei\tthree\tthree!\n")
    (files / "b.tsv.gz").write_bytes(gzip.compress((files / "b.tsv").read_bytes()))
    data = replace(DATA, swap_files=swap, tsv_columns=columns)
    [found] = in_files(data, [name])
    assert (found.name, found.stem, found.pairs) == (name, "b", [pair])
    assert list(read_pairs(replace(data, dataset="", train_files=(name,)), "train")) == [pair]


def test_a_split_in_several_languages_that_names_no_files_is_refused():
    data = DataConfig(dataset="", source="en", target="de", targets=("de", "fr"))
    with pytest.raises(UserError, match="data.test_files is not set"):
        split_of(data, "test")


def test_what_is_wrong_with_test_files_names_their_flag(files):
    for names, words in (
        (["a.en"], "--test-files: a.en has no target file"),
        (["a.en", "gone"], "--test-files: there is no file gone; its folder has"),
        (["."], r"--test-files: \. "),
    ):
        with pytest.raises(UserError, match=words):
            in_files(DATA, names)


def test_several_files_of_references_take_the_place_of_one(files):
    for name, text in {"1": "EINS\nZWEI\n", "2": "I\nII\n", "3": "I\n"}.items():
        (files / name).write_text(text)
    [test_set] = in_files(DATA, ["a.en", "a.de"])
    found = with_references(test_set, ["1", "2"])
    assert found.pairs == [("one", "EINS"), ("two", "ZWEI")]
    assert (found.more_references, found.name) == ((["I", "II"],), f"{test_set.name} with 1 2")
    assert with_references(test_set, ["2"]).more_references == ()
    with pytest.raises(UserError, match=r"--references: 3 has 1 lines, and a\.en .* 2 sentences"):
        with_references(test_set, ["1", "3"])
    with pytest.raises(UserError, match="--references: there is no file gone"):
        with_references(test_set, ["gone"])


def test_a_split_is_what_the_config_says(files):
    data = replace(DATA, dataset="", test_files=("a.de", "a.en"))
    [found] = split_of(data, "test")
    assert found.pairs == [("one", "eins"), ("two", "zwei")]
    assert found.name == "files test" and found.settings(data) == data


def test_each_target_language_is_a_test_set(files):
    data = DataConfig(dataset="", targets=("de", "fr"), target="de", tsv_columns=(2, 1))
    Path("c.fr").write_text("un\ndeux\n")
    Path("more.de.tsv").write_text("drei\tthree\n")
    data = replace(data, test_files=("a.en", "a.de", "a.en", "c.fr", "more.de.tsv"))
    german, french = split_of(data, "test")
    assert german.pairs == [
        (">>de<< one", "eins"), (">>de<< two", "zwei"), (">>de<< three", "drei"),
    ]  # fmt: skip
    assert french.pairs == [(">>fr<< one", "un"), (">>fr<< two", "deux")]
    assert (french.name, french.stem) == ("files test, fr", "test-fr")
    assert french.settings(data).target == "fr" and german.settings(data).target == "de"
    [alone] = in_files(data, ["a.en", "c.fr"])
    assert alone.pairs == french.pairs and alone.language == "fr"
    assert perturbed_set(data, data.symbols, alone, "upper_case").pairs[0] == (">>fr<< ONE", "UN")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """sacreBLEU's folder with two sentences in place of wmt14/full."""
    known = tmp_path / "wmt14" / "full"
    known.mkdir(parents=True)
    (known / "wmt14_full.en-de.src").write_text("one\ntwo\n")
    (known / "wmt14_full.en-de.ref").write_text("eins\nzwei drei\n")
    for field in set(DATASETS["wmt14/full"].fieldnames("en-de")) - {"src", "ref"}:
        (known / f"wmt14_full.en-de.{field}").write_text("x\nx\n")
    for dataset in DATASETS.values():
        monkeypatch.setattr(dataset, "_outdir", str(tmp_path / dataset.name))
        monkeypatch.setattr(dataset, "_rawdir", str(tmp_path / dataset.name / "raw"))
    return tmp_path


def test_sacrebleus_sets_are_read_as_sacrebleu_reads_them(folder):
    found = of_sacrebleu(DATA, "wmt14/full")
    assert (found.name, found.stem) == ("wmt14/full", "wmt14_full")
    for side, field in enumerate(("src", "ref")):
        echo = [sys.executable, "-m", "sacrebleu", "-t", "wmt14/full", "-l", "en-de", "--echo"]
        said = subprocess.run(
            [*echo, field], capture_output=True, text=True, check=True,
            env=os.environ | {"SACREBLEU": str(folder)},
        )  # fmt: skip
        assert said.stdout.splitlines() == [pair[side] for pair in found.pairs]


@pytest.mark.parametrize("source, target", [("eng", "deu_Latn"), ("en-GB", "ger")])
def test_any_spelling_of_a_language_names_sacrebleus(folder, source, target):
    found = of_sacrebleu(replace(DATA, source=source, target=target), "wmt14/full")
    assert found.pairs == of_sacrebleu(DATA, "wmt14/full").pairs


def test_what_sacrebleu_does_not_have_is_reported(folder, monkeypatch):
    for name, words in {
        "wmt14-full": r"has no such test set; similar names: .*wmt14/full",
        "zzzzzz": "sacrebleu --list",
        "wmt15": "has no en-de: it has",
    }.items():
        data = replace(DATA, target="de" if name != "wmt15" else "xx")
        with pytest.raises(UserError, match=words.replace("en-de", "en-..")):
            of_sacrebleu(data, name)

    def offline(self):
        raise OSError("no network")

    monkeypatch.setattr(Dataset, "maybe_download", offline)
    with pytest.raises(UserError, match=r"its files \(no network\).* -t wmt17 -l en-de"):
        of_sacrebleu(DATA, "wmt17")


def test_all_references_of_sacrebleus_are_read(folder, monkeypatch):
    several = DATASETS["wmt14/full"]
    files = [str(folder / name) for name in ("a", "b")]
    for file, text in zip(files, ("eins\nzwei\n", "ein\nzwo\n")):
        Path(file).write_text(text)
    monkeypatch.setattr(several, "get_reference_files", lambda languages: files)
    found = of_sacrebleu(DATA, "wmt14/full")
    assert found.pairs == [("one", "eins"), ("two", "zwei")]
    assert found.more_references == (["ein", "zwo"],)


@pytest.mark.parametrize(
    "kind, sources, references",
    [
        ("upper_case", ["A CAT", "A DOG"], ["EINE KATZE", "EIN HUND"]),
        ("without_accents", ["a cat", "a dog"], ["eine Katze", "ein Hund"]),
        ("merged", ["a cat a dog", "a dog a cat"], ["eine Katze ein Hund", "ein Hund eine Katze"]),
    ],
)
def test_a_test_set_is_changed_with_all_its_references(kind, sources, references):
    pairs = [("a cat", "eine Katze"), ("a dog", "ein Hund")]
    plain = TestSet("news", "news", pairs, (["eine Katze", "ein Hund"],))
    changed = perturbed_set(DataConfig(), (), plain, kind)
    count = sum(new != old for new, old in zip(changed.pairs, pairs))
    assert changed.name == f"news, {kind} ({count} of 2 changed)"
    assert changed.stem == f"news-{kind}"
    assert changed.pairs == list(zip(sources, references))
    assert changed.more_references == (references,)


def test_classes_of_a_changed_test_set_stay():
    data = DataConfig(label_column=2, target="")
    changed = perturbed_set(data, (), TestSet("mail", "mail", [("a cat", "good")]), "upper_case")
    assert changed.pairs == [("A CAT", "good")] and changed.more_references == ()
