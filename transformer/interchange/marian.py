"""Hugging Face's MarianMTModel folders (OPUS-MT): in as runs, and runs out as such folders."""

import json
import os
import re
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

from transformer.config import Config, DataConfig
from transformer.config.rules import check
from transformer.data.piece_tokenizer import Pieces, PieceTokenizer, check_pieces
from transformer.data.tokenizer import Tokenizer, load_tokenizer
from transformer.data.vocabularies import Tokenizers
from transformer.errors import UserError, one_line
from transformer.interchange.marian_config import (
    EPSILON,
    check_config,
    decode_config,
    model_config,
    their_config,
    their_generation_config,
)
from transformer.interchange.marian_weights import (
    ParameterMapping,
    has_sinusoids,
    read_params,
    write_params,
)
from transformer.interchange.model import load_translator, longest_sequence, origin_of
from transformer.interchange.standalone import standalone_model, tag_piece
from transformer.interchange.weights import (
    checked,
    open_weights,
    read_json,
    save_arrays,
)
from transformer.model.batch import BOS, EOS, PAD, UNK
from transformer.runs.load import Run

WEIGHTS = ("model.safetensors", "pytorch_model.bin")
SPECIAL = (("pad", "<pad>"), ("eos", "</s>"), ("unk", "<unk>"))
MORE_ROWS = 2**20
"""Rows that a table may have beyond its vocabulary."""
MOST_WITHOUT_IDS = 0.02
"""Share of a SentencePiece model's pieces that the vocabulary may lack. OPUS-MT's own folders lack
at most 94 of 32,000 (0.3 %); a model of another language shares few pieces."""
LONGEST = 512
"""Tokens of a sentence, where their tokenizer has no limit."""


def read_marian(folder: Path, source: str = "", target: str = "") -> Run:
    """The model in a folder of theirs; the languages are those of its tokenizer by default.

    Raises UserError for a folder that is damaged, or of a model that ours cannot represent.
    """
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder")
    fields, tokens = read_json(folder / "config.json"), _optional(folder / "tokenizer_config.json")
    check_config(fields)
    _check_added(folder, tokens)
    shares_pieces, pieces = _pieces(folder, fields, tokens)
    weights_file = _weights_file(folder)
    weights = open_weights(weights_file)
    for stack in ("encoder", "decoder"):
        if fields[f"{stack}_layers"] > len(weights.shapes):
            raise UserError(f"{weights_file} has fewer {stack} layers than config.json says")
    table = fields["max_position_embeddings"], fields["d_model"]
    is_sinusoidal = all(has_sinusoids(weights, stack, table) for stack in ("encoder", "decoder"))
    rows = tuple(len(side.order) for side in pieces)
    model = model_config(fields, rows, "sinusoidal" if is_sinusoidal else "learned")
    _check_sizes(fields, pieces)
    ours = {theirs: number for number, theirs in enumerate(pieces[1].order)}
    own = folder / "generation_config.json"
    searched, file = (read_json(own), own.name) if os.path.lexists(own) else (fields, "config.json")
    decode = decode_config(searched, file, fields, ours)
    longest = _longest(tokens, model.max_positions)
    files = [checked(folder / f"{side}.spm") for side in ("source", "target")]
    models = [load_tokenizer(file).model for file in files]
    tokenizers = Tokenizers(*(PieceTokenizer(m, vocabulary=own) for m, own in zip(models, pieces)))
    _check_ids(tokenizers, ("vocab.json", "vocab.json" if shares_pieces else "target_vocab.json"))
    config = Config(
        model=model,
        data=DataConfig(
            dataset=origin_of(folder),
            source=_language(source or tokens.get("source_lang") or "source"),
            target=_language(target or tokens.get("target_lang") or "target"),
            shared_vocabulary=shares_pieces,
            vocabulary=tokenizers.identity[2],
            max_length=min(DataConfig.max_length, longest),
        ),
        decode=replace(decode, max_source_length=longest - 1),
    )
    _check_config(config)
    params = read_params(ParameterMapping(model, *pieces), weights, weights_file)
    return Run(config, params, tokenizers)


def load_any(folder: Path, checkpoint: str = "best") -> Run:
    """The translator of a run, or of a folder of theirs."""
    return read_marian(folder) if is_marian(folder) else load_translator(folder, checkpoint)


def is_marian(folder: Path) -> bool:
    """Whether it is a folder of theirs."""
    config = folder / "config.json"
    return config.is_file() and _optional(config).get("model_type") == "marian"


def _longest(tokens: dict, positions: int) -> int:
    """Tokens of a source, EOS included."""
    most = tokens.get("model_max_length") or LONGEST
    if not isinstance(most, int | float) or not most >= 2:
        raise UserError(
            f"tokenizer_config.json: model_max_length is {most!r}: it must be at least 2"
        )
    return int(min(most, positions, 2**20))


def _language(name: object) -> str:
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9_+-]{1,40}", name):
        raise UserError(
            f"tokenizer_config.json: {name!r:.60} is not a language code: set --source and --target"
        )
    return name


