"""A corpus as token ids in flat arrays: tokenized once, cached on disk and memory-mapped."""

import hashlib
import itertools
import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from transformer.config import DataConfig
from transformer.data.corpus import fingerprint, read_pairs
from transformer.data.files import Split
from transformer.data.progress import Log, quiet, with_progress
from transformer.data.tokenizer import Tokenizer
from transformer.data.vocabularies import Labels, Tokenizers
from transformer.machine.files import atomic_directory, cache_folder, storing

FORMAT = 4
"""Part of every cache key; raised when what is stored changes."""

CHUNK = 20_000
"""Pairs encoded together: memory does not grow with the corpus."""

CHECKSUMS = "checksums.json"


@dataclass(frozen=True)
class Sentences:
    """Sentences as token ids, with EOS: number i is ids[offsets[i] : offsets[i + 1]]."""

    ids: np.ndarray
    offsets: np.ndarray

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, number: int) -> list[int]:
        return self.ids[slice(*self.offsets[number : number + 2])].tolist()

    def part(self, numbers: slice) -> "Sentences":
        """Some of the sentences; the ids are not copied."""
        return Sentences(self.ids, self.offsets[numbers.start : numbers.stop + 1])

    @property
    def tokens(self) -> np.ndarray:
        """The ids of all sentences, one after the other."""
        return self.ids[self.offsets[0] : self.offsets[-1]]

    @property
    def lengths(self) -> np.ndarray:
        """Tokens in each sentence, EOS included."""
        return np.diff(self.offsets)


@dataclass(frozen=True)
class TokenPairs:
    """Sentence pairs as token ids; of a side that does not exist all sentences have no tokens.

    `digest` is equal if all tokens are, wherever the text lies; "" of pairs that are in memory.
    """

    source: Sentences
    target: Sentences
    digest: str = ""

    def __len__(self) -> int:
        return len(self.source)

    def part(self, numbers: slice) -> "TokenPairs":
        """Some of the pairs; the ids are not copied."""
        return TokenPairs(self.source.part(numbers), self.target.part(numbers))


def encoded(
    data: DataConfig, tokenizers: Tokenizers, pairs: Iterable[tuple[str, str]]
) -> TokenPairs:
    """Pairs as token ids, in memory."""
    columns = zip(tokenizers._fields, tokenizers, zip(*pairs))
    return TokenPairs(*(flat(_rows(data, *column)) for column in columns))


def flat(rows: Sequence[Sequence[int]], kind: type = np.int32) -> Sentences:
    """Rows of ids one after the other."""
    ids = np.fromiter(itertools.chain.from_iterable(rows), kind)
    return Sentences(ids, offsets(np.array([len(row) for row in rows], np.int32)))


def joined(texts: Sequence[Sentences]) -> Sentences:
    """The sentences of several texts as one."""
    return Sentences(
        np.concatenate([text.tokens for text in texts]),
        offsets(np.concatenate([text.lengths for text in texts])),
    )


def offsets(lengths: np.ndarray) -> np.ndarray:
    """Where each sentence begins, and where the last one ends."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def _rows(
    data: DataConfig, side: str, tokenizer: Tokenizer | Labels, sentences: Sequence[str]
) -> list[list[int]]:
    """The token ids of each sentence of a side; empty rows for a side that does not exist."""
    if side in data.sides or (side == "target" and data.label_column):
        return tokenizer.rows(sentences)
    return [[] for _ in sentences]


def cut(data: DataConfig, pairs: TokenPairs) -> TokenPairs:
    """Text of one side in parts of at most `data.max_length` tokens: each line by itself, or with
    `data.windows` all of them as one stream. Pairs and sentences with a class stay as they are."""
    if len(data.sides) == 2 or data.label_column:
        return pairs
    [side] = data.sides
    text = getattr(pairs, side)
    edges = text.offsets[[0, -1]] if data.windows else text.offsets
    lengths = np.diff(edges)
    parts = -(-lengths // data.max_length)  # those of a line nearly equally long
    first = np.cumsum(parts) - parts
    number = np.arange(parts.sum()) - np.repeat(first, parts)
    within = number * np.repeat(lengths, parts) // np.repeat(parts, parts)
    begins = np.append(np.repeat(edges[:-1], parts) + within, edges[-1])
    empty = Sentences(np.zeros(0, np.int32), np.zeros(len(begins), np.int64))
    return replace(pairs, **{"source": empty, "target": empty, side: Sentences(text.ids, begins)})


def encode_pairs(
    data: DataConfig, tokenizers: Tokenizers, split: Split, log: Log = quiet
) -> TokenPairs:
    """A split as token ids, from the user's cache folder or encoded and stored there; `log` gets
    the progress.

    The entry's name is a hash of the corpus and the tokenizers, so a changed file is encoded
    again; so is an entry that is damaged. Raises UserError when the corpus cannot be read or the
    folder cannot be written.
    """
    identity = [FORMAT, fingerprint(data, split), *(t.digest for t in tokenizers)]
    key = hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:32]
    entry = cache_folder() / f"tokens-{key}"
    if not _is_intact(entry):
        with storing("the encoded corpus"), atomic_directory(entry, keep=_is_intact) as work:
            pairs = with_progress(read_pairs(data, split), f"encoding the {split} data", log)
            _store(work, data, tokenizers, pairs)
    checksums = json.dumps(json.loads((entry / CHECKSUMS).read_bytes()), sort_keys=True)
    digest = hashlib.sha256(checksums.encode()).hexdigest()[:16]
    sides = zip(tokenizers._fields, tokenizers)
    return TokenPairs(*(_open(entry, side, tokenizer) for side, tokenizer in sides), digest)


def _store(
    folder: Path, data: DataConfig, tokenizers: Tokenizers, pairs: Iterator[tuple[str, str]]
) -> None:
    """Writes pairs as token ids, and the checksums of the files."""
    ends = dict.fromkeys(tokenizers._fields, 0)
    for side in ends:
        _append(folder / f"{side}_offsets", np.zeros(1, np.int64))
    while chunk := list(itertools.islice(pairs, CHUNK)):
        for side, tokenizer, texts in zip(tokenizers._fields, tokenizers, zip(*chunk)):
            rows = flat(_rows(data, side, tokenizer, texts), _id_type(tokenizer))
            _append(folder / f"{side}_offsets", ends[side] + rows.offsets[1:])
            _append(folder / f"{side}_ids", rows.ids)
            ends[side] += rows.offsets[-1]
    checksums = {path.name: _checksum(path) for path in folder.iterdir()}
    (folder / CHECKSUMS).write_text(json.dumps(checksums))


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
    """Whether the entry exists, complete and unchanged since it was written."""
    try:
        checksums = json.loads((entry / CHECKSUMS).read_bytes())
        return all(_checksum(entry / name) == value for name, value in checksums.items())
    except (OSError, ValueError, AttributeError):
        return False


def _open(entry: Path, side: str, tokenizer: Tokenizer | Labels) -> Sentences:
    """The sentences of one side, memory-mapped."""
    begins = np.memmap(entry / f"{side}_offsets", np.int64, mode="r")
    kind = _id_type(tokenizer)
    if begins[-1] == 0:  # an empty file cannot be mapped
        return Sentences(np.zeros(0, kind), begins)
    return Sentences(np.memmap(entry / f"{side}_ids", kind, mode="r"), begins)
