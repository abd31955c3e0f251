"""Sentences to token ids and back, by SentencePiece models (unigram, BPE, words or characters)."""

import hashlib
import io
import random
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import sentencepiece

from transformer.config import DataConfig
from transformer.data.tag_names import TAG, named_tag, parse_tag
from transformer.errors import UserError
from transformer.machine.signals import ended_by_interrupts
from transformer.model.batch import BOS, EOS, PAD, UNK

MAX_TRAINING_SENTENCES = 2_000_000
"""Sentences that a vocabulary is trained on; a larger corpus is sampled, to bound the memory."""

LONGEST_LINE = 1_024
"""Characters of a line that a vocabulary is trained on; longer ones, such as paragraphs of a book,
become several. SentencePiece's time grows with the square of what repeats in a line (200,000 dashes
take 20 s), its expected counts overflow in words of 100,000 characters, and it cannot load a model
with a word of 10,000 bytes."""

LONGEST_PIECE = 16
"""Characters of the longest piece that SentencePiece learns."""

RESERVED = "\u2585"
"""SentencePiece trains on no sentence with this character, which is a token of its own here."""

SPECIAL_NAMES = re.compile("<(?=(?:s|/s|unk|pad)>)")
"""Where text, such as that of the Penn Treebank, spells a special token: SentencePiece would not
learn the characters of its name."""

BLANK = "\u2581"
"""What SentencePiece writes for a space: words begin with it."""

LARGE_ALPHABET = 1_000
"""An alphabet of more characters is large: Chinese, or the stray characters of a web crawl."""

COVERAGE = 0.9995
"""The fraction of a text with a large alphabet whose characters are in the vocabulary, the most
frequent ones."""

DEFAULTS = DataConfig()

FREQUENT = 10
"""Characters that occur as often are in the vocabulary too; in more than a million sentences, once
in a hundred thousand."""


