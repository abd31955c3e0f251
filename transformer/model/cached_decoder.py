"""The decoder one token at a time, with the keys and values of earlier tokens kept in a cache."""

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array
from jaxtyping import Bool, Float, Int

from transformer.config import ModelConfig
from transformer.model.batch import PAD
from transformer.model.encoder_decoder import (
    LayerMemory,
    Memory,
    Past,
    embed_target,
    final_norm,
    layer_memory,
    logits,
    offsets_between,
    run_layer,
)
from transformer.model.layers import KeyValue, causal_mask, padding_mask
from transformer.model.params import Layer, Norm, Params, output_layer, unstack


@struct.dataclass
class DecodingParams:
    """Parameters for a loop around `decode_step`.

    params  embedding and encoder, in the precision of the matrix products (but for norms): else
            each weight would be cast at every token
    layers  the decoder's layers one by one: else each would be copied out of its stack, at every
            token if the stack goes into the loop, at every sentence if it is unrolled before
    norm    the decoder's norm after its layers, or None
    """

    params: Params
    layers: tuple[Layer, ...]
    norm: Norm | None


def decoding_params(config: ModelConfig, params: Params) -> DecodingParams:
    """The parameters as decoding wants them."""

    def is_norm(node):
        return isinstance(node, Norm)

    def cast(leaf):
        return leaf if is_norm(leaf) else leaf.astype(config.dtype)

    params = jax.tree.map(cast, params, is_leaf=is_norm)
    decoder = params.decoder
    return DecodingParams(params.replace(decoder=None), unstack(decoder), decoder.norm)


@struct.dataclass
class DecodeCache:
    """The decoder's state between tokens, for B sentences of W hypotheses each.

    Keys and values never move. When a beam search reorders its hypotheses, only `ancestry` does:
    it says in which of the W places the token of each earlier position was written.

    self_kv   a KeyValue of L * W tokens for each layer; token t of place w is in row t * W + w
    memory    a LayerMemory of S tokens for each layer, computed once a sentence, or None
    ancestry  [B, W, L] int32
    begins    [B], at which position each sentence begins, or None where all begin at 0
    position  how many target tokens have been read
    """

    self_kv: tuple[KeyValue, ...]
    memory: tuple[LayerMemory | None, ...]
    ancestry: Array
    begins: Array | None
    position: Array


def init_cache(
    config: ModelConfig,
    params: DecodingParams,
    memory: Memory | None,
    batch: int,
    max_length: int,
    beam_size: int = 1,
) -> DecodeCache:
    """An empty cache for `max_length` target tokens of a batch, with the memory of each layer."""
    heads, width = config.num_heads, config.d_model // config.num_heads
    tokens, dtype = max_length * beam_size, _cache_dtype(config)
    empty = KeyValue(
        jnp.zeros((batch, heads, width, tokens), dtype),
        jnp.zeros((batch, heads, tokens, width), dtype),
    )
    return DecodeCache(
        self_kv=tuple(empty for _ in params.layers),
        memory=tuple(_cached(config, layer_memory(layer, memory)) for layer in params.layers),
        ancestry=jnp.zeros((batch, beam_size, max_length), jnp.int32),
        begins=None,
        position=jnp.int32(0),
    )


def _cache_dtype(config: ModelConfig) -> str:
    """float32 on a CPU whatever the precision of the model: 16-bit caches would be converted to 32
    bits and back at every token, which takes longer than all that they save."""
    return "float32" if jax.default_backend() == "cpu" else config.dtype


def _cached(config: ModelConfig, memory: LayerMemory | None) -> LayerMemory | None:
    if memory is None:
        return None
    kv = jax.tree.map(lambda array: array.astype(_cache_dtype(config)), memory.kv)
    return memory.replace(kv=kv)


