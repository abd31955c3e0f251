"""The decoder one token at a time, with the keys and values of earlier tokens kept in a cache."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array
from jaxtyping import Bool, Float, Int

from transformer.config import ModelConfig
from transformer.model.batch import PAD
from transformer.model.encoder_decoder import (
    Context,
    LayerCache,
    LayerMemory,
    Memory,
    context_of,
    decode,
    layer_memory,
    logits,
)
from transformer.model.layers import KeyValue, causal_mask, padding_mask
from transformer.model.params import Norm, Params, output_layer, unstack
from transformer.model.primitives import contract


def decoding_params(config: ModelConfig, params: Params) -> Params:
    """The parameters for a loop around `decode_step`.

    All but norms have the precision of matrix products, so that no weight is cast at every token.
    The decoder's layers are a tuple, so that none is copied out of a stack: at every token if the
    stack goes into the loop, at every sentence if it is unrolled before.
    """

    def is_norm(node):
        return isinstance(node, Norm)

    def cast(leaf):
        return leaf if is_norm(leaf) else leaf.astype(config.dtype)

    params = jax.tree.map(cast, params, is_leaf=is_norm)
    return params.replace(decoder=params.decoder.replace(layers=unstack(params.decoder)))


class OutputRows(struct.PyTreeNode):
    """Some rows of the output layer for each of B sentences: table [B, C, D] and bias [B, C]."""

    table: Array
    bias: Array


class DecodeCache(struct.PyTreeNode):
    """The decoder's state between tokens, for B sentences of W hypotheses each.

    Keys and values never move. When a beam search reorders its hypotheses, only `ancestry` does:
    it says for which of the W hypotheses the token of each earlier position was written. The cache
    is a ring buffer: after the last of L positions the first is overwritten, so that finished
    sentences can be replaced (`admit`).

    layers    a LayerCache for each layer, of L * W tokens (token t of hypothesis w is in row
              t % L * W + w), and of a memory of S tokens, computed once per sentence, or None
    ancestry  [B, W, L] int32
    begins    [B]  the position at which each sentence begins
    position  target tokens read so far
    output    the rows of the output layer that each sentence has logits of; None: of all
    """

    layers: tuple[LayerCache, ...]
    ancestry: Array
    begins: Array
    position: Array
    output: OutputRows | None = None


FIRST_CAPACITY = 16
"""Tokens that an empty cache without capacity grows to."""

FEW, LARGEST_OF_FEW = 4, 64
"""Sentences whose attention costs little, and the tokens that their cache holds at first at most:
each capacity is another program to compile."""


def initial_capacity(batch: int, length: int) -> int:
    """Tokens that the cache of a batch should hold at first, which has `length` source tokens: none
    where it should grow with its translations."""
    return min(length, LARGEST_OF_FEW) if batch <= FEW else 0


def init_cache(
    config: ModelConfig,
    params: Params,
    memory: Memory | None,
    batch: int,
    length: int,
    beam_size: int = 1,
) -> DecodeCache:
    """An empty cache for `length` target tokens of a batch, with the memory of each layer."""
    layers: Any = params.decoder.layers
    heads, width = config.num_heads, config.d_model // config.num_heads
    tokens, dtype = length * beam_size, _cache_dtype(config)
    empty = KeyValue(
        jnp.zeros((batch, heads, width, tokens), dtype),
        jnp.zeros((batch, heads, tokens, width), dtype),
    )
    return DecodeCache(
        layers=tuple(
            LayerCache(empty, _cached(config, layer_memory(layer, memory))) for layer in layers
        ),
        ancestry=jnp.zeros((batch, beam_size, length), jnp.int32),
        begins=jnp.zeros(batch, jnp.int32),
        position=jnp.int32(0),
    )


def with_output_rows(
    tokens: Int[Array, "B C"], config: ModelConfig, params: Params, cache: DecodeCache
) -> DecodeCache:
    """The cache of sentences that have logits of these tokens alone; those of PAD after another
    token are -inf."""
    output = output_layer(params)
    table = output.table[tokens].astype(_cache_dtype(config))
    is_unused = (tokens == PAD) & (tokens[:, :1] != PAD)
    bias = 0 if output.bias is None else output.bias[tokens]
    return cache.replace(output=OutputRows(table, jnp.where(is_unused, -jnp.inf, bias)))


def _cache_dtype(config: ModelConfig) -> str:
    """float32 on a CPU, whatever the precision of the model: 16-bit caches would be converted to 32
    bits and back at every token, which costs more than they save."""
    return "float32" if jax.default_backend() == "cpu" else config.dtype


def _cached(config: ModelConfig, memory: LayerMemory | None) -> LayerMemory | None:
    if memory is None:
        return None
    kv = jax.tree.map(lambda array: array.astype(_cache_dtype(config)), memory.kv)
    return memory.replace(kv=kv)


def prefill(
    config: ModelConfig, params: Params, cache: DecodeCache, prompts: Int[Array, "B P"]
) -> DecodeCache:
    """Reads prompts of P tokens at once into an empty cache, where all hypotheses share them.

    Prompts are padded on the left, so that all end at the same position.
    """
    length, beam = prompts.shape[1], cache.ancestry.shape[1]
    begins = (prompts == PAD).sum(-1)
    context = context_of(causal_mask(length) & padding_mask(prompts))
    positions = jnp.maximum(context.positions - begins[:, None], 0)
    context = context.replace(positions=positions, layers=cache.layers)
    _, read, _ = decode(config, params, None, prompts, context)
    layers = tuple(
        layer.replace(kv=_first_hypothesis(layer.kv, kv, beam))
        for layer, kv in zip(cache.layers, read)
    )
    return cache.replace(layers=layers, begins=begins, position=jnp.int32(length))


def _first_hypothesis(kept: KeyValue, kv: KeyValue, beam: int) -> KeyValue:
    """The cache with the tokens of `kv` as those of the first hypothesis, at positions 0, 1, ..."""
    rows = slice(0, kv.k.shape[3] * beam, beam)
    return KeyValue(
        kept.k.at[:, :, :, rows].set(kv.k.astype(kept.k.dtype)),
        kept.v.at[:, :, rows].set(kv.v.astype(kept.v.dtype)),
    )


def decode_step(
    config: ModelConfig, params: Params, cache: DecodeCache, tokens: Int[Array, "R"]
) -> tuple[Float[Array, "R V"], DecodeCache]:
    """Reads one token per hypothesis; returns the logits for the next one, and the updated cache.

    R = B * W. To the layers, the W hypotheses of a sentence are W positions of one sentence; the
    mask restricts each to its own ancestors.
    """
    batch, beam, length = cache.ancestry.shape
    own = jnp.broadcast_to(jnp.arange(beam)[:, None], (batch, beam, 1))
    written = cache.position % length
    ancestry = jax.lax.dynamic_update_slice(cache.ancestry, own, (0, 0, written))
    ages = (written - jnp.arange(length)) % length
    positions = (cache.position - cache.begins)[:, None]
    mask = ancestry_mask(ancestry, ages, positions)
    offsets = -jnp.repeat(ages, beam)[None, None]

    context = Context(positions, mask, offsets, cache.layers, written * beam)
    x, read, _ = decode(config, params, None, tokens.reshape(batch, beam), context)
    layers = tuple(layer.replace(kv=kv) for layer, kv in zip(cache.layers, read))
    cache = cache.replace(layers=layers, ancestry=ancestry, position=cache.position + 1)
    return _next_logits(params, cache.output, x).reshape(batch * beam, -1), cache


def _next_logits(
    params: Params, rows: OutputRows | None, x: Float[Array, "B W D"]
) -> Float[Array, "B W V"]:
    if rows is None:
        return logits(output_layer(params), x)
    # On CPUs, a product with the larger factor on the left takes a fourth of the time; the barrier
    # prevents XLA from exchanging the factors.
    scores = jax.lax.optimization_barrier(contract("bcd,bwd->bcw", rows.table, x)).swapaxes(1, 2)
    return scores + rows.bias[:, None]


def ancestry_mask(
    ancestry: Int[Array, "B W L"], ages: Int[Array, "L"], positions: Int[Array, "B 1"]
) -> Bool[Array, "B 1 W LW"]:
    """True where a hypothesis attends to its own token or an ancestor's.

    `ages`: how many tokens ago each slot was written; `positions`: how many tokens each sentence
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
def required_capacity(
    position: Int[Array, ""], begins: Int[Array, "B"], done: Bool[Array, "B"]
) -> Int[Array, ""]:
    """The capacity, in tokens, with which the next token overwrites none of an unfinished sentence.

    It reads only `position` and `begins` of the cache, so that it is compiled once for all
    capacities.
    """
    return jnp.where(done, 1, position - begins + 1).max()


