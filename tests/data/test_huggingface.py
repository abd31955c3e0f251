"""Datasets of Hugging Face, from folders that the tests write; nothing is downloaded."""

import json
import sys
from dataclasses import replace

import pytest

from transformer.config import DataConfig
from transformer.data.corpus import check_corpora, fingerprint, has_test_split, read_pairs
from transformer.errors import UserError

# A folder that is named datasets imports as a package without modules.
pytest.importorskip("datasets.config", reason="needs pip install -e '.[huggingface]'")
import datasets

PAIRS = [("One.", "Eins."), ("Two.", "Zwei,\nzwei.\n"), ("\u4e09", ""), ("", "Vier.")]
READ = [("One.", "Eins."), ("Two.", "Zwei, zwei."), ("\u4e09", ""), ("", "Vier.")]
SPLITS = {"train": PAIRS, "validation": PAIRS[:1], "test": PAIRS[1:2]}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


def flat(source, target):
    return {"id": 1, "en": source, "de": target or None}


def nested(source, target):
    return {"translation": {"de": target, "en": source}, "id": 1}


def write_json(path, rows):
    path.with_suffix(".jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def write_parquet(path, rows):
    import pyarrow
    from pyarrow import parquet

    parquet.write_table(pyarrow.Table.from_pylist(rows), path.with_suffix(".parquet"))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "corpus").mkdir()
    return tmp_path / "corpus"


def of(folder, row=nested, write=write_json, **settings) -> DataConfig:
    for split, pairs in SPLITS.items():
        write(folder / split, [row(*pair) for pair in pairs])
    return DataConfig(dataset=f"huggingface:{folder}", **settings)


@pytest.mark.parametrize("write", [write_json, write_parquet])
@pytest.mark.parametrize("row", [flat, nested])
def test_languages_are_columns_or_keys_of_a_translation(folder, row, write):
    data = of(folder, row, write)
    check_corpora(data)
    assert list(read_pairs(data, "train")) == READ
    assert list(read_pairs(data, "validation")) == READ[:1]
    assert list(read_pairs(data, "test")) == READ[1:2]


def test_hugging_faces_own_feature_of_translations_is_read(folder):
    features = datasets.Features({"translation": datasets.Translation(["de", "en"])})
    rows = datasets.Dataset.from_list([{"translation": {"de": "b", "en": "a"}}], features=features)
    rows.to_parquet(folder / "train.parquet")
    data = DataConfig(dataset=f"huggingface:{folder}", source="de", target="en")
    assert list(read_pairs(data, "train")) == [("b", "a")]


def test_words_that_pandas_takes_for_missing_are_text(folder):
    (folder / "train.csv").write_text("en,de\nNone,Keine\nNA,nicht\nnull,Null\n,leer\n")
    data = DataConfig(dataset=f"huggingface:{folder}")
    pairs = [("None", "Keine"), ("NA", "nicht"), ("null", "Null"), ("", "leer")]
    assert list(read_pairs(data, "train")) == pairs


def test_text_of_one_side_and_a_part_of_a_split(folder):
    data = of(folder, source="", target="de", train_split="train[:2]")
    assert list(read_pairs(data, "train")) == [("", "Eins."), ("", "Zwei, zwei.")]


def test_the_fingerprint_changes_with_text_languages_and_split(folder):
    data = of(folder)
    swapped, part = replace(data, source="de", target="en"), replace(data, train_split="train[1:]")
    found = [fingerprint(config, "train") for config in (data, data, swapped, part)]
    (folder / "train.jsonl").write_text(json.dumps(nested("other", "text")))
    found.append(fingerprint(data, "train"))
    assert found[0] == found[1] and len(set(found)) == 4


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"source": "fr"}, r"data\.source \('fr'\) is not in huggingface:.*, which has de, en$"),
        ({"validation_split": "dev"}, r"data\.validation_split dev\): Unknown split .*validation"),
        ({"dataset": "huggingface:"}, r"OWNER/NAME/CONFIG"),
        ({"dataset": "huggingface:nowhere"}, r"no folder nowhere; .* huggingface:OWNER/NAME"),
        ({"dataset": "huggingface:./a/b"}, r"there is no folder a/b; "),
        ({"dataset": "huggingface:~nosuch/a"}, r"data\.dataset: ~nosuch/a is in the home"),
    ],
)
def test_mistakes_are_one_sentence(folder, settings, message):
    with pytest.raises(UserError, match=message) as caught:
        check_corpora(DataConfig(**{**vars(of(folder)), **settings}))
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 500


def test_a_test_split_may_be_missing(folder):
    data = of(folder)
    assert has_test_split(data)
    (folder / "test.jsonl").unlink()
    assert not has_test_split(data)
    assert has_test_split(replace(data, dataset="", test_files=("gone",)))  # reading it says so


def test_damaged_files_and_empty_folders_are_named(folder):
    data = DataConfig(dataset=f"huggingface:{folder}")
    with pytest.raises(UserError, match=r"cannot load .*corpus .*any data files"):
        check_corpora(data)
    (folder / "train.jsonl").write_text('{"en": "a", "de"\n')
    with pytest.raises(UserError, match=r"cannot load .*corpus .*JSON parse error"):
        check_corpora(data)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ConnectionError("Couldn't reach\nthe Hub"), "reach the Hub; without a network, name a"),
        (FileNotFoundError("Dataset doesn't exist"), "and there is no folder owner/name/de-en: Da"),
    ],
)
def test_what_the_hub_says_is_passed_on(monkeypatch, error, message):
    asked = []

    def load_dataset_builder(*names):
        asked.append(names)
        raise error

    monkeypatch.setattr(datasets, "load_dataset_builder", load_dataset_builder)
    with pytest.raises(UserError, match=message):
        check_corpora(DataConfig(dataset="huggingface:owner/name/de-en"))
    assert asked == [("owner/name", "de-en")]


def test_without_the_package_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UserError, match=r"needs Hugging Face's datasets.*'\.\[huggingface\]'"):
        check_corpora(DataConfig(dataset="huggingface:owner/name"))