@dataclass(frozen=True)
class Tokenizer:
    """A SentencePiece model whose special ids are always PAD 0, BOS 1, EOS 2 and UNK 3.

    The models that we train have these ids themselves. A model from elsewhere may number them
    differently, or lack PAD; a table between its ids and ours hides that from all callers.
    """

    model: bytes = field(repr=False)
    """The serialised model, as in a SentencePiece .model file."""
    lowercase: bool = False
    """Whether text is lower-cased first."""

    def __post_init__(self) -> None:
        """Raises UserError when `model` is not a SentencePiece model."""
        try:
            self._processor  # noqa: B018 - loading it is the check
        except RuntimeError as error:
            raise UserError("the file is not a SentencePiece model") from error

    @cached_property
    def _processor(self) -> sentencepiece.SentencePieceProcessor:
        processor = sentencepiece.SentencePieceProcessor()
        processor.load_from_serialized_proto(self.model)
        return processor

    @cached_property
    def _model_ids(self) -> list[int]:
        """For each of our ids the model's, or -1 for a special token that the model lacks."""
        model = self._processor
        special = [model.pad_id(), model.bos_id(), model.eos_id(), model.unk_id()]
        return special + [i for i in range(model.vocab_size()) if i not in special]

    @cached_property
    def _our_ids(self) -> list[int]:
        """The inverse of `_model_ids`."""
        table = [UNK] * self._processor.vocab_size()
        for ours, models in enumerate(self._model_ids):
            if models >= 0:
                table[models] = ours
        return table

    @property
    def marks_ends(self) -> bool:
        """Whether words end with BLANK (SentencePiece's treat_whitespace_as_suffix)."""
        return self._processor.encode("a", out_type=str)[-1].endswith(BLANK)

    @cached_property
    def _names(self) -> list[str]:
        """The piece of each of our ids; "" if the model has none."""
        ids = self._model_ids
        return [self._processor.id_to_piece(number) if number >= 0 else "" for number in ids]

    @property
    def vocab_size(self) -> int:
        """Tokens in the vocabulary, the four special ones included, even a PAD that it lacks."""
        return len(self._names)

    @cached_property
    def symbols(self) -> tuple[str, ...]:
        """The user-defined tokens, without the blank before them."""
        own = (p.piece for p in self._proto.pieces if p.type == p.USER_DEFINED)
        return tuple(piece.removeprefix(BLANK) for piece in own)

    @cached_property
    def tags(self) -> tuple[str, ...]:
        """The target tags of the vocabulary, such as >>deu<<: a source begins with one of them. The
        piece of a tag includes the blank before it."""
        named = {*filter(TAG.fullmatch, (name.removeprefix(BLANK) for name in self._names))}
        return tuple(symbol for symbol in self.symbols if symbol in named) if named else ()

    @cached_property
    def tag_rows(self) -> list[list[int]]:
        """The tokens of each of `tags`: one, or in a model from elsewhere a blank and the tag."""
        return self.encode(self.tags)

    def split_tag(self, text: str) -> tuple[str, str]:
        """The target tag that a text begins with, "" without one, and the rest of the text."""
        name, rest = parse_tag(text)
        tag = named_tag(self.tags, name) if name else ""
        return (tag, rest) if tag else ("", text)

    @cached_property
    def digest(self) -> str:
        """Identity: the SHA-256 of the model's bytes, and whether text is lower-cased."""
        return hashlib.sha256(self.model).hexdigest() + "-lower" * self.lowercase

    def encode(self, sentences: Sequence[str]) -> list[list[int]]:
        """The token ids of each sentence, without BOS and EOS."""
        table = self._our_ids
        tagged = [self.split_tag(text) for text in sentences]
        rest = [text.lower() if self.lowercase else text for _, text in tagged]
        texts = [f"{tag} {text.lstrip()}" if tag else text for (tag, _), text in zip(tagged, rest)]
        return [[table[i] for i in row] for row in self._processor.encode(texts)]

    @cached_property
    def _proto(self) -> Any:
        """The fields of the model."""
        return _proto_of(self.model)

    @property
    def is_bpe(self) -> bool:
        """Whether pieces come from merges, so that their scores are not log-probabilities."""
        return self._proto.trainer_spec.model_type == self._proto.trainer_spec.BPE

    @property
    def is_unigram(self) -> bool:
        """Whether pieces have log-probabilities."""
        return self._proto.trainer_spec.model_type == self._proto.trainer_spec.UNIGRAM

    @cached_property
    def _verbatim(self) -> sentencepiece.SentencePieceProcessor:
        """The model for text that is written as in pieces, with BLANK for a space."""
        model = _proto_of(self.model)
        model.normalizer_spec.Clear()
        model.normalizer_spec.name = "identity"
        model.normalizer_spec.add_dummy_prefix = False
        model.normalizer_spec.remove_extra_whitespaces = False
        return sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString())

    @property
    def byte_ids(self) -> list[int]:
        """The ids of the pieces that stand for a byte (data.byte_fallback)."""
        pieces = self._proto.pieces
        names = {piece.piece for piece in pieces if piece.type == piece.BYTE}
        return [number for number, name in enumerate(self._names) if name in names]

    def segmentations(self, word: str, count: int) -> list[list[str]]:
        """The likeliest ways of a unigram model to cut a word, or a part of one, into pieces."""
        return self._verbatim.nbest_encode(word, nbest_size=count, out_type=str)

    def scores(self) -> dict[str, float]:
        """The log-probability of each piece that words are cut into; of BPE a number that is higher
        where two pieces are merged into this one earlier. Without special tokens, bytes and
        user-defined symbols."""
        pieces = self._proto.pieces
        return {piece.piece: piece.score for piece in pieces if piece.type == piece.NORMAL}

    def rows(self, sentences: Sequence[str]) -> list[list[int]]:
        """The token ids of each sentence as models see them: with EOS."""
        return [[*row, EOS] for row in self.encode(sentences)]

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """The sentence of each row of ids; PAD, BOS and EOS are dropped."""
        table = self._model_ids
        rows = [[table[i] for i in row if i not in (PAD, BOS, EOS)] for row in ids]
        return [self._processor.decode(row) if row else "" for row in rows]

    def reproduce(self, sentences: Sequence[str]) -> list[str]:
        """The sentences encoded and decoded: a model cannot write what this loses."""
        return self.decode(self.encode(sentences))

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The piece of text behind each id, special tokens by name: labels for a plot."""
        names = {PAD: "<pad>", BOS: "<s>", EOS: "</s>", UNK: "<unk>"}
        return [names.get(i) or self._names[i] for i in ids]


def _proto_of(model: bytes) -> Any:
    """The fields of a serialised model."""
    import sentencepiece.sentencepiece_model_pb2 as protos

    return protos.ModelProto.FromString(model)


def has_letters(text: str) -> bool:
    """Whether there is a letter of any script in a text (Unicode's categories L)."""
    return any(map(str.isalpha, text))


def save_tokenizer(tokenizer: Tokenizer, path: str | Path) -> None:
    """Write the model as an ordinary SentencePiece file."""
    Path(path).write_bytes(tokenizer.model)


def load_tokenizer(path: str | Path, lowercase: bool = False) -> Tokenizer:
    """Read a SentencePiece file, of ours or from elsewhere. Raises UserError if that fails."""
    try:
        return Tokenizer(Path(path).read_bytes(), lowercase)
    except (OSError, UserError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"cannot read the tokenizer {path}: {reason}") from error


def train_tokenizer(
    sentences: Iterable[str],
    kind: str,
    vocab_size: int,
    options: DataConfig = DEFAULTS,
    setting: str = "data.vocab_size",
) -> Tokenizer:
    """Train a SentencePiece model of `kind` unigram, bpe, word or char.

    Of `options` it reads normalisation, lowercase, byte_fallback, character_coverage, symbols and
    split_digits. The same sentences give the same model, with the same version of SentencePiece.
    `vocab_size` is an upper limit: few sentences, or sentences that repeat their words, have fewer
    pieces. Raises UserError, which names the `setting` of the size, when the characters alone do
    not fit.
    """
    sample = _sample(sentences, MAX_TRAINING_SENTENCES)
    symbols: Sequence[str] = options.symbols
    if options.lowercase:
        sample = [_lowered(sentence, symbols) for sentence in sample]
        symbols = [symbol if TAG.fullmatch(symbol) else symbol.lower() for symbol in symbols]
    symbols = [BLANK + symbol if TAG.fullmatch(symbol) else symbol for symbol in symbols]
    alphabet = set().union(*sample)
    symbols = list(dict.fromkeys([*symbols, *alphabet & {RESERVED}]))
    reserved = UNK + 1 + 256 * options.byte_fallback + len(symbols)  # special tokens, and bytes
    if vocab_size <= reserved and kind in ("word", "char"):
        raise UserError(
            f"{setting} ({vocab_size}) is too small for {reserved} special tokens: "
            f"set it to at least {reserved + 1}"
        )
    model = io.BytesIO()
    try:
        with ended_by_interrupts():  # for a minute it does not let Python act
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=_lines(sample),
                model_writer=model,
                model_type=kind,
                # If special tokens fit, its error says how large the vocabulary must be.
                vocab_size=max(vocab_size, reserved),
                hard_vocab_limit=False,
                byte_fallback=options.byte_fallback,
                normalization_rule_name=options.normalisation,
                split_digits=options.split_digits,
                user_defined_symbols=symbols,
                **_kept_characters(sample, alphabet, vocab_size, options),
                max_sentence_length=4 * LONGEST_LINE,  # in bytes
                max_sentencepiece_length=LONGEST_PIECE,
                pad_id=PAD,
                bos_id=BOS,
                eos_id=EOS,
                unk_id=UNK,
                num_threads=4,  # the result depends on their number, so it is the same everywhere
                minloglevel=2,  # errors only: they are raised
            )
    except RuntimeError as error:
        raise UserError(_explanation(str(error), kind, f"{setting} ({vocab_size})")) from error
    return Tokenizer(model.getvalue(), options.lowercase)


