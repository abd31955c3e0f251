"""Corpora: what is in the files comes out, and what is wrong with them is said in one sentence."""

import gzip
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transformer.config import DataConfig, UserError
from transformer.data.corpus import fingerprint, read_pairs

PAIRS = [("One.", "Eins."), ("Two\u2028and\x85more\x0b\x0c\x1c.", "Zwei\rund drei."), ("", "Leer.")]


def write(path: Path, content: str | bytes) -> str:
    """Write a file, compressed when it is called .gz."""
    content = content if isinstance(content, bytes) else content.encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return str(path)


def parallel(folder: Path, source: str | bytes, target: str | bytes, suffix="") -> DataConfig:
    names = write(folder / f"s{suffix}", source), write(folder / f"t{suffix}", target)
    return DataConfig(dataset="", train_files=names)


def table(folder: Path, content: str | bytes, name="train.tsv") -> DataConfig:
    return DataConfig(dataset="", train_files=(write(folder / name, content),))


def read(data: DataConfig) -> list[tuple[str, str]]:
    return list(read_pairs(data, "train"))


def assert_one_sentence(error: UserError) -> None:
    assert "\n" not in str(error)
    assert len(str(error)) < 400


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("last_end", [True, False])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_files_give_their_lines_whatever_ends_them(tmp_path, suffix, end, last_end, mark):
    source, target = (mark + end.join(side) + end * last_end for side in zip(*PAIRS))
    if not last_end:
        source += end  # its last line is empty: without an end it would be no line
    assert read(parallel(tmp_path, source, target, suffix)) == PAIRS
    lines = end.join("\t".join(pair) for pair in PAIRS) + end * last_end
    assert read(table(tmp_path, mark + lines, f"train.tsv{suffix}")) == PAIRS


sentences = st.text(st.characters(exclude_characters="\n\r\t\ufeff", exclude_categories=["Cs"]))


@given(st.lists(st.tuples(sentences, sentences), min_size=1))
def test_any_text_comes_back(pairs):
    with tempfile.TemporaryDirectory() as folder:
        source, target = ("".join(f"{line}\n" for line in side) for side in zip(*pairs))
        assert read(parallel(Path(folder), source, target)) == pairs
        both = "".join(f"{s}\t{t}\n" for s, t in pairs)
        assert read(table(Path(folder), both)) == pairs


@given(st.binary(), st.binary(), st.sampled_from(["", ".gz"]))
def test_random_bytes_give_pairs_or_a_user_error(source, target, suffix):
    with tempfile.TemporaryDirectory() as folder:
        data = parallel(Path(folder), source, target, suffix)
        if suffix:  # bytes that pretend to be compressed
            Path(data.train_files[0]).write_bytes(source)
        tsv = table(Path(folder), source)
        for config in (data, tsv):
            try:
                assert all(isinstance(side, str) for pair in read(config) for side in pair)
            except UserError as error:
                assert_one_sentence(error)


def test_further_columns_are_ignored(tmp_path):
    assert read(table(tmp_path, "a\tb\tCC-BY\n")) == [("a", "b")]


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("a\nb\nc\n", "a\n", r"s has 3 lines and .*t has 1"),
        ("a\n", "", r"s has 1 lines and .*t has 0"),
        (b"a\nb\nc \xff d\n", "a\nb\nc\n", r"s, line 3: not UTF-8 \(byte 0xff\)"),
        ("a\n", b"\xc3\n", r"t, line 1: not UTF-8"),
        ("", "", r"train corpus is empty: .*s and .*t has no sentences"),
    ],
)
def test_parallel_files_that_are_wrong(tmp_path, source, target, message):
    with pytest.raises(UserError, match=message) as caught:
        read(parallel(tmp_path, source, target))
    assert_one_sentence(caught.value)


def test_tables_that_are_wrong(tmp_path):
    with pytest.raises(UserError, match=r"train\.tsv, line 2: no tab in 'no tab here'"):
        read(table(tmp_path, "a\tb\nno tab here\n"))
    with pytest.raises(UserError, match=r"empty: .*train\.tsv"):
        read(table(tmp_path, ""))