def grow(cache: DecodeCache) -> DecodeCache:
    """The same cache with twice the capacity, or FIRST_CAPACITY tokens if it had none.

    Growing concatenates the ring with itself; the stale copy of a token, the one that is not in
    slot t % L, is masked by its age until it is overwritten.
    """
    _, beam, length = cache.ancestry.shape

    def longer(array, axis, first):
        if length == 0:
            return jnp.pad(array, [(0, first if a == axis else 0) for a in range(array.ndim)])
        return jnp.concatenate([array, array], axis)

    def longer_kv(kv):
        first = FIRST_CAPACITY * beam
        return KeyValue(longer(kv.k, 3, first), longer(kv.v, 2, first))

    return cache.replace(
        layers=tuple(layer.replace(kv=longer_kv(layer.kv)) for layer in cache.layers),
        ancestry=longer(cache.ancestry, 2, FIRST_CAPACITY),
    )


def shrink(cache: DecodeCache) -> DecodeCache:
    """The same cache with half the capacity: the latest tokens stay, each in slot t % L."""
    beam, length = cache.ancestry.shape[1], cache.ancestry.shape[2] // 2
    latest = cache.position - 1 - (cache.position - 1 - jnp.arange(length)) % length
    in_first = latest % (2 * length) < length

    def shorter(array, axis, in_first):
        first, second = jnp.split(array, 2, axis)
        shape = [-1 if a == axis else 1 for a in range(array.ndim)]
        return jnp.where(in_first.reshape(shape), first, second)

    def shorter_kv(kv):
        rows = jnp.repeat(in_first, beam)
        return KeyValue(shorter(kv.k, 3, rows), shorter(kv.v, 2, rows))

    return cache.replace(
        layers=tuple(layer.replace(kv=shorter_kv(layer.kv)) for layer in cache.layers),
        ancestry=shorter(cache.ancestry, 2, in_first),
    )


def admit(
    cache: DecodeCache, slot: Int[Array, ""], pending: DecodeCache, row: Int[Array, ""]
) -> DecodeCache:
    """The cache with the pending sentence in `row` of another one in `slot`, where it begins with
    the next token. The mask hides what its predecessor left there, if that is finite."""

    def put(own, other):
        one = jax.lax.dynamic_index_in_dim(other, row)
        return jax.lax.dynamic_update_index_in_dim(own, one, slot, 0)

    def admitted(layer, other):
        return layer.replace(memory=jax.tree.map(put, layer.memory, other.memory))

    return cache.replace(
        layers=tuple(map(admitted, cache.layers, pending.layers)),
        begins=cache.begins.at[slot].set(cache.position),
        output=jax.tree.map(put, cache.output, pending.output),
    )