def _check_added(folder: Path, tokens: dict) -> None:
    """Raises UserError for settings and tokens that a tokenizer has besides its vocabulary."""
    usual = {_token(tokens, which, name) for which, name in SPECIAL} | {"<s>"}
    cleans = tokens.get("clean_up_tokenization_spaces")
    if not isinstance(cleans, bool | None):
        raise UserError(
            f"tokenizer_config.json: clean_up_tokenization_spaces is {cleans!r:.60}: it must be "
            "true or false"
        )
    added = [("added_tokens.json", name) for name in _optional(folder / "added_tokens.json")]
    for file, fields in (
        ("tokenizer_config.json", tokens),
        ("special_tokens_map.json", _optional(folder / "special_tokens_map.json")),
    ):
        for field in ("additional_special_tokens", "extra_special_tokens", "added_tokens_decoder"):
            added += [(file, name) for name in _contents(file, field, fields.get(field))]
        for which, name in SPECIAL:
            if which + "_token" in fields and _token(fields, which, name) not in usual:
                raise UserError(f"{file}: {which}_token differs from that of tokenizer_config.json")
    for file, name in added:
        if name not in usual and not (name.startswith(">>") and name.endswith("<<")):
            raise UserError(f"{file} adds the token {name!r}, which cannot be converted")
    if tokens.get("sp_model_kwargs"):
        raise UserError(
            f"tokenizer_config.json: sp_model_kwargs is {tokens['sp_model_kwargs']!r:.60}, which "
            "this program does not support"
        )


def _contents(file: str, field: str, value: object) -> list[str]:
    """The names of tokens in a list, or in an object by number or name."""
    if value is not None and not isinstance(value, list | dict):
        raise UserError(f"{file}: {field} is {value!r:.60}: it must be a list or an object")
    found = [] if value is None else value.values() if isinstance(value, dict) else value
    return [str(name.get("content") if isinstance(name, dict) else name) for name in found]


def _token(tokens: dict, which: str, usual: str) -> str:
    """The name of a special token: a text, or an object that holds one."""
    name = tokens.get(f"{which}_token") or usual
    name = name.get("content") if isinstance(name, dict) else name
    if not isinstance(name, str):
        raise UserError(f"tokenizer_config.json: {which}_token is {name!r}: it must be a string")
    return name


def _optional(path: Path) -> dict:
    """The fields of a file, if its name exists: a link to nowhere was meant to hold some."""
    return read_json(path) if os.path.lexists(path) else {}


def _weights_file(folder: Path) -> Path:
    found = [folder / name for name in WEIGHTS if (folder / name).exists()]
    if not found:
        raise UserError(f"{folder} has neither {' nor '.join(WEIGHTS)}, which contain the weights")
    return found[0]


def _pieces(folder: Path, fields: dict, tokens: dict) -> tuple[bool, tuple[Pieces, Pieces]]:
    """Whether the sides share a vocabulary, and the pieces of each."""
    separate = bool(tokens.get("separate_vocabs"))
    start = fields.get("decoder_start_token_id")
    target_file = folder / ("target_vocab.json" if separate else "vocab.json")
    target_size = fields.get("decoder_vocab_size") or fields.get("vocab_size")
    target = _numbered(target_file, read_json(target_file), tokens, target_size, start)
    if target.pad != fields.get("pad_token_id") or target.end != fields.get("eos_token_id"):
        raise UserError(
            f"{folder}: pad_token_id or eos_token_id of config.json differs from that of "
            f"{target_file.name}"
        )
    if not separate:
        return True, (target, target)
    source_file, size = folder / "vocab.json", fields.get("vocab_size")
    ids = read_json(source_file)
    start = None if target.pad == target.start else ids.get(target.names[target.start])
    return False, (_numbered(source_file, ids, tokens, size, start), target)


def _numbered(path: Path, ids: dict, tokens: dict, size: int | None, start: int | None) -> Pieces:
    """The vocabulary that a file of theirs holds; a model may have more rows than it has pieces."""
    special = [_token(tokens, which, usual) for which, usual in SPECIAL]
    try:
        if type(size) is not int or not len(ids) <= size < len(ids) + MORE_ROWS:
            raise ValueError(
                f"vocab_size of config.json is {size}, but there are {len(ids):,} pieces"
            )
        "".join(ids).encode()  # half a character is no text
        listed: list[str | None] = [None] * size
        for name, number in ids.items():
            if type(number) is not int or not 0 <= number < size or listed[number] is not None:
                raise ValueError(f"the piece {name!r} has no id of its own below {size}")
            listed[number] = name
        pad, end, unknown = (ids[name] for name in special)
        start = pad if start is None else start
        cleans_up = bool(tokens.get("clean_up_tokenization_spaces"))
        pieces = Pieces(tuple(listed), pad, start, end, unknown, cleans_up)
        check_pieces(pieces)
    except KeyError as error:
        raise UserError(f"{path} lacks the piece {error.args[0]!r}") from None
    except ValueError as error:
        raise UserError(f"{path}: {one_line(error)}") from error
    return pieces


