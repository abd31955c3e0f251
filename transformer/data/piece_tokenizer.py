"""SentencePiece models whose pieces have their ids from a separate list, as Marian's have."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from transformer.data.tag_names import TAG
from transformer.data.tokenizer import Tokenizer
from transformer.errors import UserError
from transformer.model.batch import BOS, EOS, PAD, UNK


@dataclass(frozen=True)
class Pieces:
    """A vocabulary of another program: the pieces by their ids there, and its special ids.

    names       a name for each id; None if an id has no name
    pad         if equal to `start`, our PAD has no id there
    start, end  what a translation begins with and ends in
    unknown     for a piece that is not in the list
    cleans_up   whether spaces before punctuation and English contractions are removed from text
                (transformers' clean_up_tokenization_spaces)
    """

    names: tuple[str | None, ...]
    pad: int
    start: int
    end: int
    unknown: int
    cleans_up: bool = False

    @cached_property
    def order(self) -> tuple[int, ...]:
        """For each of our ids the one there; -1 for a PAD that has no id."""
        special = (-1 if self.pad == self.start else self.pad, self.start, self.end, self.unknown)
        return special + tuple(i for i in range(len(self.names)) if i not in special)


@dataclass(frozen=True)
class PieceTokenizer(Tokenizer):
    """Text is cut by the SentencePiece model; each piece has the id that the list gives it, or UNK.

    A text may begin with a target tag of the vocabulary, such as >>fra<<, which is one token;
    >>fr<< stands for it if no other tag is of that language.
    """

    vocabulary: Pieces = field(kw_only=True, repr=False)

    @cached_property
    def _names(self) -> list[str]:
        """The pieces by our ids; "" for one without a name."""
        return [self.vocabulary.names[i] or "" if i >= 0 else "" for i in self.vocabulary.order]

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self._names) if name}

    @cached_property
    def tags(self) -> tuple[str, ...]:
        """The target tags of the vocabulary, such as >>deu<<: a source begins with one of them."""
        return tuple(name for name in self._ids if TAG.fullmatch(name))

    @cached_property
    def pieces_of_text(self) -> list[str]:
        """The pieces that the model cuts text into; those that the list lacks become UNK."""
        model = self._processor
        return [
            model.id_to_piece(number)
            for number in range(model.vocab_size())
            if not (model.is_control(number) or model.is_unknown(number) or model.is_unused(number))
        ]

    @cached_property
    def digest(self) -> str:
        """Identity: the SHA-256 of the model's bytes and of the list, special ids included."""
        listed = json.dumps(vars_of(self.vocabulary), sort_keys=True)
        return hashlib.sha256(self.model + listed.encode()).hexdigest()

    def encode(self, sentences: Sequence[str]) -> list[list[int]]:
        """The token ids of each sentence, without BOS and EOS."""
        tagged = [self.split_tag(sentence) for sentence in sentences]
        cut = self._processor.encode([text for _, text in tagged], out_type=str)
        return [
            [self._ids.get(piece, UNK) for piece in ([tag] if tag else []) + pieces]
            for (tag, _), pieces in zip(tagged, cut)
        ]

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """The sentence of each row of ids; PAD, BOS, EOS and UNK are dropped."""
        special = (PAD, BOS, EOS, UNK)
        rows = [[self._names[i] for i in row if i not in special] for row in ids]
        texts = [self._processor.decode_pieces(row) if row else "" for row in rows]
        texts = [text.replace("\u2581", " ").strip() for text in texts]
        return list(map(clean_up, texts)) if self.vocabulary.cleans_up else texts


def clean_up(text: str) -> str:
    """The text without spaces before punctuation and English contractions."""
    for spaced in (" .", " ?", " !", " ,", " ' ", " n't", " 'm", " 's", " 've", " 're"):
        text = text.replace(spaced, spaced.strip())
    return text


def vars_of(pieces: Pieces) -> dict[str, object]:
    """The fields that a file stores; without `cleans_up` if it is False, as in older files."""
    kept = {name: getattr(pieces, name) for name in Pieces.__dataclass_fields__}
    return kept if pieces.cleans_up else {n: v for n, v in kept.items() if n != "cleans_up"}


def save_pieces(pieces: Pieces, path: Path) -> None:
    """Writes the list of pieces as JSON, for `load_pieces`."""
    text = json.dumps(vars_of(pieces), ensure_ascii=False, indent=0) + "\n"
    path.write_text(text, encoding="utf-8")


def load_pieces(path: Path) -> Pieces:
    """What `save_pieces` wrote. Raises UserError when it is damaged."""
    try:
        fields = json.loads(path.read_bytes())
        pieces = Pieces(tuple(fields.pop("names")), **fields)
        check_pieces(pieces)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise UserError(f"cannot read the vocabulary {path}: {error}") from error
    return pieces


def check_pieces(pieces: Pieces) -> None:
    """Raises ValueError for lists that are not a vocabulary."""
    named = [name for name in pieces.names if name is not None]
    special = (pieces.pad, pieces.start, pieces.end, pieces.unknown)
    if not all(isinstance(name, str) for name in named) or len(set(named)) < len(named):
        raise ValueError("pieces must be strings, without duplicates")
    if not all(type(number) is int and 0 <= number < len(pieces.names) for number in special):
        raise ValueError("a special token is not among the pieces")
    if not isinstance(pieces.cleans_up, bool):
        raise ValueError("cleans_up must be true or false")
    if len({pieces.pad, pieces.end, pieces.unknown}) < 3 or pieces.start in special[2:]:
        raise ValueError("two special tokens have the same id")