def prefill(
    config: ModelConfig, params: DecodingParams, cache: DecodeCache, prompts: Int[Array, "B P"]
) -> DecodeCache:
    """Reads prompts of P tokens at once into an empty cache, where all hypotheses share them.

    Padding stands on the left, so that all prompts end together.
    """
    length, beam = prompts.shape[1], cache.ancestry.shape[1]
    begins = (prompts == PAD).sum(-1)
    places = jnp.arange(length)[None]
    positions, offsets = places - begins[:, None], offsets_between(places, places)
    mask = causal_mask(length) & padding_mask(prompts)
    x = embed_target(config, params.params.embedding, prompts, jnp.maximum(positions, 0))
    self_kv = []
    for layer, memory, kept in zip(params.layers, cache.memory, cache.self_kv):
        x, kv, _ = run_layer(config, layer, x, mask, offsets, memory=memory)
        self_kv.append(_first_place(kept, kv, beam))
    return cache.replace(self_kv=tuple(self_kv), begins=begins, position=jnp.int32(length))


def _first_place(kept: KeyValue, kv: KeyValue, beam: int) -> KeyValue:
    """The cache with the tokens of `kv` in the first of `beam` places of positions 0, 1, ..."""
    rows = slice(0, kv.k.shape[3] * beam, beam)
    return KeyValue(
        kept.k.at[:, :, :, rows].set(kv.k.astype(kept.k.dtype)),
        kept.v.at[:, :, rows].set(kv.v.astype(kept.v.dtype)),
    )


def decode_step(
    config: ModelConfig, params: DecodingParams, cache: DecodeCache, tokens: Int[Array, "R"]
) -> tuple[Float[Array, "R V"], DecodeCache]:
    """Reads one token a hypothesis; returns the logits for the next one, and the cache with it.

    R = B * W. To the layers, the W hypotheses of a sentence are W positions that read its memory
    together; the mask keeps each to its own past.
    """
    batch, beam, length = cache.ancestry.shape
    own_place = jnp.broadcast_to(jnp.arange(beam)[:, None], (batch, beam, 1))
    start = (0, 0, cache.position)
    ancestry = jax.lax.dynamic_update_slice(cache.ancestry, own_place, start)
    mask = ancestry_mask(ancestry, cache.begins, cache.position)
    here = cache.position[None, None]
    offsets = offsets_between(here, jnp.repeat(jnp.arange(length), beam)[None])
    positions = here if cache.begins is None else here - cache.begins[:, None]

    embedding = params.params.embedding
    x = embed_target(config, embedding, tokens.reshape(batch, beam), positions)
    self_kv = []
    for layer, kv, memory in zip(params.layers, cache.self_kv, cache.memory):
        past = Past(kv, cache.position * beam)
        x, kv, _ = run_layer(config, layer, x, mask, offsets, memory=memory, past=past)
        self_kv.append(kv)
    x = final_norm(config, params.norm, x)
    cache = cache.replace(self_kv=tuple(self_kv), ancestry=ancestry, position=cache.position + 1)
    return logits(output_layer(params.params), x).reshape(batch * beam, -1), cache


def ancestry_mask(
    ancestry: Int[Array, "B W L"], begins: Int[Array, "B"] | None, position: Int[Array, ""]
) -> Bool[Array, "B 1 W LW"]:
    """True where a hypothesis looks at its own token or an ancestor's: rows t * W + w."""
    batch, beam, length = ancestry.shape
    places = jnp.arange(length)
    filled = places <= position
    if begins is not None:
        filled = filled & (places >= begins[:, None, None])
    own = (ancestry[..., None] == jnp.arange(beam)) & filled[..., None]
    return own.reshape(batch, 1, beam, length * beam)


def reorder(cache: DecodeCache, rows: Int[Array, "R"]) -> DecodeCache:
    """The hypotheses in a new order; `rows` stay within their sentence."""
    shape = cache.ancestry.shape
    return cache.replace(ancestry=cache.ancestry.reshape(-1, shape[-1])[rows].reshape(shape))


def lengthened(cache: DecodeCache, max_length: int) -> DecodeCache:
    """The same cache with room for `max_length` tokens in all."""
    _, beam, length = cache.ancestry.shape
    more = max_length - length

    def longer(array, axis, rows):
        return jnp.pad(array, [(0, rows if a == axis else 0) for a in range(array.ndim)])

    return cache.replace(
        self_kv=tuple(
            KeyValue(longer(kv.k, 3, more * beam), longer(kv.v, 2, more * beam))
            for kv in cache.self_kv
        ),
        ancestry=longer(cache.ancestry, 2, more),
    )
