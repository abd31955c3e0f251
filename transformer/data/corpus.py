"""Pairs of sentences, whichever source a split comes from: plain files, a dataset of TFDS or of
Hugging Face."""

import hashlib
import json
from collections.abc import Iterable, Iterator
from itertools import combinations
from types import ModuleType

from transformer.config import DataConfig
from transformer.data import files, huggingface, tfds_corpus
from transformer.data.files import Split
from transformer.data.languages import same_language
from transformer.errors import UserError

CONVERTED = "marian:"
"""What data.dataset of a converted run begins with."""


def _source(data: DataConfig, split: Split) -> ModuleType:
    """The module that reads a split. Each has the same three functions of `data` and `split`:
    `read_pairs`, `fingerprint` and `check`; another source is another module."""
    if getattr(data, f"{split}_files"):
        return files
    if data.dataset.startswith(CONVERTED):
        raise UserError(
            "this run was converted and has no data of its own: name files, such as --test-files "
            "of eval.py"
        )
    if data.dataset.startswith(huggingface.PREFIX):
        return huggingface
    if data.dataset:
        return tfds_corpus
    raise UserError(f"data.{split}_files is not set: name a source and a target file, or a table")


def read_pairs(data: DataConfig, split: Split) -> Iterator[tuple[str, str]]:
    """The (source, target) sentences of a split, in the order of the corpus.

    Raises UserError, possibly only after some pairs: a missing or unreadable file, text that is
    not UTF-8, files of different lengths, a dataset, split or language that does not exist.
    """
    pairs = _source(data, split).read_pairs(data, split)
    first = next(pairs, None)
    if first is None:
        named = " and ".join(getattr(data, f"{split}_files"))
        named = named or f"{data.dataset} ({getattr(data, f'{split}_split')})"
        raise UserError(f"the {split} corpus is empty: {named} has no sentences")
    yield first
    yield from pairs


def check_corpora(data: DataConfig) -> None:
    """Raises UserError for a missing file or split, or one whose first line cannot be read: better
    now than after hours. The test split of a dataset may be missing, since training does not need
    it."""
    found = len(files.corpora(data, "train"))
    if data.train_weights and len(data.train_weights) != found:
        raise UserError(
            f"data.train_weights has {len(data.train_weights)} numbers, but data.train_files names "
            f"{found} corpora: give one number for each corpus"
        )
    if data.targets:
        _check_targets(data)
    for split in ("train", "validation", "test"):
        if getattr(data, f"{split}_files") or (data.dataset and split != "test"):
            _source(data, split).check(data, split)


def has_test_split(data: DataConfig) -> bool:
    """Whether there is a test split; a dataset may have none."""
    try:
        _source(data, "test").check(data, "test")
    except UserError:
        return bool(data.test_files)
    return True


def _check_targets(data: DataConfig) -> None:
    """Raises UserError for a target language without training text, and for one named twice."""
    for one, other in combinations(data.targets, 2):
        if same_language(one, other) and one.isalpha() and other.isalpha():
            raise UserError(f"data.targets: {one} and {other} are the same language: name it once")
    trained = {files.language_of(data, corpus) for corpus in files.corpora(data, "train")}
    if lacking := [language for language in data.targets if language not in trained]:
        raise UserError(
            f"data.targets: no corpus of data.train_files is in {lacking[0]}: add one, or remove "
            f"{lacking[0]}"
        )


def fingerprint(data: DataConfig, split: Split) -> str:
    """A cheap identity of a split's text, for cache keys: changes when the corpus does.

    Files by path, size and times of change; a dataset by version, split, number of examples and
    when it was prepared.
    """
    return _source(data, split).fingerprint(data, split)


def text_digest(pairs: Iterable[tuple[str, str]]) -> str:
    """Equal if all sentences are equal, wherever they are read from."""
    sha256 = hashlib.sha256()
    for pair in pairs:
        sha256.update(json.dumps(pair).encode())
    return sha256.hexdigest()[:16]
