"""Multi30k (task 1) as a TFDS dataset: 30,000 image captions in English and German.

Elliott, Frank, Sima'an and Specia, "Multi30K: Multilingual English-German Image Descriptions",
2016. The captions derive from Flickr30k: for research and education only.
"""

import contextlib
import gzip
import hashlib
import os
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import tensorflow_datasets as tfds

from transformer.config import UserError

URL = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw/"
TIMEOUT = 10
"""Seconds to wait for the server's answer."""

SHA256 = {
    "train.en.gz": "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f",
    "train.de.gz": "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6",
    "val.en.gz": "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28",
    "val.de.gz": "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a",
    "test_2016_flickr.en.gz": "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9",
    "test_2016_flickr.de.gz": "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8",
}
"""The files and their checksums: a changed file would be a different benchmark."""

FILE_OF_SPLIT = {"train": "train", "validation": "val", "test": "test_2016_flickr"}


class Multi30k(tfds.core.GeneratorBasedBuilder):
    """TFDS builder `multi30k/en_de`: 29,000 train, 1,014 validation, 1,000 test sentences."""

    name = "multi30k"
    VERSION = tfds.core.Version("1.0.0")
    BUILDER_CONFIGS: ClassVar = [
        tfds.core.BuilderConfig(name="en_de", description="English and German")
    ]
    MANUAL_DOWNLOAD_INSTRUCTIONS = f"Files downloaded earlier from {URL}: {', '.join(SHA256)}"

    def _info(self) -> tfds.core.DatasetInfo:
        return tfds.core.DatasetInfo(
            builder=self,
            description=__doc__,
            features=tfds.features.Translation(("en", "de")),
            supervised_keys=("en", "de"),
            homepage="https://github.com/multi30k/dataset",
            disable_shuffling=True,  # the order of the files, so that outputs can be compared
        )

    def _split_generators(self, dl_manager: tfds.download.DownloadManager) -> dict:
        folders = _manual_folders(dl_manager)
        download_folder = Path(dl_manager.download_dir) / "multi30k"
        files = {name: _find(name, folders, download_folder) for name in SHA256}
        return {
            split: self._generate_examples(files[f"{stem}.en.gz"], files[f"{stem}.de.gz"])
            for split, stem in FILE_OF_SPLIT.items()
        }

    def _generate_examples(self, english: Path, german: Path) -> Iterator[tuple[int, dict]]:
        for number, pair in enumerate(zip(_lines(english), _lines(german), strict=True)):
            yield number, dict(zip(("en", "de"), pair))


def _lines(path: Path) -> list[str]:
    return gzip.decompress(path.read_bytes()).decode().removesuffix("\n").split("\n")


def _manual_folders(dl_manager: tfds.download.DownloadManager) -> list[Path]:
    """Where files may lie already: TFDS's manual folder, and the one the environment names."""
    folders = []
    if os.environ.get("MULTI30K_DIR"):
        folders.append(Path(os.environ["MULTI30K_DIR"]).expanduser())
        if not folders[0].is_dir():
            raise UserError(f"MULTI30K_DIR: there is no folder {folders[0]}")
    with contextlib.suppress(AssertionError):  # TFDS's way to say that it is not there, or empty
        folders.insert(0, Path(dl_manager.manual_dir))
    return folders


def _find(name: str, folders: list[Path], download_folder: Path) -> Path:
    """The file `name` from the first of `folders` that has it, else downloaded; verified."""
    for folder in folders:
        if (folder / name).is_file():
            _verify(folder / name)
            return folder / name
    path = download_folder / name
    if not path.is_file():
        _download(name, path)
    _verify(path)
    return path


def _verify(path: Path, name: str = "") -> None:
    """Raises UserError when the file's checksum is not the pinned one."""
    expected = SHA256[name or path.name]
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != expected:
        raise UserError(
            f"{path} is not the Multi30k file: its SHA-256 is {found}, expected {expected}; "
            f"remove it and fetch {URL}{name or path.name}"
        )


def _download(name: str, path: Path) -> None:
    """Fetch one file; `path` exists only once the download is whole and verified."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{name}.{os.getpid()}.part")
    try:
        with urllib.request.urlopen(URL + name, timeout=TIMEOUT) as answer:
            temporary.write_bytes(answer.read())
    except OSError as error:
        raise UserError(
            f"cannot download {URL}{name} ({getattr(error, 'reason', error)}); put "
            f"{', '.join(SHA256)} into a folder and name it by --data.manual-dir or MULTI30K_DIR"
        ) from error
    try:
        _verify(temporary, name)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