def _lowered(sentence: str, symbols: Collection[str]) -> str:
    """In lower case, except for a target tag: two may differ in their regions alone."""
    tag, rest = parse_tag(sentence)
    return f"{tag} {rest.lower().lstrip()}" if tag in symbols else sentence.lower()


def normaliser(rule: str) -> Callable[[str], str]:
    """SentencePiece's normalisation of that name, as a function."""
    found = sentencepiece.SentencePieceNormalizer(
        rule_name=rule, add_dummy_prefix=False, escape_whitespaces=False
    )
    return found.normalize


def normalised_by(tokenizer: Tokenizer, rule: str) -> Tokenizer:
    """A tokenizer with the same pieces and ids that normalises text by another rule before it
    encodes it; it decodes in the same way."""
    model = _proto_of(tokenizer.model)
    spec = sentencepiece.SentencePieceNormalizer(rule_name=rule).serialized_normalizer_spec()
    table = type(model.normalizer_spec).FromString(spec).precompiled_charsmap
    model.normalizer_spec.name, model.normalizer_spec.precompiled_charsmap = rule, table
    return replace(tokenizer, model=model.SerializeToString(deterministic=True))


def _sample(sentences: Iterable[str], size: int) -> list[str]:
    """At most `size` of the sentences, each with the same probability (reservoir sampling)."""
    generator = random.Random(0)
    sample = []
    for count, sentence in enumerate(sentences, start=1):
        if len(sample) < size:
            sample.append(sentence)
        elif (place := generator.randrange(count)) < size:
            sample[place] = sentence
    return sample


