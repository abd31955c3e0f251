"""Test sets by split, by file, and by sacreBLEU's names, against sacreBLEU's own command."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest
from sacrebleu.dataset import DATASETS
from sacrebleu.dataset.base import Dataset

from transformer.config import DataConfig
from transformer.data.test_sets import in_files, of_sacrebleu, split_of
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
    assert (second.name, second.stem, second.pairs) == ("b.tsv", "b", [("three", "drei")])
    with pytest.raises(UserError, match=r"b\.tsv has no target file|a\.en has no target file"):
        in_files(data, ["b.tsv", "a.en"])


def test_a_split_is_what_the_config_says(files):
    data = replace(DATA, dataset="", test_files=("a.de", "a.en"))
    assert split_of(data, "test").pairs == [("one", "eins"), ("two", "zwei")]
    assert split_of(data, "test").name == "files test"


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


def test_what_sacrebleu_does_not_have_is_told(folder, monkeypatch):
    for name, words in {
        "wmt14-full": r"knows no such test set; is it .*wmt14/full",
        "zzzzzz": "sacrebleu --list",
        "wmt15": "has no en-de: it has",
    }.items():
        data = replace(DATA, target="de" if name != "wmt15" else "xx")
        with pytest.raises(UserError, match=words.replace("en-de", "en-..")):
            of_sacrebleu(data, name)

    def offline(self):
        raise OSError("no network")

    monkeypatch.setattr(Dataset, "maybe_download", offline)
    with pytest.raises(UserError, match=r"cannot be had \(no network\).* -t wmt17 -l en-de"):
        of_sacrebleu(DATA, "wmt17")


def test_several_references_are_refused(folder, monkeypatch):
    several = DATASETS["wmt14/full"]
    monkeypatch.setattr(several, "get_reference_files", lambda languages: ["a", "b"])
    with pytest.raises(UserError, match="2 references a sentence"):
        of_sacrebleu(DATA, "wmt14/full")
