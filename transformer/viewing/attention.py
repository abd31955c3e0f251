"""Attention maps: the weights of every layer and head, with the pieces of text beside them."""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from transformer.config import ModelConfig
from transformer.data.batching import pad_sources
from transformer.data.vocabularies import Tokenizers
from transformer.model.batch import BOS
from transformer.model.encoder_decoder import decode, run_encoder
from transformer.model.params import Params

BEGIN, END = "<begin>", "<end>"
"""How BOS and EOS are displayed."""


class AttentionMap(NamedTuple):
    """The weights [N, H, T, S] of all layers and heads, each row a distribution over the columns.

    kind     "encoder", "masked" or "cross"
    rows     the pieces of the queries, T; in cross-attention the ones about to be predicted
    columns  the pieces of the keys, S
    """

    kind: str
    weights: Float[np.ndarray, "N H T S"]
    rows: tuple[str, ...]
    columns: tuple[str, ...]


def attention_maps(
    config: ModelConfig, params: Params, tokenizers: Tokenizers, source: str = "", target: str = ""
) -> list[AttentionMap]:
    """The maps of one sentence pair that the model has, in the order encoder, masked, cross.

    A language model reads `target` only, an encoder `source` only.
    """
    [source_ids] = tokenizers.source.encode([source])
    [target_ids] = tokenizers.target.encode([target]) if params.decoder is not None else [[]]
    source_in = pad_sources([source_ids], rows=1, length=len(source_ids) + 1)
    weights = _weights(config, params, source_in, np.array([[BOS, *target_ids]], np.int32))
    sources = (*tokenizers.source.pieces(source_ids), END)
    targets = tuple(tokenizers.target.pieces(target_ids)) if target_ids else ()
    pieces = {
        "encoder": (sources, sources),
        "masked": ((BEGIN, *targets), (BEGIN, *targets)),
        "cross": ((*targets, END), sources),
    }
    return [
        AttentionMap(kind, np.asarray(weights[kind][:, 0], np.float32), *pieces[kind])
        for kind in pieces
        if weights.get(kind) is not None
    ]


def maps_with_lists(maps: Sequence[AttentionMap]) -> list[dict[str, Any]]:
    """The maps as JSON has them, weights rounded to a thousandth."""
    return [one._asdict() | {"weights": one.weights.round(3).tolist()} for one in maps]


@partial(jax.jit, static_argnums=0)
def _weights(config, params, source, target_in):
    """The weights of each kind of attention, None if the model does not have it."""
    weights: dict[str, jax.Array | None] = {}
    memory = None
    if params.encoder is not None:
        memory, encoder = run_encoder(config, params, source)
        weights = {"encoder": encoder.own}
    if params.decoder is not None:
        _, _, decoder = decode(config, params, memory, target_in)
        weights |= {"masked": decoder.own, "cross": decoder.cross}
    return weights
