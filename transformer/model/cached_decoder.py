"""The decoder one token at a time, with the keys and values of earlier tokens kept in a cache."""

from operator import itemgetter

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array
from jaxtyping import Bool, Float, Int

from transformer.config import ModelConfig
from transformer.model.encoder_decoder import (
    Memory,
    Past,
    decoder_layer,
    embed_target,
    final_norm,
    logits,
)
from transformer.model.layers import KeyValue, key_value
from transformer.model.params import DecoderLayer, Norm, Params, Stack


@struct.dataclass
class DecodeCache:
    """The decoder's state between tokens, for B sentences of W hypotheses each.

    Keys and values never move. When a beam search reorders its hypotheses, only `ancestry` does:
    it says in which of the W places the token of each earlier position was written.

    self_kv      a KeyValue of L * W tokens for each layer; token t of place w is t * W + w
    cross_kv     a KeyValue of S tokens for each layer, computed once a sentence
    memory_mask  [B, 1, 1, S]
    ancestry     [B, W, L] int32
    position     how many target tokens have been read
    """

    self_kv: tuple[KeyValue, ...]
    cross_kv: tuple[KeyValue, ...]
    memory_mask: Array
    ancestry: Array
    position: Array


def init_cache(
    config: ModelConfig, params: Params, memory: Memory, max_length: int, beam_size: int = 1
) -> DecodeCache:
    """An empty cache for `max_length` target tokens, with the cross-attention keys and values."""
    cross_kv = tuple(
        as_cached(key_value(layer.cross_attention, memory.states))
        for layer in unstack(params.decoder)
    )
    batch, heads, width, _ = cross_kv[0].k.shape
    tokens, dtype = max_length * beam_size, cross_kv[0].k.dtype
    empty = KeyValue(
        jnp.zeros((batch, heads, width, tokens), dtype),
        jnp.zeros((batch, heads, tokens, width), dtype),
    )
    return DecodeCache(
        self_kv=tuple(empty for _ in cross_kv),
        cross_kv=cross_kv,
        memory_mask=memory.mask,
        ancestry=jnp.zeros((batch, beam_size, max_length), jnp.int32),
        position=jnp.int32(0),
    )


def as_cached(kv: KeyValue) -> KeyValue:
    """On a CPU in float32 whatever the precision of the model: 16-bit caches would be converted to
    32 bits and back at every token, which takes longer than all that they save."""
    if jax.default_backend() != "cpu":
        return kv
    return jax.tree.map(lambda array: array.astype(jnp.float32), kv)


def decode_step(
    config: ModelConfig, params: Params, cache: DecodeCache, tokens: Int[Array, "R"]
) -> tuple[Float[Array, "R V"], DecodeCache]:
    """Reads one token a hypothesis; returns the logits for the next one, and the cache with it.

    R = B * W. To the layers, the W hypotheses of a sentence are W positions that read its memory
    together; the mask keeps each to its own past.
    """
    batch, beam, _ = cache.ancestry.shape
    tokens, positions = tokens.reshape(batch, beam), cache.position[None, None]
    own_place = jnp.broadcast_to(jnp.arange(beam)[:, None], (batch, beam, 1))
    start = (0, 0, cache.position)
    ancestry = jax.lax.dynamic_update_slice(cache.ancestry, own_place, start)
    mask = ancestry_mask(ancestry, cache.position)

    x = embed_target(config, params.embedding, tokens, positions)
    self_kv = []
    for layer, kv, cross_kv in zip(unstack(params.decoder), cache.self_kv, cache.cross_kv):
        past = Past(kv, cache.position * beam)
        x, kv, _ = decoder_layer(config, layer, x, cross_kv, mask, cache.memory_mask, None, past)
        self_kv.append(kv)
    x = final_norm(config, params.decoder, x)
    cache = cache.replace(self_kv=tuple(self_kv), ancestry=ancestry, position=cache.position + 1)
    return logits(params.embedding, x).reshape(batch * beam, -1), cache


def ancestry_mask(
    ancestry: Int[Array, "B W L"], position: Int[Array, ""]
) -> Bool[Array, "B 1 W LW"]:
    """True where a hypothesis looks at its own token or an ancestor's: rows t * W + w."""
    batch, beam, length = ancestry.shape
    filled = jnp.arange(length) <= position
    own = (ancestry[..., None] == jnp.arange(beam)) & filled[:, None]
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


def cast(config: ModelConfig, params: Params) -> Params:
    """The parameters in the precision of the matrix products; norms stay as they are.

    For a loop around `decode_step`, which would else cast each weight at every token.
    """

    def is_norm(node):
        return isinstance(node, Norm)

    def cast_leaf(leaf):
        return leaf if is_norm(leaf) else leaf.astype(config.dtype)

    return jax.tree.map(cast_leaf, params, is_leaf=is_norm)


def unrolled(params: Params) -> Params:
    """The same parameters with the decoder's layers one by one.

    For a loop around `decode_step`, which would else copy each layer out of its stack: at every
    token if the stack goes into the loop, at every sentence if it is unrolled before.
    """
    return params.replace(decoder=params.decoder.replace(layers=unstack(params.decoder)))


def unstack(stack: Stack) -> tuple[DecoderLayer, ...]:
    """The layers of a stack one by one."""
    if isinstance(stack.layers, tuple):
        return stack.layers
    count = jax.tree.leaves(stack.layers)[0].shape[0]
    return tuple(jax.tree.map(itemgetter(n), stack.layers) for n in range(count))
