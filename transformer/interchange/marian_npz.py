"""Models as the Marian toolkit writes them (.npz): in as runs.

OPUS-MT, the Tatoeba Challenge and HPLT publish such files with their vocabularies. Names and
formulas are those of https://github.com/marian-nmt/marian-dev, src/models/transformer.h. They
differ from Hugging Face's MarianMTModel: other frequencies of the sinusoids, another epsilon of the
norms, and no logit for the padding token.
"""

import math
import os
import re
import tokenize
import zipfile
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np

from transformer.config import Config, DataConfig
from transformer.config.rules import check
from transformer.data.piece_tokenizer import PieceTokenizer
from transformer.data.vocabularies import Tokenizers
from transformer.errors import UserError, one_line
from transformer.interchange.marian_options import (
    MOST_POSITIONS,
    Options,
    decode_config,
    listed_names,
    read_options,
    read_yaml,
)
from transformer.interchange.marian_vocabularies import read_vocabularies
from transformer.interchange.marian_weights import (
    BIAS,
    OUT_OF_REACH,
    OUTPUT,
    POSITIONS,
    SHARED,
    SOURCE,
    TARGET,
    ParameterMapping,
    read_params,
)
from transformer.interchange.model import origin_of
from transformer.interchange.weights import Shapes, checked
from transformer.runs.load import Run

OPTIONS = "special:model.yml"
"""The array that holds the options, as text."""

LEARNED_POSITIONS = "Wpos"

LOGITS = "decoder_ff_logit_out"

ATTENTION = {"self_attn": "self", "encoder_attn": "context"}
MATRIX = {"weight": "W", "bias": "b"}
NORM = {"weight": "scale", "bias": "bias"}
"""Marian's names by those of a MarianMTModel."""

ENCODINGS = [POSITIONS.format(stack) for stack in ("encoder", "decoder")]

LINEAR = re.compile(r"_W[qkvo12]?$")
"""Arrays that are transposed there: [inputs, outputs]."""

READERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
"""By the version of an array's header."""

BROKEN = (
    OSError, ValueError, KeyError, EOFError, RuntimeError, OverflowError, MemoryError, SyntaxError,
    AttributeError, TypeError, zipfile.BadZipFile, zlib.error, tokenize.TokenError,
)  # fmt: skip
"""Errors of reading a damaged file."""


def is_npz(path: Path) -> bool:
    """Whether a path is not a folder of Hugging Face's, but a .npz file or the folder of one."""
    return path.suffix == ".npz" or (
        not (path / "config.json").exists() and any(path.glob("*.npz"))
    )


def read_npz(path: Path, vocabularies: tuple[Path, ...], source: str, target: str) -> Run:
    """The model of a .npz file, or of the only one in a folder. Its vocabularies are the given
    ones, or those that decoder.yml beside it names.

    Raises UserError for what is damaged, and for a model that ours cannot represent.
    """
    search = (path if path.is_dir() else path.parent) / "decoder.yml"
    has_search = os.path.lexists(search)  # a link to nowhere was meant to hold some settings
    settings = read_yaml(checked(search).read_bytes(), search) if has_search else {}
    path = _weights_file(path, listed_names(settings, "models", search))
    arrays = _open(path)
    options = read_options(_array(arrays, OPTIONS, path).tobytes().rstrip(b"\0"), path)
    if max(options.model.encoder_layers, options.model.decoder_layers) > len(arrays):
        raise UserError(f"{path} has fewer layers than its options say")
    names = listed_names(settings, "vocabs", search)
    named = vocabularies or tuple(path.parent / Path(name).name for name in names)
    models, pieces = read_vocabularies(named, options.rows, path.parent)
    if options.has_one_table and pieces[0] != pieces[1]:
        raise UserError(
            f"{path} has one table of embeddings for both sides, so the source and the target must "
            "have the same vocabulary"
        )
    rows = 0
    if options.learns_positions:
        rows = len(np.atleast_1d(_array(arrays, LEARNED_POSITIONS, path)))
        if rows < 2:
            raise UserError(
                f"{path}: {LEARNED_POSITIONS} has {rows} row, but must have two or more"
            )
    model = replace(
        options.model,
        source_vocab_size=len(pieces[0].order),
        target_vocab_size=len(pieces[1].order),
        max_positions=rows or MOST_POSITIONS,
    )
    tokenizers = Tokenizers(
        *(PieceTokenizer(one, vocabulary=own) for one, own in zip(models, pieces))
    )
    decode = decode_config(settings, search)
    config = Config(
        model=model,
        data=DataConfig(
            dataset=origin_of(path),
            source=source or "source",
            target=target or "target",
            shared_vocabulary=pieces[0] == pieces[1],
            vocabulary=tokenizers.identity[2],
            max_length=min(DataConfig.max_length, model.max_positions),
        ),
        decode=replace(decode, max_source_length=model.max_positions - 1),
    )
    check(config)
    mapping = ParameterMapping(model, *pieces)
    return Run(
        config, read_params(mapping, MarianArrays(arrays, options, mapping, path), path), tokenizers
    )


def _weights_file(path: Path, names: list[str]) -> Path:
    """The .npz file; of a folder the one in `names`, or the only one."""
    if not path.is_dir():
        return checked(path, most=2**40)
    found = [checked(path / Path(name).name, most=2**40) for name in names]
    found = found or sorted(path.glob("*.npz"))
    if len(found) != 1:
        listed = f"{len(found)} .npz files: name one of them" if found else "no .npz file"
        raise UserError(f"{path} has {listed}")
    return found[0]


