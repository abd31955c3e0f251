"""The interface: files and datasets give pairs in the same way."""

import subprocess
import sys

import pytest

from transformer.config import DataConfig
from transformer.data.corpus import read_pairs
from transformer.errors import UserError


def read(data: DataConfig, split: str = "train") -> list[tuple[str, str]]:
    return list(read_pairs(data, split))


@pytest.fixture
def files(tmp_path) -> tuple[str, str]:
    for name in ("a", "b"):
        (tmp_path / name).write_text(f"{name}\n")
    return str(tmp_path / "a"), str(tmp_path / "b")


def test_files_of_a_split_come_before_the_dataset(files):
    data = DataConfig(dataset="multi30k/en_de", test_files=files)
    assert read(data, "test") == [("a", "b")]


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
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400


def test_an_unknown_language_names_those_there_are():
    with pytest.raises(UserError, match=r"data\.source \('fr'\) is not in multi30k.* en, de"):
        read(DataConfig(dataset="multi30k/en_de", source="fr"))


@pytest.mark.parametrize(
    ("folder", "message"),
    [("nowhere", "there is no folder .*nowhere"), ("~nosuch", "~nosuch is in the home")],
)
def test_a_manual_folder_must_exist(tmp_path, monkeypatch, folder, message):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tensorflow_datasets.core.constants.DATA_DIR", str(tmp_path))
    with pytest.raises(UserError, match=rf"data\.manual_dir: {message}"):
        read(DataConfig(dataset="multi30k/en_de", manual_dir=folder))


def test_files_need_no_tfds(files, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("tensorflow_datasets")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    assert read(DataConfig(dataset="", train_files=files)) == [("a", "b")]
    with pytest.raises(UserError, match=r"pip install tensorflow-datasets.*data\.train_files"):
        read(DataConfig(dataset="multi30k/en_de"))


def test_importing_the_reader_does_not_import_tfds():
    code = "import sys, transformer.data.batching; print('tensorflow_datasets' in sys.modules)"
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "False"
