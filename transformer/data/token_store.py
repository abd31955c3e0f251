"""A corpus as token ids in flat arrays: encoded once, cached on disk and memory-mapped."""

import hashlib
import itertools
import json
import shutil
import tempfile
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from transformer.config import DataConfig
from transformer.data.corpus import fingerprint, read_pairs
from transformer.data.files import Split
from transformer.data.progress import Log, quiet, with_progress
from transformer.data.tokenizer import Tokenizer
from transformer.data.vocabularies import Labels, Tokenizers
from transformer.machine.cache import cache_folder, storing
from transformer.machine.locks import alone

FORMAT = 4
"""Part of every cache key; raised when what is stored changes."""

CHUNK = 20_000
"""Pairs encoded together: memory does not grow with the corpus."""

CHECKSUMS = "checksums.json"


@dataclass(frozen=True)
class TokenPairs:
    """Sentence pairs as token ids, with EOS.

    Sentence i of a side is ids[offsets[i] : offsets[i + 1]]; there is one more offset than pairs.
    Of a side that does not exist all sentences have no tokens. `digest` is equal where all tokens
    are, wherever the text lies; "" of pairs that are in memory.
    """

    source_ids: np.ndarray
    source_offsets: np.ndarray
    target_ids: np.ndarray
    target_offsets: np.ndarray
    digest: str = ""

    def __len__(self) -> int:
        return len(self.source_offsets) - 1

    def tokens(self, number: int) -> tuple[list[int], list[int]]:
        """The token ids of a pair, with EOS."""
        source = slice(*self.source_offsets[number : number + 2])
        target = slice(*self.target_offsets[number : number + 2])
        return self.source_ids[source].tolist(), self.target_ids[target].tolist()

    def lengths(self, part: slice) -> tuple[np.ndarray, np.ndarray]:
        """Tokens in each source and each target sentence of a part of the pairs, EOS included."""
        edges = slice(part.start, part.stop + 1)
        return np.diff(self.source_offsets[edges]), np.diff(self.target_offsets[edges])

    @property
    def source_lengths(self) -> np.ndarray:
        """Tokens in each source sentence, EOS included."""
        return np.diff(self.source_offsets)

    @property
    def target_lengths(self) -> np.ndarray:
        """Tokens in each target sentence, EOS included."""
        return np.diff(self.target_offsets)


def encoded(
    data: DataConfig, tokenizers: Tokenizers, pairs: Iterable[tuple[str, str]]
) -> TokenPairs:
    """Pairs as token ids, in memory."""
    arrays = []
    for side, tokenizer, sentences in zip(tokenizers._fields, tokenizers, zip(*pairs)):
        ids, lengths = flat(_rows(data, side, tokenizer, sentences))
        arrays += [ids, offsets(lengths)]
    return TokenPairs(*arrays)


def flat(rows: Sequence[Sequence[int]], kind: type = np.int32) -> tuple[np.ndarray, np.ndarray]:
    """Rows of ids one after the other, and the length of each."""
    lengths = np.array([len(row) for row in rows], np.int32)
    return np.fromiter(itertools.chain.from_iterable(rows), kind), lengths


