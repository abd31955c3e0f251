"""Our parameters and those of Hugging Face's MarianMTModel, name by name, in both directions.

Their linear layers hold [outputs, inputs], ours inputs first. Their sinusoids have all sines before
all cosines, ours interleave them: so the features of the model change their order everywhere.
https://github.com/huggingface/transformers/blob/main/src/transformers/models/marian/modeling_marian.py
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from transformer.config import ModelConfig
from transformer.data.piece_tokenizer import Pieces
from transformer.errors import UserError
from transformer.interchange.weights import (
    Shapes,
    Weights,
    as_float32,
    check_shapes,
    from_names,
    shapes_of,
)
from transformer.model.layers import sinusoids
from transformer.model.params import Params, by_name

OUT_OF_REACH = -100.0
"""The logit's bias of a PAD that they do not have: no probability, and a finite smoothed loss."""

ABSENT = (".b_q", ".b_k", ".b_v", ".b_o", "output_bias")
"""Parameters that our models may lack."""
POSITIONS = "model.{}.embed_positions.weight"
BIAS = "final_logits_bias"
SHARED, OUTPUT = "model.shared.weight", "lm_head.weight"
SOURCE, TARGET = "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"
ALIASES = {
    "all": {SHARED: (SOURCE, TARGET, OUTPUT)},
    "target": {TARGET: (OUTPUT,)},
    "none": {SOURCE: (SHARED,), TARGET: (SHARED,)},
}
"""By tying, other names under which files may hold a table: those that share it."""


class Pair(NamedTuple):
    """One of our parameters (in a stack: of one layer), and theirs.

    `is_linear`: theirs is transposed. `features`: the axis of ours, seen as a matrix, that has the
    features of the model. `pieces`: the vocabulary that numbers its rows.
    """

    ours: str
    theirs: str
    is_linear: bool = False
    features: int | None = None
    layer: int | None = None
    pieces: Pieces | None = None


@dataclass(frozen=True)
class ParameterMapping:
    """The parameters of a model and their names there."""

    model: ModelConfig
    source: Pieces
    target: Pieces

    def pairs(self) -> Iterator[Pair]:
        """All parameters that are learned; positions only where they are."""
        yield from self._tables()
        for layer in range(self.model.encoder_layers):
            yield from _layer("encoder", layer)
        for layer in range(self.model.decoder_layers):
            yield from _layer("decoder", layer)
        if self.model.norm == "pre":  # Marian's own models may have it
            for stack in ("encoder", "decoder"):
                norm = f"model.{stack}.layer_norm"
                yield Pair(f"{stack}.norm.scale", f"{norm}.weight", features=0)
                yield Pair(f"{stack}.norm.bias", f"{norm}.bias", features=0)

    def _tables(self) -> Iterator[Pair]:
        def table(ours, theirs, pieces):
            return Pair(f"embedding.{ours}", theirs, features=1, pieces=pieces)

        if self.model.tying == "all":
            yield table("source", SHARED, self.target)
        else:
            yield table("source", SOURCE, self.source)
            yield table("target", TARGET, self.target)
        if self.model.tying == "none":
            yield table("output", OUTPUT, self.target)
        yield Pair("embedding.output_bias", BIAS, pieces=self.target)
        if self.model.positions == "learned":
            for side, stack in (("source", "encoder"), ("target", "decoder")):
                yield Pair(f"embedding.{side}_positions", POSITIONS.format(stack), features=1)

    def their_shapes(self) -> Shapes:
        """The arrays that their file must hold; the bias of the logits it may lack."""
        ours = shapes_of(self.model)
        pairs = [pair for pair in self.pairs() if pair.theirs != BIAS]
        return {pair.theirs: self._their_shape(pair, ours[pair.ours]) for pair in pairs}

    def _their_shape(self, pair: Pair, ours: tuple[int, ...]) -> tuple[int, ...]:
        if pair.pieces is not None:
            return (len(pair.pieces.names), *ours[1:])
        shape = ours if pair.layer is None else ours[1:]
        return _matrix(pair, shape)[::-1] if pair.is_linear else _matrix(pair, shape)