def _open(path: Path) -> np.lib.npyio.NpzFile:
    """The arrays by name, each read when it is asked for. Raises UserError without options."""
    try:
        arrays = np.load(path)
        if not isinstance(arrays, np.lib.npyio.NpzFile):
            raise ValueError("it is a single array")
    except BROKEN as error:
        raise UserError(f"cannot read the weights {path}: {one_line(error)}") from error
    if OPTIONS not in arrays:
        raise UserError(f"{path} is no model of Marian: it lacks the array {OPTIONS}")
    return arrays


def _array(arrays: np.lib.npyio.NpzFile, name: str, file: Path) -> np.ndarray:
    """One array. Raises UserError before memory is allocated for more than the file holds."""
    try:
        member = f"{name}.npy"
        with arrays.zip.open(member) as header:
            shape, _, dtype = READERS[np.lib.format.read_magic(header)](header)
            described = arrays.zip.getinfo(member)
            held = described.file_size - header.tell()
        if described.compress_type != zipfile.ZIP_STORED:
            raise ValueError(
                "it is compressed, which Marian never does: save the file again with numpy.savez"
            )
        if math.prod(shape) * dtype.itemsize != held:
            raise ValueError(f"its shape {shape} is not that of {held:,} bytes")
        return arrays[name]
    except BROKEN as error:
        raise UserError(f"cannot read {name} in {file}: {one_line(error)}") from error


class MarianArrays:
    """The arrays of a file under the names, and in the shapes, of a MarianMTModel, whose tables
    have one more row: the zeros that a translation begins with."""

    def __init__(
        self,
        arrays: np.lib.npyio.NpzFile,
        options: Options,
        mapping: ParameterMapping,
        file: Path,
    ):
        """Raises UserError naming an array that is missing, or that no option explains."""
        self._arrays, self._options, self._file = arrays, options, file
        self.shapes: Shapes = {**mapping.their_shapes(), BIAS: (1, len(mapping.target.names))}
        used = {self._name(name) for name in self.shapes if not self._is_computed(name)}
        if lacking := sorted(used - {*arrays} - {LOGITS + "_b"}):
            raise UserError(f"{file} lacks the array {lacking[0]}, which its options require")
        if unknown := sorted({*arrays} - used - {OPTIONS}):
            raise UserError(f"{file} has the array {unknown[0]}, which its options do not explain")

    def read(self, name: str) -> np.ndarray:
        """One array. Raises UserError when it is damaged or of another shape."""
        shape = self.shapes[name]
        if self._is_computed(name):
            return sinusoids(*shape)
        theirs = self._name(name)
        if theirs not in self._arrays:  # logits may have no bias
            return np.zeros(shape, np.float32)
        array = _array(self._arrays, theirs, self._file)
        if is_transposed := bool(LINEAR.search(theirs)):
            array = array.T
        is_table = name in (SHARED, SOURCE, TARGET, OUTPUT)
        rows = (shape[0] - is_table, *shape[1:])
        if name == BIAS:
            rows = (1, shape[1] - 1)
        elif len(shape) == 1:
            rows = (1, *shape)
        if array.shape != rows:
            found, expected = (
                (one.T.shape if is_transposed else one.shape)
                for one in (array, np.empty(rows, bool))
            )
            raise UserError(
                f"{self._file}: {theirs} has the shape {found}, but its options require {expected}"
            )
        if name == BIAS:
            return np.pad(array, ((0, 0), (0, 1)), constant_values=OUT_OF_REACH)
        return np.pad(array, ((0, 1), (0, 0))) if is_table else array.reshape(shape)

    def _is_computed(self, name: str) -> bool:
        return name in ENCODINGS and not self._options.learns_positions

    def _name(self, name: str) -> str:
        """Marian's name of an array of a MarianMTModel."""
        if name in ENCODINGS:
            return LEARNED_POSITIONS
        if name in (SHARED, SOURCE, TARGET):
            stack = "encoder_" if name == SOURCE else "decoder_"
            return "Wemb" if self._options.has_one_table else f"{stack}Wemb"
        if name == BIAS:
            return f"{LOGITS}_b"
        if name == OUTPUT:
            return f"{LOGITS}_W" if f"{LOGITS}_W" in self._arrays else f"{LOGITS}_Wt"
        suffix = "_pre" if self._options.model.norm == "pre" else ""
        _, stack, *rest, part, kind = name.split(".")
        if not rest:  # the norm after a stack
            return f"{stack}_top_ln_{NORM[kind]}"
        layer = f"{stack}_l{int(rest[1]) + 1}"
        if part.startswith("fc"):
            return f"{layer}_ffn_{MATRIX[kind]}{part[2]}"
        if part == "final_layer_norm":
            return f"{layer}_ffn_ffn_ln_{NORM[kind]}{suffix}"
        if part.endswith("_layer_norm"):
            attention = ATTENTION[part.removesuffix("_layer_norm")]
            return f"{layer}_{attention}_Wo_ln_{NORM[kind]}{suffix}"
        return f"{layer}_{ATTENTION[rest[2]]}_{MATRIX[kind]}{part[0]}"


def sinusoids(positions: int, width: int) -> np.ndarray:
    """Marian's encoding of positions, [positions, width]: sines, then cosines. Of the n = width / 2
    frequencies, number i is 10,000^(-i / (n - 1)); in the paper it is 10,000^(-i / n)."""
    count = width // 2
    frequencies = np.exp(np.arange(count) * (-math.log(10_000) / (count - 1)))
    angles = np.arange(positions)[:, None] * frequencies
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)