def offsets(lengths: np.ndarray) -> np.ndarray:
    """Where each sentence begins, and where the last one ends."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def _rows(
    data: DataConfig, side: str, tokenizer: Tokenizer | Labels, sentences: Sequence[str]
) -> list[list[int]]:
    """The token ids of each sentence of a side; none where it does not exist."""
    if side in data.sides or (side == "target" and data.label_column):
        return tokenizer.rows(sentences)
    return [[] for _ in sentences]


def cut(data: DataConfig, pairs: TokenPairs) -> TokenPairs:
    """Text of one side in parts of at most `data.max_length` tokens: each line by itself, or with
    `data.windows` all of them as one stream. Pairs and sentences with a class stay as they are."""
    if len(data.sides) == 2 or data.label_column:
        return pairs
    source = _windows(data, pairs.source_offsets)
    target = _windows(data, pairs.target_offsets)
    nothing = np.zeros(max(len(source), len(target)), np.int64)
    return replace(
        pairs,
        source_offsets=source if data.source else nothing,
        target_offsets=target if data.target else nothing,
    )


def _windows(data: DataConfig, offsets: np.ndarray) -> np.ndarray:
    """The offsets of parts, those of a line nearly equally long."""
    edges = offsets[[0, -1]] if data.windows else offsets
    lengths = np.diff(edges)
    parts = -(-lengths // data.max_length)
    first = np.cumsum(parts) - parts
    number = np.arange(parts.sum()) - np.repeat(first, parts)
    within = number * np.repeat(lengths, parts) // np.repeat(parts, parts)
    return np.append(np.repeat(edges[:-1], parts) + within, edges[-1])


def encode_pairs(
    data: DataConfig, tokenizers: Tokenizers, split: Split, log: Log = quiet
) -> TokenPairs:
    """A split as token ids, from the user's cache folder or encoded and stored there; `log` hears
    how far it is.

    The entry's name is a hash of the corpus and the tokenizers, so a changed file is encoded
    again; so is an entry that is damaged. Raises UserError when the corpus cannot be read or the
    folder cannot be written.
    """
    identity = [FORMAT, fingerprint(data, split), *(t.digest for t in tokenizers)]
    key = hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:32]
    entry = cache_folder() / f"tokens-{key}"
    if not _is_intact(entry):
        with storing("the encoded corpus"):
            _store(entry, data, tokenizers, split, log)
    checksums = json.dumps(json.loads((entry / CHECKSUMS).read_bytes()), sort_keys=True)
    return TokenPairs(
        *_open(entry, "source", tokenizers.source),
        *_open(entry, "target", tokenizers.target),
        digest=hashlib.sha256(checksums.encode()).hexdigest()[:16],
    )


def _store(entry: Path, data: DataConfig, tokenizers: Tokenizers, split: Split, log: Log) -> None:
    """Encode a split into the folder `entry`, which appears only when it is complete."""
    entry.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=entry.parent, prefix="unfinished-") as temporary:
        work = Path(temporary) / entry.name
        work.mkdir()
        pairs = with_progress(read_pairs(data, split), f"encoding the {split} data", log)
        ends = {side: np.zeros(1, np.int64) for side in tokenizers._fields}
        for side, begin in ends.items():
            _append(work / f"{side}_offsets", begin)
        while chunk := list(itertools.islice(pairs, CHUNK)):
            for side, tokenizer, sentences in zip(tokenizers._fields, tokenizers, zip(*chunk)):
                rows = _rows(data, side, tokenizer, sentences)
                ids, lengths = flat(rows, _id_type(tokenizer))
                following = ends[side][-1] + offsets(lengths)[1:]
                _append(work / f"{side}_offsets", following)
                _append(work / f"{side}_ids", ids)
                ends[side] = following
        checksums = {path.name: _checksum(path) for path in work.iterdir()}
        (work / CHECKSUMS).write_text(json.dumps(checksums))
        with alone(entry.parent):
            if not _is_intact(entry):  # if it is, another process has just stored the same
                shutil.rmtree(entry, ignore_errors=True)
                work.rename(entry)


def _append(path: Path, array: np.ndarray) -> None:
    with path.open("ab") as file:
        array.tofile(file)


def _id_type(tokenizer: Tokenizer | Labels) -> type:
    return np.uint16 if tokenizer.vocab_size <= 2**16 else np.int32


def _checksum(path: Path) -> int:
    checksum = 0
    with path.open("rb") as file:
        while block := file.read(2**20):
            checksum = zlib.crc32(block, checksum)
    return checksum


def _is_intact(entry: Path) -> bool:
    """Whether the entry is there, whole and unchanged since it was written."""
    try:
        checksums = json.loads((entry / CHECKSUMS).read_bytes())
        return all(_checksum(entry / name) == value for name, value in checksums.items())
    except (OSError, ValueError, AttributeError):
        return False


def _open(entry: Path, side: str, tokenizer: Tokenizer | Labels) -> tuple[np.ndarray, np.ndarray]:
    """The ids of one side and its offsets, memory-mapped."""
    begins = np.memmap(entry / f"{side}_offsets", np.int64, mode="r")
    if begins[-1] == 0:  # an empty file cannot be mapped
        return np.zeros(0, _id_type(tokenizer)), begins
    return np.memmap(entry / f"{side}_ids", _id_type(tokenizer), mode="r"), begins
