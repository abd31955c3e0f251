"""Multi30k: found or fetched, always verified, and no long wait without a network."""

import gzip
import hashlib
import os
import time
from pathlib import Path

import pytest
from tensorflow_datasets.core.download.checksums import UrlInfo

from transformer.config import DataConfig
from transformer.data.corpus import fingerprint, read_pairs
from transformer.data.datasets import multi30k
from transformer.errors import UserError

REAL_FILES = os.environ.get("MULTI30K_DIR", "")
DATA = DataConfig(dataset="multi30k/en_de")
LINES = {"train": 5, "validation": 2, "test": 3}


def expected(split: str) -> list[tuple[str, str]]:
    return [(f"{split} sentence {i}", f"{split}-Satz {i}, ä\u2028") for i in range(LINES[split])]


@pytest.fixture
def files(file_server, monkeypatch) -> Path:
    """A folder of six small files, whose checksums take the place of the real ones."""
    infos = {}
    for split, stem in multi30k.FILE_OF_SPLIT.items():
        for language, sentences in zip(("en", "de"), zip(*expected(split))):
            content = gzip.compress("".join(f"{line}\n" for line in sentences).encode())
            name = f"{stem}.{language}.gz"
            (file_server.folder / name).write_bytes(content)
            infos[name] = UrlInfo(len(content), hashlib.sha256(content).hexdigest(), name)
    assert set(infos) == set(multi30k.FILES)
    point_to("http://127.0.0.1:9/", infos, monkeypatch)  # nothing listens there
    return file_server.folder


def point_to(url: str, infos: dict[str, UrlInfo], monkeypatch) -> None:
    at_url = {url + name: info for name, info in infos.items()}
    monkeypatch.setattr(multi30k, "URL", url)
    monkeypatch.setattr(multi30k.Multi30k, "url_infos", at_url)


@pytest.fixture(autouse=True)
def data_dir(tmp_path, monkeypatch) -> Path:
    """TFDS's folder, empty, and nobody's downloaded files unless a test says so."""
    folder = tmp_path / "tensorflow_datasets"
    monkeypatch.setattr("tensorflow_datasets.core.constants.DATA_DIR", str(folder))
    monkeypatch.delenv("MULTI30K_DIR", raising=False)
    return folder


@pytest.fixture
def server(files, file_server, monkeypatch):
    """The small files over HTTP on this machine."""
    infos = multi30k.Multi30k.url_infos.values()
    point_to(file_server.url, {info.filename: info for info in infos}, monkeypatch)
    return file_server


def read(data: DataConfig, split: str = "train") -> list[tuple[str, str]]:
    return list(read_pairs(data, split))


def assert_complete(data: DataConfig) -> None:
    """Every split, every line, in the order of the files."""
    for split in LINES:
        assert read(data, split) == expected(split)


def test_files_from_the_setting(files):
    assert_complete(DataConfig(dataset="multi30k/en_de", manual_dir=str(files)))


def test_files_from_the_environment(files, monkeypatch):
    monkeypatch.setenv("MULTI30K_DIR", str(files))
    assert_complete(DATA)


def test_either_direction(files):
    data = DataConfig(dataset="multi30k/en_de", source="de", target="en", manual_dir=str(files))
    assert read(data) == [pair[::-1] for pair in expected("train")]
    forwards = DataConfig(dataset="multi30k/en_de", manual_dir=str(files))
    assert fingerprint(data, "train") != fingerprint(forwards, "train")
    assert fingerprint(data, "train") != fingerprint(data, "test")


def test_what_was_prepared_is_prepared_once(files, capsys):
    data = DataConfig(dataset="multi30k/en_de", manual_dir=str(files))
    assert read(data) == expected("train")
    said = capsys.readouterr()
    assert "Preparing multi30k/en_de" in said.err
    assert not said.out
    for file in files.iterdir():
        file.unlink()
    assert read(data) == expected("train")
    assert "Preparing" not in capsys.readouterr().err


def test_slices_and_unknown_splits(files):
    settings = {"dataset": "multi30k/en_de", "manual_dir": str(files)}
    assert read(DataConfig(**settings, train_split="train[:2]")) == expected("train")[:2]
    for unknown in ("dev", "train[:x]"):
        with pytest.raises(UserError, match=r"data\.train_split .*train, validation, test"):
            read(DataConfig(**settings, train_split=unknown))


def test_a_file_that_was_changed_is_refused(files):
    (files / "val.de.gz").write_bytes(gzip.compress(b"something else\n"))
    with pytest.raises(
        UserError, match=r"val\.de\.gz is not .* expected \d+ bytes with [0-9a-f]{64}"
    ):
        read(DataConfig(dataset="multi30k/en_de", manual_dir=str(files)))


def test_a_wrong_folder_in_the_environment_is_an_error(monkeypatch, tmp_path):
    monkeypatch.setenv("MULTI30K_DIR", str(tmp_path / "nowhere"))
    with pytest.raises(UserError, match=r"MULTI30K_DIR: there is no folder .*nowhere"):
        read(DATA)


def kept(data_dir: Path) -> set[str]:
    """The names of the files that were downloaded."""
    return {path.name for path in (data_dir / "downloads").rglob("*") if path.is_file()}


def test_files_are_downloaded_once(server, data_dir):
    assert_complete(DATA)
    assert sorted(name for name, _ in server.requests) == sorted(multi30k.FILES)
    assert kept(data_dir) == set(multi30k.FILES)


def test_only_what_is_missing_is_downloaded(server, files, tmp_path):
    partly = tmp_path / "partly"
    partly.mkdir()
    (files / "train.en.gz").rename(partly / "train.en.gz")
    assert_complete(DataConfig(dataset="multi30k/en_de", manual_dir=str(partly)))
    assert "train.en.gz" not in {name for name, _ in server.requests}


def test_a_download_that_is_not_the_file_is_not_kept(server, files, data_dir):
    (files / "val.en.gz").write_bytes(b"not the file")
    with pytest.raises(UserError, match=r"val\.en\.gz.* expected"):
        read(DATA)
    assert kept(data_dir) == set(multi30k.FILES) - {"val.en.gz"}


def test_a_file_that_the_server_lacks_is_an_error(server, files):
    (files / "val.en.gz").unlink()
    with pytest.raises(UserError, match=r"cannot download .*val\.en\.gz \(.*--data.manual-dir"):
        read(DATA)


def test_without_a_network_the_remedy_comes_at_once(files):
    began = time.perf_counter()
    with pytest.raises(UserError) as caught:
        read(DATA)
    assert time.perf_counter() - began < 5
    for part in ("--data.manual-dir", "MULTI30K_DIR", *multi30k.FILES):
        assert part in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(not REAL_FILES, reason="MULTI30K_DIR does not name the real files")
def test_the_real_files(monkeypatch):
    monkeypatch.setenv("MULTI30K_DIR", REAL_FILES)
    train, validation, test = (read(DATA, split) for split in LINES)
    assert [len(train), len(validation), len(test)] == [29_000, 1_014, 1_000]
    assert train[0] == (
        "Two young, White males are outside near many bushes.",
        "Zwei junge weiße Männer sind im Freien in der Nähe vieler Büsche.",
    )
    assert test[0][0] == "A man in an orange hat starring at something."