def _check_ids(tokenizers: Any, lists: tuple[str, str]) -> None:
    """Warns of pieces of a SentencePiece model without an id in the vocabulary of its side, which
    become unknown tokens; raises UserError where they are too many."""
    for side, tokenizer, name in zip(("source", "target"), tokenizers, lists):
        pieces, known = tokenizer.pieces_of_text, set(tokenizer.vocabulary.names)
        lacking = [piece for piece in pieces if piece not in known]
        share = len(lacking) / max(1, len(pieces))
        message = f"{side}.spm: {len(lacking):,} of {len(pieces):,} pieces have no id in {name}"
        if share > MOST_WITHOUT_IDS:
            raise UserError(
                f"{message}: the two files are of different models: download both again"
            )
        if lacking:
            example = f"such as {lacking[0]!r}"
            warnings.warn(f"{message} and become unknown tokens, {example}", stacklevel=3)


def _check_sizes(fields: dict, pieces: tuple[Pieces, Pieces]) -> None:
    if fields.get("vocab_size") != len(pieces[0].names):
        raise UserError(
            f"config.json: vocab_size is {fields.get('vocab_size')!r:.60}, but the vocabulary of "
            f"the source has {len(pieces[0].names)} rows"
        )
    if fields.get("share_encoder_decoder_embeddings", True) and pieces[0] != pieces[1]:
        raise UserError(
            "config.json is damaged: it shares embeddings between two different vocabularies"
        )


def _check_config(config: Config) -> None:
    try:
        check(config)
    except UserError as error:
        raise UserError(f"config.json: {error}") from error


def write_marian(folder: Path, model: Run, card: str) -> None:
    """A folder that MarianMTModel and MarianTokenizer load offline. Raises UserError for what such
    a model cannot hold."""
    config = model.config
    sides = [_their_pieces(tokenizer) for tokenizer in model.tokenizers]
    if config.model.tying == "all" and sides[0] != sides[1]:
        raise UserError(
            "this run is damaged: it has model.tying all, but two different vocabularies"
        )
    is_learned = config.model.positions == "learned"
    tokens = {
        "pad": sides[1].pad,
        "start": sides[1].start,
        "end": sides[1].end,
        "source_size": len(sides[0].names),
        "target_size": len(sides[1].names),
        "positions": config.model.max_positions if is_learned else longest_sequence(config),
    }
    their = their_config(config.model, config.decode, tokens)
    generation = their_generation_config(config.decode, tokens, sides[1].order)
    if config.model.norm_epsilon != EPSILON:
        warnings.warn(
            f"model.norm_epsilon {config.model.norm_epsilon} becomes {EPSILON}, the value of every "
            "MarianMTModel",
            stacklevel=2,
        )
    arrays = write_params(ParameterMapping(config.model, *sides), model.params)
    save_arrays(folder / WEIGHTS[0], arrays, kind="pt")
    _write_json(folder / "config.json", their)
    _write_json(folder / "generation_config.json", generation)
    _write_tokenizers(folder, model, sides, tokens["positions"])
    (folder / "README.md").write_text(card, encoding="utf-8")


def _their_pieces(tokenizer: Tokenizer) -> Pieces:
    """The pieces of a tokenizer and their ids: those of its own vocabulary, or ours."""
    if isinstance(tokenizer, PieceTokenizer):
        return tokenizer.vocabulary
    tags = {tag_piece(tag): tag for tag in tokenizer.tags}
    pieces = tokenizer.pieces(range(tokenizer.vocab_size))
    names = [tags.get(piece, piece) for piece in pieces]  # transformers cuts tags off first
    return Pieces(tuple(names), pad=PAD, start=BOS, end=EOS, unknown=UNK)


def _write_tokenizers(folder: Path, model: Run, sides: list[Pieces], longest: int) -> None:
    for side, tokenizer in zip(("source", "target"), model.tokenizers):
        (folder / f"{side}.spm").write_bytes(standalone_model(tokenizer))
    files = ("vocab.json", "target_vocab.json") if sides[0] != sides[1] else ("vocab.json",)
    for name, pieces in zip(files, sides):
        ids = {name: number for number, name in enumerate(pieces.names) if name is not None}
        _write_json(folder / name, ids)
    end, target = sides[1].end, sides[1].names
    begin = {} if sides[1].pad == sides[1].start else {"bos_token": target[sides[1].start]}
    _write_json(
        folder / "tokenizer_config.json",
        begin
        | {
            "tokenizer_class": "MarianTokenizer",
            "source_lang": model.config.data.source,
            "target_lang": model.config.data.target,
            "separate_vocabs": len(files) == 2,
            "model_max_length": min(longest, model.config.decode.max_source_length + 1),
            "pad_token": target[sides[1].pad],
            "eos_token": target[end],
            "unk_token": target[sides[1].unknown],
            "clean_up_tokenization_spaces": sides[1].cleans_up,
        },
    )


def _write_json(path: Path, value: dict) -> None:
    text = json.dumps(value, ensure_ascii=False, indent=2) + "\n"
    path.write_text(text, encoding="utf-8")
