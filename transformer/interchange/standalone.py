"""SentencePiece models that include what our tokenizers do around theirs: lower-casing and tags.

A program that loads source.spm gives it the text as it is. So the rules of lower-casing become part
of its normalisation, and target tags pieces that are never cut.
"""

import tempfile
import unicodedata
from functools import lru_cache
from io import BytesIO

import sentencepiece
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from transformer.data.tokenizer import BLANK, Tokenizer

FINAL_SIGMA = "\u03c2"
"""str.lower() of a capital sigma at the end of a word; rules of characters cannot tell the end."""

LAST = 0x2FFFF
"""Above it no character has cases or a decomposition."""


def standalone_model(tokenizer: Tokenizer, keeps_tags: bool = False) -> bytes:
    """The SentencePiece model of a tokenizer, with its lower-casing; with `keeps_tags` a target tag
    at the beginning of a text, a blank behind it, is the piece `tag_piece`."""
    if not (tokenizer.lowercase or keeps_tags):
        return tokenizer.model
    proto = ModelProto.FromString(tokenizer.model)
    if tokenizer.lowercase:
        proto.normalizer_spec.precompiled_charsmap = _lowering(tokenizer.model)
        proto.normalizer_spec.name = "user_defined"
    known = {piece.piece for piece in proto.pieces}
    for tag in tokenizer.tags if keeps_tags else ():
        if tag_piece(tag) in known:
            continue  # a model of ours has it
        piece = proto.pieces.add()
        piece.piece, piece.score = tag_piece(tag), 0.0
        piece.type = ModelProto.SentencePiece.USER_DEFINED
    return proto.SerializeToString()


def tag_piece(tag: str) -> str:
    """The piece of a target tag there; as with every word, it includes the blank before."""
    return BLANK + tag


@lru_cache(maxsize=2)
def _lowering(model: bytes) -> bytes:
    """The compiled normalisation: str.lower(), then that of the model. It has no context, which the
    final sigma alone needs."""
    proto = ModelProto.FromString(model)
    spec = proto.normalizer_spec
    spec.add_dummy_prefix = spec.remove_extra_whitespaces = spec.escape_whitespaces = False
    normaliser = sentencepiece.SentencePieceNormalizer(model_proto=proto.SerializeToString())
    keys = _characters_and_compositions()
    becomes = dict(zip(keys, normaliser.normalize([key.lower() for key in keys])))
    rules = {
        key: value
        for key, value in becomes.items()
        if value != (key if len(key) == 1 else "".join(becomes[letter] for letter in key))
    }
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as table:
        for pair in rules.items():
            columns = (" ".join(f"{ord(letter):X}" for letter in text) for text in pair)
            table.write("\t".join(columns) + "\n")
        table.flush()
        compiled = BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(["a"]),
            model_writer=compiled,
            vocab_size=10,
            hard_vocab_limit=False,
            normalization_rule_tsv=table.name,
            minloglevel=2,
        )
    return ModelProto.FromString(compiled.getvalue()).normalizer_spec.precompiled_charsmap


def _characters_and_compositions() -> list[str]:
    """Every character, and the sequences that Unicode composes to one, in all cases."""
    characters = [chr(n) for n in range(1, LAST + 1) if not 0xD800 <= n < 0xE000]
    keys = dict.fromkeys(characters)
    for character in characters:
        letters = unicodedata.normalize("NFD", character)
        for count in range(1, len(letters)):
            key = unicodedata.normalize("NFC", letters[:count]) + letters[count:]
            keys |= dict.fromkeys((key, key.upper(), key.capitalize()))
    return list(keys)
