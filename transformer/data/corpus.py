"""Pairs of sentences, from plain files or a TFDS dataset, behind one interface."""

import hashlib
import json
from collections.abc import Iterable, Iterator

from transformer.config import DataConfig
from transformer.data.files import Corpus, Split, corpora, file_fingerprint, file_pairs
from transformer.data.tfds_corpus import (
    dataset_fingerprint,
    dataset_pairs,
    prepared_builder,
    split_name,
)
from transformer.errors import UserError


def read_pairs(data: DataConfig, split: Split) -> Iterator[tuple[str, str]]:
    """The (source, target) sentences of a split, in the order of the corpus.

    Raises UserError, possibly only after some pairs: a missing or unreadable file, text that is
    not UTF-8, files of different lengths, a dataset, split or language that does not exist.
    """
    found = _files(data, split)
    pairs = file_pairs(data, found) if found else dataset_pairs(data, split)
    first = next(pairs, None)
    if first is None:
        raise UserError(f"the {split} corpus is empty: {corpus_name(data, split)} has no sentences")
    yield first
    yield from pairs


def check_corpora(data: DataConfig) -> None:
    """Raises UserError for a missing file or split, or one whose first line cannot be read: better
    now than when hours have been spent."""
    found = len(corpora(data, "train"))
    if data.train_weights and len(data.train_weights) != found:
        raise UserError(
            f"data.train_weights has {len(data.train_weights)} numbers, and data.train_files names "
            f"{found} corpora: one number for each"
        )
    for split in ("train", "validation", "test"):
        named = corpora(data, split)
        for corpus in named:
            next(file_pairs(data, [corpus]), None)  # may warn of a header
        if not named and data.dataset and split != "test":
            prepared_builder(data, split)


def fingerprint(data: DataConfig, split: Split) -> str:
    """A cheap identity of a split's text, for cache keys: changes when the corpus does.

    Files by path, size and times of change; a dataset by version, split, number of examples and
    when it was prepared.
    """
    found = _files(data, split)
    return file_fingerprint(data, found) if found else dataset_fingerprint(data, split)


def text_digest(pairs: Iterable[tuple[str, str]]) -> str:
    """Equal where all sentences are, wherever they are read from."""
    sha256 = hashlib.sha256()
    for pair in pairs:
        sha256.update(json.dumps(pair).encode())
    return sha256.hexdigest()[:16]


def corpus_sizes(data: DataConfig) -> list[int]:
    """How many pairs each corpus of data.train_files has."""
    return [sum(1 for _ in file_pairs(data, [corpus])) for corpus in corpora(data, "train")]


def corpus_name(data: DataConfig, split: Split) -> str:
    """What messages call a split."""
    files = getattr(data, f"{split}_files")
    return " and ".join(files) or f"{data.dataset} ({split_name(data, split)})"


def _files(data: DataConfig, split: Split) -> list[Corpus]:
    found = corpora(data, split)
    if not found and not data.dataset:
        raise UserError(
            f"data.{split}_files is not set: name a source and a target file, or a table"
        )
    return found
