"""TFDS datasets of other people, prepared from archives of their real layout, without TensorFlow.

The archives are small, served on this machine; the builders are TFDS's own.
"""

import gzip
import hashlib
import importlib
import io
import shutil
import sys
import tarfile
import zipfile

import pytest
from tensorflow_datasets.core.download.checksums import UrlInfo
from tensorflow_datasets.translate import wmt, wmt14

from transformer.config import DataConfig
from transformer.data.corpus import read_pairs
from transformer.errors import UserError


@pytest.fixture(autouse=True)
def data_dir(tmp_path, monkeypatch):
    """TFDS's folder, empty; and nothing may import TensorFlow, where it is installed."""
    folder = tmp_path / "tensorflow_datasets"
    monkeypatch.setattr("tensorflow_datasets.core.constants.DATA_DIR", str(folder))
    yield folder
    assert "tensorflow" not in sys.modules


def lines(language: str, corpus: str, count: int) -> list[str]:
    return [f"{corpus} {language} {number}, ä" for number in range(count)]


def text(language: str, corpus: str, count: int) -> bytes:
    return "".join(f"{line}\n" for line in lines(language, corpus, count)).encode()


def pairs(languages: tuple[str, str], *corpora: tuple[str, int]) -> set[tuple[str, str]]:
    """What should be read: line k with line k."""
    return {
        pair
        for corpus, count in corpora
        for pair in zip(*(lines(language, corpus, count) for language in languages))
    }


