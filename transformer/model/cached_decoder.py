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
    it says in which of the W places the token of each earlier position was written. After the last
    of L positions the first is written over, so that sentences can come and go (`seated`).

    self_kv   a KeyValue of L * W tokens for each layer; token t of place w is in row t % L * W + w
    memory    a LayerMemory of S tokens for each layer, computed once a sentence, or None
    ancestry  [B, W, L] int32
    begins    [B], at which position each sentence begins
    position  how many target tokens have been read
    """

    self_kv: tuple[KeyValue, ...]
    memory: tuple[LayerMemory | None, ...]
    ancestry: Array
    begins: Array
    position: Array


FIRST_LENGTH = 16
"""Tokens that a cache without room gets room for at first."""


def init_cache(
    config: ModelConfig,
    params: DecodingParams,
    memory: Memory | None,
    batch: int,
    length: int,
    beam_size: int = 1,
) -> DecodeCache:
    """An empty cache for `length` target tokens of a batch, with the memory of each layer."""
    heads, width = config.num_heads, config.d_model // config.num_heads
    tokens, dtype = length * beam_size, _cache_dtype(config)
    empty = KeyValue(
        jnp.zeros((batch, heads, width, tokens), dtype),
        jnp.zeros((batch, heads, tokens, width), dtype),
    )
    return DecodeCache(
        self_kv=tuple(empty for _ in params.layers),
        memory=tuple(_cached(config, layer_memory(layer, memory)) for layer in params.layers),
        ancestry=jnp.zeros((batch, beam_size, length), jnp.int32),
        begins=jnp.zeros(batch, jnp.int32),
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
    written = cache.position % length
    ancestry = jax.lax.dynamic_update_slice(cache.ancestry, own_place, (0, 0, written))
    ages = (written - jnp.arange(length)) % length
    positions = (cache.position - cache.begins)[:, None]
    mask = ancestry_mask(ancestry, ages, positions)
    offsets = -jnp.repeat(ages, beam)[None, None]

    embedding = params.params.embedding
    x = embed_target(config, embedding, tokens.reshape(batch, beam), positions)
    self_kv = []
    for layer, kv, memory in zip(params.layers, cache.self_kv, cache.memory):
        past = Past(kv, written * beam)
        x, kv, _ = run_layer(config, layer, x, mask, offsets, memory=memory, past=past)
        self_kv.append(kv)
    x = final_norm(config, params.norm, x)
    cache = cache.replace(self_kv=tuple(self_kv), ancestry=ancestry, position=cache.position + 1)
    return logits(output_layer(params.params), x).reshape(batch * beam, -1), cache


def ancestry_mask(
    ancestry: Int[Array, "B W L"], ages: Int[Array, "L"], positions: Int[Array, "B 1"]
) -> Bool[Array, "B 1 W LW"]:
    """True where a hypothesis looks at its own token or an ancestor's.

    `ages`: how many tokens ago each place was written; `positions`: how many each sentence has
    had before.
    """
    batch, beam, length = ancestry.shape
    own = ages <= positions[..., None]
    own = own[..., None] & (ancestry[..., None] == jnp.arange(beam))
    return own.reshape(batch, 1, beam, length * beam)


def reorder(cache: DecodeCache, rows: Int[Array, "R"]) -> DecodeCache:
    """The hypotheses in a new order; `rows` stay within their sentence."""
    shape = cache.ancestry.shape
    return cache.replace(ancestry=cache.ancestry.reshape(-1, shape[-1])[rows].reshape(shape))


@jax.jit
def places_needed(
    position: Int[Array, ""], begins: Int[Array, "B"], done: Bool[Array, "B"]
) -> Int[Array, ""]:
    """For how many tokens a cache must have room, so that the next one of each sentence is written
    over none of a sentence that is not done.

    Of the cache it is given `position` and `begins` alone: else it would be compiled for each
    length.
    """
    return jnp.where(done, 1, position - begins + 1).max()


def lengthened(cache: DecodeCache) -> DecodeCache:
    """The same cache with twice the room, or with room for FIRST_LENGTH tokens if it had none.

    Each token is there twice then, once in place t % L. The other one counts as older than its
    sentence, so that it is never seen before it is written over.
    """
    _, beam, length = cache.ancestry.shape

    def longer(array, axis, first):
        if length == 0:
            return jnp.pad(array, [(0, first if a == axis else 0) for a in range(array.ndim)])
        return jnp.concatenate([array, array], axis)

    first = FIRST_LENGTH * beam
    return cache.replace(
        self_kv=tuple(
            KeyValue(longer(kv.k, 3, first), longer(kv.v, 2, first)) for kv in cache.self_kv
        ),
        ancestry=longer(cache.ancestry, 2, FIRST_LENGTH),
    )


def halved(cache: DecodeCache) -> DecodeCache:
    """The same cache with half the room: the latest tokens stay, each in place t % L."""
    beam, length = cache.ancestry.shape[1], cache.ancestry.shape[2] // 2
    latest = cache.position - 1 - (cache.position - 1 - jnp.arange(length)) % length
    in_first = latest % (2 * length) < length

    def shorter(array, axis, in_first):
        first, second = jnp.split(array, 2, axis)
        shape = [-1 if a == axis else 1 for a in range(array.ndim)]
        return jnp.where(in_first.reshape(shape), first, second)

    rows = jnp.repeat(in_first, beam)
    return cache.replace(
        self_kv=tuple(
            KeyValue(shorter(kv.k, 3, rows), shorter(kv.v, 2, rows)) for kv in cache.self_kv
        ),
        ancestry=shorter(cache.ancestry, 2, in_first),
    )


def seated(
    cache: DecodeCache, place: Int[Array, ""], waiting: DecodeCache, row: Int[Array, ""]
) -> DecodeCache:
    """The cache with the sentence in `row` of another in `place`, where it begins with the next
    token. The mask hides what its predecessor left there, if that is finite."""

    def put(own, other):
        one = jax.lax.dynamic_index_in_dim(other, row)
        return jax.lax.dynamic_update_index_in_dim(own, one, place, 0)

    return cache.replace(
        memory=jax.tree.map(put, cache.memory, waiting.memory),
        begins=cache.begins.at[place].set(cache.position),
    )