def test_compressed_files_that_are_not(tmp_path):
    write(tmp_path / "plain", "a\tb\n")
    (tmp_path / "plain").rename(tmp_path / "a.tsv.gz")
    with pytest.raises(UserError, match=r"cannot read .*a\.tsv\.gz .*gzip"):
        read(DataConfig(dataset="", train_files=(str(tmp_path / "a.tsv.gz"),)))
    whole = gzip.compress(b"a\tb\n" * 1000)
    (tmp_path / "a.tsv.gz").write_bytes(whole[:-9])
    with pytest.raises(UserError, match=r"cannot read .*a\.tsv\.gz after line 9"):
        read(DataConfig(dataset="", train_files=(str(tmp_path / "a.tsv.gz"),)))


def test_missing_files_name_what_is_there(tmp_path):
    data = parallel(tmp_path, "a\n", "b\n")
    write(tmp_path / "train.en", "a\n")
    wrong = str(tmp_path / "trian.en")
    with pytest.raises(UserError, match=r"data\.train_files: no file .*trian\.en.*train\.en"):
        read(DataConfig(dataset="", train_files=(wrong, data.train_files[1])))
    with pytest.raises(UserError, match=r"no folder .*nowhere either"):
        read(DataConfig(dataset="", train_files=(str(tmp_path / "nowhere/a.tsv"),)))
    with pytest.raises(UserError, match=r"no file"):
        fingerprint(DataConfig(dataset="", train_files=(wrong, wrong)), "train")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ((), r"data\.test_files is not set"),
        (("a.txt",), r"data\.test_files \(a\.txt\) must be a source and a target file, or one"),
        (("a", "b", "c"), r"data\.test_files names 3 files"),
    ],
)
def test_a_wrong_number_of_files(files, message):
    data = DataConfig(dataset="", train_files=("a", "b"), test_files=files)
    with pytest.raises(UserError, match=message):
        list(read_pairs(data, "test"))


def test_files_of_a_split_come_before_the_dataset(tmp_path):
    files = parallel(tmp_path, "a\n", "b\n").train_files
    data = DataConfig(dataset="multi30k/en_de", test_files=files)
    assert list(read_pairs(data, "test")) == [("a", "b")]


def test_the_fingerprint_changes_with_the_files(tmp_path):
    data = parallel(tmp_path, "a\n", "b\n")
    before = fingerprint(data, "train")
    assert before == fingerprint(data, "train")
    write(tmp_path / "t", "bb\n")
    assert fingerprint(data, "train") != before
    swapped = DataConfig(dataset="", train_files=data.train_files[::-1])
    assert fingerprint(swapped, "train") != fingerprint(data, "train")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("multi31k/en_de", r"no TFDS dataset 'multi31k/en_de'; the nearest names are multi30k"),
        ("phrasebok", r"the nearest names are phrasebook"),
        ("multi30k/en_fr", r"no TFDS dataset 'multi30k/en_fr'; multi30k has en_de"),
        ("wmt14_translate/de-fr", r"wmt14_translate has .*de-en"),
        ("no such name", "the nearest names are"),
        ("multi30k/en_de:9.9.9", "no TFDS dataset"),
    ],
)
def test_unknown_datasets_name_their_neighbours(name, message):
    with pytest.raises(UserError, match=message) as caught:
        read(DataConfig(dataset=name))
    assert_one_sentence(caught.value)


def test_an_unknown_language_names_those_there_are():
    with pytest.raises(UserError, match=r"data\.source \('fr'\) is not in multi30k.* en, de"):
        read(DataConfig(dataset="multi30k/en_de", source="fr"))


def test_a_manual_folder_must_exist(tmp_path, monkeypatch):
    monkeypatch.setattr("tensorflow_datasets.core.constants.DATA_DIR", str(tmp_path))
    with pytest.raises(UserError, match=r"data\.manual_dir: there is no folder .*nowhere"):
        read(DataConfig(dataset="multi30k/en_de", manual_dir=str(tmp_path / "nowhere")))


def test_files_need_no_tfds(tmp_path, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("tensorflow_datasets")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    assert read(parallel(tmp_path, "a\n", "b\n")) == [("a", "b")]
    with pytest.raises(UserError, match=r"pip install tensorflow-datasets.*data\.train_files"):
        read(DataConfig(dataset="multi30k/en_de"))


def test_importing_the_reader_does_not_import_tfds():
    code = "import sys, transformer.data.batching; print('tensorflow_datasets' in sys.modules)"
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "False"
