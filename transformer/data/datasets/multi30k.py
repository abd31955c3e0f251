"""Multi30k (task 1) as a TFDS dataset: 30,000 image captions in English and German.

Elliott, Frank, Sima'an and Specia, "Multi30K: Multilingual English-German Image
Descriptions", 2016. The captions derive from Flickr30k: for research and education only.
"""

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import tensorflow_datasets as tfds
from tensorflow_datasets.core.download.checksums import UrlInfo

URL = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw/"
FILES = {
    "train.en.gz": (568_929, "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f"),
    "train.de.gz": (637_044, "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6"),
    "val.en.gz": (21_650, "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28"),
    "val.de.gz": (24_681, "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a"),
    "test_2016_flickr.en.gz": (
        21_077,
        "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9",
    ),
    "test_2016_flickr.de.gz": (
        22_890,
        "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8",
    ),
}
"""Bytes and SHA-256 of each file: a changed file would be a different benchmark."""

FILE_OF_SPLIT = {"train": "train", "validation": "val", "test": "test_2016_flickr"}


class Multi30k(tfds.core.GeneratorBasedBuilder):
    """TFDS builder `multi30k/en_de`: 29,000 train, 1,014 validation, 1,000 test sentences."""

    name = "multi30k"
    VERSION = tfds.core.Version("1.0.0")
    BUILDER_CONFIGS: ClassVar = [
        tfds.core.BuilderConfig(name="en_de", description="English and German")
    ]
    MANUAL_DOWNLOAD_INSTRUCTIONS = f"Files downloaded earlier from {URL}: {', '.join(FILES)}"
    url_infos: ClassVar = {
        URL + name: UrlInfo(size, checksum, name) for name, (size, checksum) in FILES.items()
    }

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
        files = dl_manager.download({name: URL + name for name in FILES})
        return {
            split: self._generate_examples(files[f"{stem}.en.gz"], files[f"{stem}.de.gz"])
            for split, stem in FILE_OF_SPLIT.items()
        }

    def _generate_examples(self, english: Path, german: Path) -> Iterator[tuple[int, dict]]:
        for number, pair in enumerate(zip(_lines(english), _lines(german), strict=True)):
            yield number, dict(zip(("en", "de"), pair))


def _lines(path: Path) -> list[str]:
    return gzip.decompress(path.read_bytes()).decode().removesuffix("\n").split("\n")