def _layer(stack: str, layer: int) -> Iterator[Pair]:
    def pair(ours, theirs, is_linear=False, features=None):
        theirs = f"model.{stack}.layers.{layer}.{theirs}"
        return Pair(f"{stack}.layers.{ours}", theirs, is_linear, features, layer)

    def norm(ours, theirs):
        yield pair(f"{ours}.scale", f"{theirs}.weight", features=0)
        yield pair(f"{ours}.bias", f"{theirs}.bias", features=0)

    def attention(ours, theirs):
        for letter in "qkv":
            projection = f"{theirs}.{letter}_proj"
            yield pair(f"{ours}.w_{letter}", f"{projection}.weight", is_linear=True, features=0)
            yield pair(f"{ours}.b_{letter}", f"{projection}.bias")
        yield pair(f"{ours}.w_o", f"{theirs}.out_proj.weight", is_linear=True, features=1)
        yield pair(f"{ours}.b_o", f"{theirs}.out_proj.bias", features=0)
        yield from norm(f"{ours}_norm", f"{theirs}_layer_norm")

    yield from attention("self_attention", "self_attn")
    if stack == "decoder":
        yield from attention("cross_attention", "encoder_attn")
    yield pair("feed_forward.w_1", "fc1.weight", is_linear=True, features=0)
    yield pair("feed_forward.b_1", "fc1.bias")
    yield pair("feed_forward.w_2", "fc2.weight", is_linear=True, features=1)
    yield pair("feed_forward.b_2", "fc2.bias", features=0)
    yield from norm("feed_forward_norm", "final_layer_norm")


