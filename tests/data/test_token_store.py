"""Encoded corpora: the same ids as the tokenizer's, stored once, never trusted when damaged."""

import gzip
import itertools
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from transformer.config import DataConfig
from transformer.data import token_store
from transformer.data.token_store import encode_pairs
from transformer.data.tokenizer import train_tokenizer
from transformer.data.vocabularies import Tokenizers
from transformer.errors import UserError

PAIRS = [(f"line {i} of the source", f"Zeile {i}" * (i % 3)) for i in range(50)]


@pytest.fixture(scope="module")
def tokenizers() -> Tokenizers:
    sides = zip(*PAIRS)
    return Tokenizers(*(train_tokenizer(side, "char", 60) for side in sides))


@pytest.fixture
def data(tmp_path) -> DataConfig:
    return DataConfig(dataset="", train_files=(write(tmp_path / "train.tsv", PAIRS),))


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "transformer"


def write(path: Path, pairs) -> str:
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs))
    return str(path)


def rows(ids, offsets) -> list[list[int]]:
    return [ids[start:end].tolist() for start, end in itertools.pairwise(offsets)]


def assert_encoded(pairs, tokenizers, expected) -> None:
    sources, targets = zip(*expected)
    assert len(pairs) == len(expected)
    assert rows(pairs.source.ids, pairs.source.offsets) == tokenizers.source.rows(sources)
    assert rows(pairs.target.ids, pairs.target.offsets) == tokenizers.target.rows(targets)


def forbid_encoding(monkeypatch) -> None:
    def fail(*_):
        raise AssertionError("encoded although it was stored")

    monkeypatch.setattr(token_store, "read_pairs", fail)


@pytest.mark.parametrize("chunk", [1, 7, 50, 1000])
def test_the_ids_are_the_tokenizers_whatever_the_chunks(data, tokenizers, monkeypatch, chunk):
    monkeypatch.setattr(token_store, "CHUNK", chunk)
    pairs = encode_pairs(data, tokenizers, "train")
    assert_encoded(pairs, tokenizers, PAIRS)
    assert pairs.source.lengths.tolist() == [
        len(r) for r in tokenizers.source.rows(next(zip(*PAIRS)))
    ]
    assert pairs.target.lengths[0] == 1  # EOS


def test_stored_pairs_are_mapped_not_encoded_again(data, tokenizers, monkeypatch):
    encode_pairs(data, tokenizers, "train")
    forbid_encoding(monkeypatch)
    pairs = encode_pairs(data, tokenizers, "train")
    assert_encoded(pairs, tokenizers, PAIRS)
    assert isinstance(pairs.source.ids, np.memmap)
    assert pairs.source.ids.dtype == np.uint16


def test_changed_text_or_tokenizers_are_encoded_again(data, tokenizers, cache):
    encode_pairs(data, tokenizers, "train")
    swapped = Tokenizers(tokenizers.target, tokenizers.source)
    assert_encoded(encode_pairs(data, swapped, "train"), swapped, PAIRS)
    path = Path(data.train_files[0])
    changed = [(source[::-1], target) for source, target in PAIRS]
    before = path.stat()
    write(path, changed)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    assert_encoded(encode_pairs(data, tokenizers, "train"), tokenizers, changed)
    assert len(list(cache.iterdir())) == 3


