"""The vocabularies of a run: of two sides, of one side, or of text and classes."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from transformer.config import DataConfig
from transformer.data.corpus import read_pairs
from transformer.data.perturbation import with_cases
from transformer.data.piece_tokenizer import PieceTokenizer, load_pieces, save_pieces
from transformer.data.progress import Log, quiet, with_progress
from transformer.data.tag_names import named_tag
from transformer.data.tags import known_tags
from transformer.data.tokenizer import (
    LONGEST_PIECE,
    Tokenizer,
    load_tokenizer,
    normalised_by,
    normaliser,
    save_tokenizer,
    train_tokenizer,
)
from transformer.errors import UserError
from transformer.model.batch import Batch

LABELS = "labels.json"
"""The file of a classifier's classes."""


@dataclass(frozen=True)
class Labels:
    """The classes of sentences, as a vocabulary; id 0 is PAD."""

    names: tuple[str, ...]

    @property
    def vocab_size(self) -> int:
        """The number of classes, and one for PAD."""
        return len(self.names) + 1

    @cached_property
    def digest(self) -> str:
        """Identity: the SHA-256 of the names in their order."""
        return hashlib.sha256("\n".join(self.names).encode()).hexdigest()

    def rows(self, labels: Sequence[str]) -> list[list[int]]:
        """The id of each label, a row of one. Raises UserError naming one that training lacks."""
        ids = {name: number for number, name in enumerate(self.names, start=1)}
        for label in labels:
            if label not in ids:
                names = ", ".join(self.names[:10]) + ", ..." * (len(self.names) > 10)
                raise UserError(
                    f"data.label_column: the class {label!r} is not one of the {len(self.names)} "
                    f"classes of the original training data: {names}"
                )
        return [[ids[label]] for label in labels]

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """The class of each row of one id; "" for PAD."""
        names = ("", *self.names)
        return [names[number] for [number] in ids]


class Tokenizers(NamedTuple):
    """The tokenizers of the two sides: the same object twice with a shared vocabulary or one side.
    The target of a classifier is its classes."""

    source: Tokenizer
    target: Tokenizer | Labels

    @property
    def identity(self) -> tuple[int, int, str]:
        """The sizes of the vocabularies, and a digest of both tokenizers."""
        digests = f"{self.source.digest} {self.target.digest}"
        digest = hashlib.sha256(digests.encode()).hexdigest()[:16]
        return self.source.vocab_size, self.target.vocab_size, digest


def texts_of(tokenizers: Tokenizers, batch: Batch) -> list[str]:
    """The text of each row of a batch: its source, a tab, and what is to be predicted."""
    sides = (tokenizers.source, batch.source), (tokenizers.target, batch.target_out)
    texts = [
        [""] * len(batch.target_out) if ids is None else tokenizer.decode(ids.tolist())
        for tokenizer, ids in sides
    ]
    return ["\t".join(" ".join(text.split()) for text in row) for row in zip(*texts)]


def make_tokenizers(data: DataConfig, log: Log = quiet) -> Tokenizers:
    """The user's own tokenizers, or new ones trained on the training split.

    New ones normalise the source alone: translations are compared with raw text. With a shared
    vocabulary both have the same pieces and ids. `log` gets the progress.

    Raises UserError when that fails, when two models are to be a shared vocabulary, and when the
    user's own lack one of data.user_symbols.
    """
    paths = [path for path in (data.source_tokenizer, data.target_tokenizer) if path]
    own = [_own(path, data) for path in paths]
    known = own[0].symbols if own else data.user_symbols
    if lacking := [symbol for symbol in data.user_symbols if symbol not in known]:
        raise UserError(
            f"data.user_symbols: {paths[0]} has no token {lacking[0]!r}: train it with "
            f"user_defined_symbols, or remove {lacking[0]!r}"
        )
    if data.shared_vocabulary:
        models = own
        if not own:
            models = [_train(data, data.sides, log)]
            if len(data.sides) == 2 and data.normalisation != "identity":
                return Tokenizers(normalised_by(models[0], data.normalisation), models[0])
        if models[0] != models[-1]:
            raise UserError(
                f"{paths[0]} and {paths[1]} are different tokenizers: "
                "set data.shared_vocabulary to False, or give only one of them"
            )
        return Tokenizers(models[0], make_labels(data) if data.label_column else models[0])
    if own:
        return Tokenizers(*own)
    return Tokenizers(_train(data, ("source",), log), _train(data, ("target",), log))


def check_targets(data: DataConfig, tokenizers: Tokenizers) -> None:
    """Raises UserError if the source vocabulary lacks the tag of one of data.targets."""
    tags = tokenizers.source.tags
    for language in data.targets:
        if not named_tag(tags, f">>{language}<<"):
            known = known_tags(tags) if tags else "it has no target tags"
            raise UserError(
                f"data.targets: the source vocabulary has no token >>{language}<<; {known}: train "
                "another vocabulary, or name other languages"
            )


def same_models(data: DataConfig, tokenizers: Tokenizers) -> set[str]:
    """Which of data.source_tokenizer and data.target_tokenizer name these tokenizers."""
    same = set()
    for setting, tokenizer in zip(("source_tokenizer", "target_tokenizer"), tokenizers):
        path = getattr(data, setting)
        with suppress(UserError):
            if path and load_tokenizer(path, data.lowercase) == tokenizer:
                same.add(f"data.{setting}")
    return same