def _matrix(pair: Pair, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Our shape with heads and their widths as one axis."""
    if len(shape) == 3:  # [D, H, K], or [H, K, D]
        heads = (shape[0], shape[1] * shape[2]), (shape[0] * shape[1], shape[2])
        return heads[pair.features]
    if pair.ours.endswith((".b_q", ".b_k", ".b_v")):
        return (shape[0] * shape[1],)
    return shape


def interleave(width: int) -> np.ndarray:
    """For each of our features theirs: sine, cosine, sine, ..."""
    return np.arange(width).reshape(2, -1).T.reshape(-1)


def to_ours(pair: Pair, theirs: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Their array as ours, of this shape."""
    array = theirs.T if pair.is_linear else theirs
    if pair.pieces is None:
        if pair.features is not None:
            array = np.take(array, interleave(array.shape[pair.features]), axis=pair.features)
        return array.reshape(shape)
    order = np.array(pair.pieces.order)
    rows = array[order] if array.ndim == 1 else array[np.ix_(order, interleave(array.shape[1]))]
    rows[order < 0] = OUT_OF_REACH if array.ndim == 1 else 0.0
    return rows


def to_theirs(pair: Pair, ours: np.ndarray) -> np.ndarray:
    """The inverse of `to_ours`."""
    array = ours.reshape(_matrix(pair, ours.shape))
    if pair.features is not None:
        width = array.shape[pair.features]
        array = np.take(array, np.argsort(interleave(width)), axis=pair.features)
    if pair.pieces is not None:
        order = np.array(pair.pieces.order)
        rows = np.zeros((len(pair.pieces.names), *array.shape[1:]), array.dtype)
        rows[order[order >= 0]] = array[order >= 0]
        return rows
    return np.ascontiguousarray(array.T if pair.is_linear else array)


def read_params(mapping: ParameterMapping, weights: Weights, file: Path) -> Params:
    """Their weights as our parameters, float32; only one of them is in memory twice at a time.

    Raises UserError for an array that is missing, unknown, of another shape, not finite, or another
    than the one with which config.json shares it.
    """
    _check_arrays(mapping, weights, file)
    _check_aliases(mapping, weights, file)
    parts: dict[str, list[Pair]] = {}
    for pair in mapping.pairs():
        parts.setdefault(pair.ours, []).append(pair)
    shapes, params = shapes_of(mapping.model), {}
    for name in sorted(parts, key=lambda name: -math.prod(shapes[name])):
        array = np.empty(shapes[name], np.float32)
        for pair in parts[name]:
            ours = array if pair.layer is None else array[pair.layer]
            theirs = as_float32(_read(mapping, weights, pair), pair.theirs, file)
            ours[...] = to_ours(pair, theirs, ours.shape)
        params[name] = jax.block_until_ready(jnp.asarray(array))
    return from_names(mapping.model, params)


def _read(mapping: ParameterMapping, weights: Weights, pair: Pair) -> np.ndarray:
    if pair.theirs != BIAS:
        return weights.read(name_in(mapping, weights, pair.theirs))
    if pair.theirs in weights.shapes:
        return weights.read(pair.theirs).reshape(-1)
    return np.zeros(len(mapping.target.names), np.float32)


def _check_arrays(mapping: ParameterMapping, weights: Weights, file: Path) -> None:
    expected = mapping.their_shapes()
    positions = [POSITIONS.format(stack) for stack in ("encoder", "decoder")]
    known = {*expected, BIAS, SHARED, SOURCE, TARGET, OUTPUT, *positions}
    if unknown := sorted(set(weights.shapes) - known):
        raise UserError(f"{file} contains {unknown[0]}, which a MarianMTModel does not have")
    named = {name_in(mapping, weights, name): shape for name, shape in expected.items()}
    if BIAS in weights.shapes:
        named[BIAS] = (1, len(mapping.target.names))
    check_shapes(weights.shapes, named, file)


def _check_aliases(mapping: ParameterMapping, weights: Weights, file: Path) -> None:
    """Raises UserError where tables that the config shares are not the same: transformers would
    not share them either."""
    aliases = {} if mapping.model.tying == "none" else ALIASES[mapping.model.tying]
    for table, others in aliases.items():
        held = [name for name in (table, *others) if name in weights.shapes]
        arrays = map(weights.read, held)
        first = next(arrays, None)
        for name, other in zip(held[1:], arrays):
            if not np.array_equal(first, other, equal_nan=True):
                raise UserError(
                    f"{file}: {name} differs from {held[0]}, but config.json shares them: set "
                    "tie_word_embeddings or share_encoder_decoder_embeddings to false there"
                )


def name_in(mapping: ParameterMapping, weights: Weights, name: str) -> str:
    """The name that the file has for a table of theirs; the first one where it has none."""
    names = (name, *ALIASES[mapping.model.tying].get(name, ()))
    return next((alias for alias in names if alias in weights.shapes), name)


def write_params(mapping: ParameterMapping, params: Params) -> dict[str, np.ndarray]:
    """Our parameters as their weights, by their names; biases that ours lacks are zeros."""
    ours, theirs = by_name(jax.tree.map(np.asarray, params)), {}
    for pair in mapping.pairs():
        array = ours.get(pair.ours)
        if array is not None:
            one = array if pair.layer is None else array[pair.layer]
            theirs[pair.theirs] = to_theirs(pair, one)
        elif pair.ours.endswith(ABSENT):
            size = len(mapping.target.names) if pair.pieces else mapping.model.d_model
            theirs[pair.theirs] = np.zeros(size, np.float32)
        else:
            raise ValueError(f"the model lacks {pair.ours}")
    theirs[BIAS] = theirs[BIAS][None]
    return theirs


def has_sinusoids(weights: Weights, stack: str, shape: tuple[int, int]) -> bool:
    """Whether their file holds sinusoids as positions, of this shape, or none."""
    name, width = POSITIONS.format(stack), shape[1]
    if name not in weights.shapes:
        return True
    if weights.shapes[name] != shape or width % 2:
        return False
    found = weights.read(name).astype(np.float32)
    rows = jnp.arange(len(found))
    ours = np.asarray(sinusoids(rows, width))[:, np.argsort(interleave(width))]
    return bool(np.abs(found - ours).max(initial=0) < 4e-3)  # 16 bits