def test_the_digest_is_of_the_tokens_wherever_the_text_lies(data, tokenizers, tmp_path):
    before = encode_pairs(data, tokenizers, "train").digest
    text = Path(data.train_files[0]).read_bytes()
    moved = tmp_path / "moved.tsv.gz"
    moved.write_bytes(gzip.compress(text))
    assert (
        encode_pairs(replace(data, train_files=(str(moved),)), tokenizers, "train").digest == before
    )
    moved.write_bytes(gzip.compress(text.replace(b"line 1 ", b"line 2 ")))  # as long
    assert (
        encode_pairs(replace(data, train_files=(str(moved),)), tokenizers, "train").digest != before
    )


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flip_a_bit(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(bytes([content[0] ^ 1]) + content[1:])


@pytest.mark.parametrize("damage", [Path.unlink, truncate, flip_a_bit])
def test_a_damaged_entry_is_rebuilt(data, tokenizers, cache, damage):
    encode_pairs(data, tokenizers, "train")
    (entry,) = cache.iterdir()
    names = sorted(path.name for path in entry.iterdir())
    for name in names:
        damage(entry / name)
        assert_encoded(encode_pairs(data, tokenizers, "train"), tokenizers, PAIRS)
        assert sorted(path.name for path in entry.iterdir()) == names


def test_nothing_is_stored_when_the_corpus_fails_midway(data, tokenizers, cache, monkeypatch):
    monkeypatch.setattr(token_store, "CHUNK", 10)
    path = Path(data.train_files[0])
    path.write_bytes(path.read_bytes() + b"no tab here\n")
    with pytest.raises(UserError, match="line 51"):
        encode_pairs(data, tokenizers, "train")
    assert list(cache.iterdir()) == []


def test_what_another_process_has_stored_meanwhile_stays(data, tokenizers, cache, monkeypatch):
    read_pairs, stored = token_store.read_pairs, []

    def late(*words):
        monkeypatch.setattr(token_store, "read_pairs", read_pairs)
        encode_pairs(data, tokenizers, "train")  # the other one, which is done first
        stored.extend((path, path.stat().st_ino) for path in cache.glob("tokens-*/*"))
        yield from read_pairs(*words)

    monkeypatch.setattr(token_store, "read_pairs", late)
    assert_encoded(encode_pairs(data, tokenizers, "train"), tokenizers, PAIRS)
    assert len(stored) == 5
    assert stored == [(path, path.stat().st_ino) for path in cache.glob("tokens-*/*")]
    assert len(list(cache.iterdir())) == 1


def test_a_blank_side_and_a_large_vocabulary(tmp_path, tokenizers, monkeypatch):
    blank = [("", "a"), ("", "b")]
    data = DataConfig(dataset="", train_files=(write(tmp_path / "blank.tsv", blank),))
    assert_encoded(encode_pairs(data, tokenizers, "train"), tokenizers, blank)
    monkeypatch.setattr(type(tokenizers.source), "vocab_size", 2**16 + 1)
    assert token_store._id_type(tokenizers.source) is np.int32


def test_a_cache_that_cannot_be_written_is_an_error(data, tokenizers, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(UserError, match=r"cannot store .*file.* XDG_CACHE_HOME"):
        encode_pairs(data, tokenizers, "train")


def text_of_one_side(tmp_path, **settings):
    """A text of one file, in lines of 10, 0, 3 and 25 characters, and its tokenizers."""
    lines = ["a" * 10, "", "bcb", "cab" * 8 + "c"]
    path = tmp_path / "text.txt"
    path.write_text("".join(f"{line}\n" for line in lines))
    data = DataConfig(dataset="", train_files=(str(path),), source="", max_length=8, **settings)
    tokenizer = train_tokenizer(lines, "char", 10)
    return data, Tokenizers(tokenizer, tokenizer), lines


def test_of_one_side_the_other_has_no_tokens(tmp_path):
    data, tokenizers, lines = text_of_one_side(tmp_path)
    pairs = encode_pairs(data, tokenizers, "train")
    assert not pairs.source.lengths.any() and len(pairs) == len(lines)
    assert rows(pairs.target.ids, pairs.target.offsets) == tokenizers.target.rows(lines)
    in_memory = token_store.encoded(data, tokenizers, [("", line) for line in lines])
    for ours, stored in ((in_memory.source, pairs.source), (in_memory.target, pairs.target)):
        np.testing.assert_array_equal(ours.ids, stored.ids)
        np.testing.assert_array_equal(ours.offsets, stored.offsets)


@pytest.mark.parametrize("windows", [False, True])
def test_long_text_is_cut_into_parts_of_like_lengths_and_none_is_lost(tmp_path, windows):
    data, tokenizers, lines = text_of_one_side(tmp_path, windows=windows)
    pairs = token_store.cut(data, encode_pairs(data, tokenizers, "train"))
    parts = rows(pairs.target.ids, pairs.target.offsets)
    whole = [token for row in tokenizers.target.rows(lines) for token in row]
    assert [token for part in parts for token in part] == whole
    assert max(map(len, parts)) <= 8 and len(pairs.source.lengths) == len(parts)
    lengths = list(map(len, parts))
    if windows:  # one stream
        assert max(lengths) - min(lengths) <= 1
    else:
        assert lengths == [6, 6, 1, 5, 6, 7, 7, 7]


def test_pairs_are_never_cut(data, tokenizers):
    pairs = encode_pairs(data, tokenizers, "train")
    assert token_store.cut(replace(data, max_length=3), pairs) is pairs