def tar_gz(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def serve(server, files: dict[str, bytes]) -> dict[str, UrlInfo]:
    """Puts files on the server. Returns what TFDS would have recorded of them."""
    for name, content in files.items():
        (server.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (server.folder / name).write_bytes(content)
    return {
        server.url + name: UrlInfo(
            len(content), hashlib.sha256(content).hexdigest(), name.rpartition("/")[2]
        )
        for name, content in files.items()
    }


def sgm(language: str, corpus: str, count: int) -> bytes:
    segments = "".join(
        f'<seg id="{number}">{line}</seg>\n'
        for number, line in enumerate(lines(language, corpus, count), start=1)
    )
    return f'<srcset setid="x">\n<doc>\n<p>\n{segments}</p>\n</doc>\n</srcset>\n'.encode()


WMT14 = {
    "wmt13/training-parallel-europarl-v7.tgz": tar_gz(
        {
            "training/europarl-v7.de-en.de": text("de", "europarl", 300),
            "training/europarl-v7.de-en.en": text("en", "europarl", 300),
            "training/europarl-v7.cs-en.cs": text("cs", "europarl", 3),
            "training/europarl-v7.cs-en.en": text("en", "other", 3),
        }
    ),
    "wmt13/training-parallel-commoncrawl.tgz": tar_gz(
        {
            "commoncrawl.de-en.de": text("de", "commoncrawl", 200),
            "commoncrawl.de-en.en": text("en", "commoncrawl", 200),
            "commoncrawl.de-en.annotation": b"not ours\n",
        }
    ),
    "wmt14/training-parallel-nc-v9.tgz": tar_gz(
        {
            "training/news-commentary-v9.de-en.de": text("de", "news", 100),
            "training/news-commentary-v9.de-en.en": text("en", "news", 100),
        }
    ),
    "wmt19/translation-task/dev.tgz": tar_gz(
        {
            "dev/newstest2013.de": text("de", "newstest2013", 30),
            "dev/newstest2013.en": text("en", "newstest2013", 30),
            "dev/newstest2014-deen-src.de.sgm": sgm("de", "newstest2014", 20),
            "dev/newstest2014-deen-ref.en.sgm": sgm("en", "newstest2014", 20),
        }
    ),
}


@pytest.fixture
def wmt14_server(file_server, monkeypatch):
    """WMT14 English-German in small; TFDS's addresses lead to it."""
    infos = {f"{url}?of=www.statmt.org": info for url, info in serve(file_server, WMT14).items()}
    monkeypatch.setattr(wmt14.Wmt14Translate, "url_infos", infos)
    for name in ("europarl_v7", "commoncrawl", "newscommentary_v9", "newstest2013", "newstest2014"):
        subset = wmt.DATASET_MAP[name]
        path = subset._urls[0].partition("statmt.org/")[2]
        # TFDS asks for files of www.statmt.org one by one, and for others at once.
        monkeypatch.setattr(subset, "_urls", (f"{file_server.url}{path}?of=www.statmt.org",))
    return file_server


@pytest.mark.parametrize("source, target", [("de", "en"), ("en", "de")])
def test_wmt14_in_either_direction(wmt14_server, source, target):
    data = DataConfig(dataset="wmt14_translate/de-en", source=source, target=target)
    found = {split: list(read_pairs(data, split)) for split in ("train", "validation", "test")}
    assert {split: len(pairs) for split, pairs in found.items()} == {
        "train": 600, "validation": 30, "test": 20,
    }  # fmt: skip
    languages = source, target
    corpora = ("europarl", 300), ("commoncrawl", 200), ("news", 100)
    assert set(found["train"]) == pairs(languages, *corpora)
    assert set(found["validation"]) == pairs(languages, ("newstest2013", 30))
    assert set(found["test"]) == pairs(languages, ("newstest2014", 20))


def test_a_large_split_is_sorted_through_files_and_not_in_memory(wmt14_server, monkeypatch):
    monkeypatch.setattr("tensorflow_datasets.core.shuffle.MAX_MEM_BUFFER_SIZE", 0)
    found = set(read_pairs(DataConfig(dataset="wmt14_translate/de-en"), "train"))
    assert found == pairs(("en", "de"), ("europarl", 300), ("commoncrawl", 200), ("news", 100))


def test_an_interrupted_download_goes_on_and_says_what_it_does(wmt14_server, capfd):
    archive = "wmt13/training-parallel-commoncrawl.tgz"
    wmt14_server.cuts[archive] = len(WMT14[archive]) // 2
    data = DataConfig(dataset="wmt14_translate/de-en")
    assert len(list(read_pairs(data, "train"))) == 600
    asked = [wanted for name, wanted in wmt14_server.requests if name == archive]
    assert asked == ["", f"bytes={len(WMT14[archive]) // 2}-"]
    said = capfd.readouterr().err
    assert "wmt14_translate/de-en: 4 of 4 files, 0.0 MB, to download" in said
    assert "free" in said


def test_a_second_command_downloads_only_what_is_missing(wmt14_server, data_dir):
    missing = wmt14_server.folder / "wmt14/training-parallel-nc-v9.tgz"
    missing.rename(missing.with_suffix(".away"))
    data = DataConfig(dataset="wmt14_translate/de-en")
    with pytest.raises(UserError, match=r"nc-v9\.tgz.* \(no such file\); put .*nc-v9.*manual-dir"):
        list(read_pairs(data, "train"))
    assert not (data_dir / "wmt14_translate" / "de-en" / "1.0.0").exists()
    missing.with_suffix(".away").rename(missing)
    wmt14_server.requests.clear()
    assert len(list(read_pairs(data, "train"))) == 600
    asked = [name for name, _ in wmt14_server.requests]
    assert asked[0] == "wmt14/training-parallel-nc-v9.tgz"
    assert "wmt13/training-parallel-europarl-v7.tgz" not in asked


@pytest.mark.parametrize("meanwhile", ["_split_generators", "_generate_examples"])
def test_a_dataset_that_another_process_prepares_at_the_same_time_is_read(
    wmt14_server, monkeypatch, meanwhile
):
    data = DataConfig(dataset="wmt14_translate/de-en")
    method, found = getattr(wmt14.Wmt14Translate, meanwhile), []

    def prepare_and_go_on(builder, *arguments, **named):
        monkeypatch.setattr(wmt14.Wmt14Translate, meanwhile, method)
        found.append(set(read_pairs(data, "train")))
        return method(builder, *arguments, **named)

    monkeypatch.setattr(wmt14.Wmt14Translate, meanwhile, prepare_and_go_on)
    assert set(read_pairs(data, "train")) == found[0]
    assert len(found[0]) == 600


def test_files_downloaded_earlier_are_used_where_they_lie(wmt14_server, tmp_path):
    for name in WMT14:
        shutil.copy(wmt14_server.folder / name, tmp_path)
    data = DataConfig(dataset="wmt14_translate/de-en", manual_dir=str(tmp_path))
    assert len(list(read_pairs(data, "train"))) == 600
    assert not wmt14_server.requests


def test_a_disk_that_is_too_small_is_reported_before_a_download(wmt14_server, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda folder: shutil._ntuple_diskusage(9, 8, 1))
    with pytest.raises(UserError, match=r"0\.0 MB free.*TFDS_DATA_DIR to a larger disk"):
        list(read_pairs(DataConfig(dataset="wmt14_translate/de-en"), "train"))
    assert not wmt14_server.requests


def builder_module(name: str):
    return importlib.import_module(f"tensorflow_datasets.datasets.{name}.{name}_dataset_builder")


def test_ted_from_its_archive(file_server, monkeypatch):
    folder = "datasets/az_to_en/"
    members = {
        f"{folder}{language}.{part}": text(language, part, count)
        for language in ("az", "en")
        for part, count in (("train", 40), ("dev", 6), ("test", 5))
    }
    module = builder_module("ted_hrlr_translate")
    infos = serve(file_server, {"qi18naacl-dataset.tar.gz": tar_gz(members)})
    monkeypatch.setattr(module.Builder, "url_infos", infos)
    monkeypatch.setattr(module, "_DATA_URL", next(iter(infos)))
    data = DataConfig(dataset="ted_hrlr_translate/az_to_en", source="en", target="az")
    for split, part, count in (
        ("train", "train", 40),
        ("validation", "dev", 6),
        ("test", "test", 5),
    ):
        assert set(read_pairs(data, split)) == pairs(("en", "az"), (part, count))


def test_para_crawl_from_its_compressed_table(file_server, monkeypatch):
    rows = zip(lines("en", "crawl", 50), lines("de", "crawl", 50))
    table = "".join(f"{english}\t{german}\n" for english, german in rows).encode()
    infos = serve(file_server, {"en-de.bicleaner07.txt.gz": gzip.compress(table)})
    module = builder_module("para_crawl")
    config = next(c for c in module.Builder.BUILDER_CONFIGS if c.name == "ende")
    monkeypatch.setattr(module.Builder, "url_infos", infos)
    monkeypatch.setattr(config, "data_url", next(iter(infos)))
    data = DataConfig(dataset="para_crawl/ende")
    assert set(read_pairs(data, "train")) == pairs(("en", "de"), ("crawl", 50))


def test_opus_from_its_zip_archives(file_server, monkeypatch):
    module = builder_module("opus")
    config = next(c for c in module.Builder.BUILDER_CONFIGS if c.name == "medical")
    files = {}
    for name in config.subsets:
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as members:
            for language in ("de", "en"):
                members.writestr(f"{name}.de-en.{language}", text(language, name, 20))
        files[f"{name}/moses/de-en.txt.zip"] = archive.getvalue()
        address = f"{file_server.url}download.php?f={name}/moses"
        monkeypatch.setattr(module.DATASET_MAP[name], "url", address)
    infos = {
        url.replace(file_server.url, f"{file_server.url}download.php?f="): info
        for url, info in serve(file_server, files).items()
    }
    monkeypatch.setattr(module.Builder, "url_infos", infos)
    found = set(read_pairs(DataConfig(dataset="opus/medical"), "train"))
    assert found == pairs(("en", "de"), *((name, 20) for name in config.subsets))


def test_a_dataset_of_something_else_is_refused():
    for name in ("mnist", "ted_multi_translate"):
        with pytest.raises(UserError, match=r"is not a dataset of sentence pairs"):
            list(read_pairs(DataConfig(dataset=name), "train"))