def _lines(sentences: Iterable[str]) -> Iterator[str]:
    """The sentences as lines that SentencePiece can be trained on: cut at spaces if possible,
    without its reserved characters."""
    parts = re.compile(f".{{1,{LONGEST_LINE}}}(?: |$)|.{{{LONGEST_LINE}}}", re.DOTALL)
    for sentence in sentences:
        text = SPECIAL_NAMES.sub("< ", sentence.replace(RESERVED, " "))
        if len(text) <= LONGEST_LINE:
            yield text
        else:
            yield from parts.findall(text)


def _kept_characters(
    sample: Sequence[str], alphabet: Collection[str], vocab_size: int, options: DataConfig
) -> dict[str, Any]:
    """SentencePiece's settings for the characters that are in the vocabulary.

    Of a large alphabet, those that make up 99.95 % of the text, and in up to a quarter of the
    vocabulary the others that are FREQUENT: in Chinese text, say, % and € would be lost.
    """
    if options.character_coverage or len(alphabet) <= LARGE_ALPHABET:
        return {"character_coverage": options.character_coverage or 1.0}
    normalise, counts = normaliser(options.normalisation), Counter[str]()
    for sentence in sample:
        counts.update(normalise(sentence))
    rest = 2 * (1 - COVERAGE) * counts.total()  # SentencePiece counts a little differently
    for reserved in (" ", "\t", "\0", BLANK, RESERVED):
        del counts[reserved]
    enough = max(FREQUENT, len(sample) // 100_000)
    kept: list[str] = []
    for character, count in reversed(counts.most_common()):
        rest -= count
        if rest < 0:
            break
        if count >= enough:
            kept.append(character)
    kept = kept[::-1][: vocab_size // 4]
    return {"character_coverage": COVERAGE, "required_chars": "".join(kept)}


def _explanation(error: str, kind: str, setting: str) -> str:
    """SentencePiece's error in terms of the user's settings."""
    if smallest := re.search(r"required_chars\. \d+ vs (\d+)", error):
        return (
            f"{setting} is too small for this corpus's characters: lower data.character_coverage, "
            f"or set it to at least {smallest[1]}"
        )
    if "sentences_.empty()" in error or "all_chars_count" in error:
        return (
            "there is no text to train a tokenizer on: the sentences are empty, or consist of "
            "characters that data.normalisation drops"
        )
    return (
        f"SentencePiece cannot train a vocabulary with data.tokenizer {kind} and {setting}: "
        f"try another data.tokenizer ({error.strip()})"
    )