def _own(path: str, data: DataConfig) -> Tokenizer:
    """The user's model. Raises UserError for one whose words do not begin with a space, by which
    alignments, `data.sampling` and masks find words, and for one that `data.sampling` does not
    suit."""
    tokenizer = load_tokenizer(path, data.lowercase)
    if data.sampling and not (tokenizer.is_unigram or tokenizer.is_bpe):
        raise UserError(
            f"data.sampling ({data.sampling}) needs a unigram or BPE model, which {path} is not: "
            "set it to 0"
        )
    if data.sampling >= 1 and tokenizer.is_bpe:
        raise UserError(
            f"data.sampling ({data.sampling}) must be below 1 with the BPE model {path}: it is a "
            "probability"
        )
    if tokenizer.marks_ends:
        raise UserError(
            f"{path} marks where words end: train it without treat_whitespace_as_suffix"
        )
    return tokenizer


def make_labels(data: DataConfig) -> Labels:
    """The classes in the training split, in alphabetical order. Raises UserError below two."""
    names = tuple(sorted({label for _, label in read_pairs(data, "train")}))
    if len(names) < 2:
        raise UserError(
            f"data.label_column: all training data has the class {names[0]!r}; at least "
            "two are needed"
        )
    return Labels(names)


def _train(data: DataConfig, sides: tuple[str, ...], log: Log) -> Tokenizer:
    """A tokenizer of the source sentences, the target sentences, or both."""
    columns = [("source", "target").index(side) for side in sides]
    languages = " and ".join(getattr(data, side) for side in sides)
    pairs = with_progress(
        read_pairs(data, "train"), f"reading for the vocabulary of {languages}", log
    )
    if len(data.sides) == 2:
        pairs = _without_long_words(pairs, LONGEST_PIECE * data.max_length, log)
    if data.changed:
        pairs = with_cases(data, pairs)
    rule = "identity" if "target" in sides else data.normalisation
    options = replace(data, normalisation=rule, targets=data.targets * ("source" in sides))
    normalise = normaliser(data.normalisation) if len(sides) == 2 else str
    written = ((normalise(source), target) for source, target in pairs)
    sentences = (pair[column] for pair in written for column in columns)
    setting = "vocab_size" if data.shared_vocabulary else f"{sides[0]}_vocab_size"
    size = getattr(data, setting) or data.vocab_size
    try:
        tokenizer = train_tokenizer(sentences, data.tokenizer, size, options, f"data.{setting}")
    except UserError as error:
        raise UserError(f"vocabulary of {languages}: {error}") from error
    if tokenizer.vocab_size < size and data.tokenizer in ("unigram", "bpe"):
        log(
            f"vocabulary of {languages}: {tokenizer.vocab_size:,} tokens, the most that this text "
            f"allows; data.{setting} is {size:,}"
        )
    return tokenizer


def _without_long_words(
    pairs: Iterable[tuple[str, str]], longest: int, log: Log
) -> Iterator[tuple[str, str]]:
    """The pairs without words of more than `longest` characters: such a word has more tokens than
    `data.max_length`, so that its pair is left out of training too."""
    left_out = first = 0
    for number, pair in enumerate(pairs, start=1):
        if any(len(text) > longest and max(map(len, text.split(" "))) > longest for text in pair):
            left_out, first = left_out + 1, first or number
        else:
            yield pair
    if left_out:
        log(
            f"pairs with a word of more than {longest:,} characters, which the vocabulary is not "
            f"trained on: {left_out:,}, the first is pair {first:,}"
        )


def save_tokenizers(tokenizers: Tokenizers, folder: Path) -> None:
    """Write source.model, target.model if it differs, and the classes of a classifier; the ids of
    a PieceTokenizer in source.json and target.json."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("target.model", "source.json", "target.json", LABELS):
        (folder / name).unlink(missing_ok=True)  # of a start with other settings
    _save(tokenizers.source, folder / "source.model")
    if isinstance(tokenizers.target, Labels):
        text = json.dumps(tokenizers.target.names, ensure_ascii=False, indent=0) + "\n"
        (folder / LABELS).write_text(text, encoding="utf-8")
    elif tokenizers.target != tokenizers.source:
        _save(tokenizers.target, folder / "target.model")


def _save(tokenizer: Tokenizer, path: Path) -> None:
    save_tokenizer(tokenizer, path)
    if isinstance(tokenizer, PieceTokenizer):
        save_pieces(tokenizer.vocabulary, path.with_suffix(".json"))


def _load(path: Path, lowercase: bool) -> Tokenizer:
    tokenizer, pieces = load_tokenizer(path, lowercase), path.with_suffix(".json")
    if not pieces.exists():
        return tokenizer
    return PieceTokenizer(tokenizer.model, lowercase, vocabulary=load_pieces(pieces))


def load_tokenizers(folder: Path, data: DataConfig) -> Tokenizers:
    """Read what `save_tokenizers` wrote.

    Raises UserError when it is missing, damaged, or not what `data.vocabulary` says it was.
    """
    source = _load(folder / "source.model", data.lowercase)
    target, labels = folder / "target.model", folder / LABELS
    if labels.exists():
        tokenizers = Tokenizers(source, _load_labels(labels))
    elif target.exists():
        tokenizers = Tokenizers(source, _load(target, data.lowercase))
    else:
        tokenizers = Tokenizers(source, source)
    if data.vocabulary not in ("", tokenizers.identity[2]):
        raise UserError(
            f"{folder} has another vocabulary than this run was trained with: restore its files"
        )
    return tokenizers


def _load_labels(path: Path) -> Labels:
    try:
        names = json.loads(path.read_bytes())
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ValueError("it does not contain a list of names")
        "".join(names).encode()  # half a surrogate pair is not text
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"cannot read the classes in {path}: {error}") from error
    return Labels(tuple(names))
