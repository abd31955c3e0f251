"""Attention maps: who looks at whom, in every layer and head, with the pieces of text beside."""

from functools import partial
from typing import NamedTuple

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
"""How BOS and EOS are shown."""


class AttentionMap(NamedTuple):
    """The weights [N, H, T, S] of all layers and heads, each row a distribution over the columns.

    kind     "encoder", "masked" or "cross"
    rows     the pieces that look, T; in cross-attention the ones about to be written
    columns  the pieces that are looked at, S
    """

    kind: str
    weights: Float[np.ndarray, "N H T S"]
    rows: tuple[str, ...]
    columns: tuple[str, ...]


def attention_maps(
    config: ModelConfig, params: Params, tokenizers: Tokenizers, source: str = "", target: str = ""
) -> list[AttentionMap]:
    """The maps of one sentence pair: of the encoder, then masked, then cross, as far as the model
    has them.

    A language model reads `target` alone, an encoder `source` alone.
    """
    [read], [written] = tokenizers.source.encode([source]), [[]]
    if params.decoder is not None:
        [written] = tokenizers.target.encode([target])
    source_ids = pad_sources([read], rows=1, length=len(read) + 1)
    target_in = np.array([[BOS, *written]], np.int32)
    own, masked, cross = _weights(config, params, source_ids, target_in)
    columns = (*tokenizers.source.pieces(read), END)
    maps = [] if own is None else [AttentionMap("encoder", _shown(own), columns, columns)]
    if params.decoder is not None:
        pieces = tuple(tokenizers.target.pieces(written))
        seen = (BEGIN, *pieces)
        maps.append(AttentionMap("masked", _shown(masked), seen, seen))
        if cross is not None:
            maps.append(AttentionMap("cross", _shown(cross), (*pieces, END), columns))
    return maps


@partial(jax.jit, static_argnums=0)
def _weights(config, params, source, target_in):
    """Of encoder, masked and cross attention, None where there is none."""
    memory = own = masked = cross = None
    if params.encoder is not None:
        memory, encoder = run_encoder(config, params, source)
        own = encoder.own
    if params.decoder is not None:
        _, _, decoder = decode(config, params, memory, target_in)
        masked, cross = decoder.own, decoder.cross
    return own, masked, cross


def _shown(weights: jax.Array) -> Float[np.ndarray, "N H T S"]:
    """Of the only sentence."""
    return np.asarray(weights[:, 0], np.float32)
