"""Figure 1: the encoder and the decoder, together or alone."""

from functools import partial

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array
from jaxtyping import Bool, Float, Int, Key

from transformer.config import ModelConfig
from transformer.model.batch import PAD, Batch
from transformer.model.layers import (
    KeyValue,
    causal_mask,
    embed,
    feed_forward,
    key_value,
    layer_norm,
    multi_head_attention,
    padding_mask,
    position_encoding,
    residual,
    split,
)
from transformer.model.params import (
    Embedding,
    Layer,
    Norm,
    OutputLayer,
    Params,
    Stack,
    output_layer,
    tables,
)
from transformer.model.primitives import contract

POSITIONS = 2048
"""Target positions whose logits exist at a time in `token_log_probs`, but at least one of each
sentence."""


class Memory(struct.PyTreeNode):
    """What the encoder hands to the decoder.

    states  [B, S, D]     the source, encoded
    mask    [B, 1, 1, S]  true at source tokens, false at padding
    lengths [B]           source tokens, EOS included
    """

    states: Array
    mask: Array
    lengths: Array


class LayerMemory(struct.PyTreeNode):
    """What the cross-attention of one layer reads: keys and values of the memory, and its mask."""

    kv: KeyValue
    mask: Array


class AttentionWeights(struct.PyTreeNode):
    """The weights of a layer, or with a leading axis N those of all layers.

    own    [B, H, T, L]  self-attention
    cross  [B, H, T, S]  cross-attention, or None
    """

    own: Array
    cross: Array | None


class LayerCache(struct.PyTreeNode):
    """What a layer of the decoder keeps between tokens: the keys and values of earlier tokens, and
    what its cross-attention reads, or None."""

    kv: KeyValue
    memory: LayerMemory | None


class Context(struct.PyTreeNode):
    """Positions of the tokens that a stack reads, and what self-attention may attend to.

    positions [#B, T]
    mask      [#B, 1, #T, L]  true where a token may attend to a key
    offsets   [#B, #T, L]     how far each key is behind (negative) or ahead of each token
    layers    the cache of each layer, or None
    row       where in these caches the keys and values of the tokens are written; the tokens attend
              to all that is cached. None: they attend to each other alone
    cached    within one layer, its cached keys and values if there is a row
    """

    positions: Array
    mask: Array
    offsets: Array
    layers: tuple[LayerCache, ...] | None = None
    row: Array | None = None
    cached: KeyValue | None = None


def predict(
    config: ModelConfig, params: Params, batch: Batch, key: Key[Array, ""] | None = None
) -> Float[Array, "B T V"]:
    """Logits at every position of `batch.target_out`, float32."""
    return logits(output_layer(params), output_states(config, params, batch, key))


def token_log_probs(
    config: ModelConfig, params: Params, batch: Batch, temperature: float | Array = 1.0
) -> tuple[Float[Array, "B T"], Bool[Array, "B T"]]:
    """The log-probability of each token of `batch.target_out`, and whether none is likelier. Logits
    are divided by `temperature`. Values at PAD mean nothing. Logits of all positions never exist
    together."""
    x, output = output_states(config, params, batch), output_layer(params)

    def at_position(column):
        x, tokens = column
        scores = logits(output, x[:, None])[:, 0] / temperature
        chosen = jnp.take_along_axis(scores, tokens[:, None], 1)[:, 0]
        return chosen - jax.nn.logsumexp(scores, -1), chosen == scores.max(-1)

    columns, at_once = (x.swapaxes(0, 1), batch.target_out.T), max(1, POSITIONS // len(x))
    log_probs, is_likeliest = jax.lax.map(at_position, columns, batch_size=at_once)
    return log_probs.T, is_likeliest.T


def output_states(
    config: ModelConfig, params: Params, batch: Batch, key: Key[Array, ""] | None = None
) -> Float[Array, "B T D"]:
    """The input of the output layer, at every position of `batch.target_out`.

    The parameters determine what is read: the source if there is an encoder, `target_in` if there
    is a decoder. An encoder alone predicts its own tokens, or a class at the only position.
    """
    encoder_key, decoder_key = split(key, 2)
    memory = None if params.encoder is None else encode(config, params, batch.source, encoder_key)
    if params.classifier is not None:
        return mean_state(memory)
    if params.decoder is None:
        return memory.states
    return decode(config, params, memory, batch.target_in, key=decoder_key)[0]


def encode(
    config: ModelConfig,
    params: Params,
    source: Int[Array, "B S"],
    key: Key[Array, ""] | None = None,
) -> Memory:
    """The encoder stack over a batch of source tokens (section 3.1)."""
    return run_encoder(config, params, source, key)[0]


def run_encoder(
    config: ModelConfig, params: Params, source: Int[Array, "B S"], key=None
) -> tuple[Memory, AttentionWeights]:
    """The encoder stack: its memory, and the attention weights of all layers."""
    embedding_key, stack_key = split(key, 2)
    context = context_of(padding_mask(source))
    x = embed_source(config, params.embedding, source, context.positions, embedding_key)

    def layer(x, layer_and_key):
        params, key = layer_and_key
        x, _, weights = run_layer(config, params, x, context, key=key)
        return x, weights

    x, weights = run_stack(config, layer, x, params.encoder, stack_key)
    states = final_norm(config, params.encoder.norm, x)
    return Memory(states, context.mask, (source != PAD).sum(-1)), weights


def decode(
    config: ModelConfig,
    params: Params,
    memory: Memory | None,
    tokens: Int[Array, "B T"],
    context: Context | None = None,
    key: Key[Array, ""] | None = None,
) -> tuple[
    Float[Array, "B T D"],
    KeyValue | tuple[KeyValue, ...],
    AttentionWeights | tuple[AttentionWeights, ...],
]:
    """The decoder stack (section 3.1): its states, from which `logits` predicts the next token; and
    of all layers the keys and values of self-attention, and the weights: along a leading axis, or
    in tuples where the layers are in one.

    Without `context`, the tokens are whole targets, and each attends to those before it: teacher
    forcing. For prompts and single tokens (`cached_decoder`) the context has caches, which include
    the memory.
    """
    embedding_key, stack_key = split(key, 2)
    context = context_of(causal_mask(tokens.shape[1])) if context is None else context
    x = embed_target(config, params.embedding, tokens, context.positions, embedding_key)

    def layer(x, inputs):
        params, key, *cache = inputs
        read = cache[0].memory if cache else layer_memory(params, memory)
        own = context if context.row is None else context.replace(cached=cache[0].kv)
        x, kv, weights = run_layer(config, params, x, own, read, key)
        return x, (kv, weights)

    x, (kv, weights) = run_stack(config, layer, x, params.decoder, stack_key, context.layers)
    return final_norm(config, params.decoder.norm, x), kv, weights


def context_of(mask: Bool[Array, "#B 1 #T T"]) -> Context:
    """Tokens at positions 0, 1, ... that attend to each other as the mask allows."""
    positions = jnp.arange(mask.shape[-1])[None]
    return Context(positions, mask, offsets_between(positions, positions))


def run_layer(
    config: ModelConfig,
    params: Layer,
    x: Float[Array, "B T D"],
    context: Context,
    memory: LayerMemory | None = None,
    key: Key[Array, ""] | None = None,
) -> tuple[Float[Array, "B T D"], KeyValue, AttentionWeights]:
    """Self-attention, cross-attention if there is a memory, feed-forward: a layer of either stack.

    With a padding mask it encodes, with a causal mask it decodes. Returns the output, the keys and
    values that self-attention attended to, and the weights of both attentions.
    """
    self_key, self_sum_key, inner_key, last_key, cross_key, cross_sum_key = split(key, 6)
    attend_to = partial(
        multi_head_attention, dropout_rate=config.attention_dropout, accelerator=config.accelerator
    )
    positions = context.positions if config.positions == "rotary" else None
    cross = None

    def self_attention(x):
        attention, mask, offsets = params.self_attention, context.mask, context.offsets
        kv = key_value(attention, x, positions)
        if context.cached is not None:
            kv = write(context.cached, context.row, kv)
        values, weights = attend_to(attention, x, kv, mask, offsets, positions, key=self_key)
        return values, (kv, weights)

    def cross_attention(x):
        attention = params.cross_attention
        return attend_to(attention, x, memory.kv, memory.mask, key=cross_key)

    def position_wise(x):
        return feed_forward(config, params.feed_forward, x, inner_key), None

    with jax.named_scope("self_attention"):
        norm = params.self_attention_norm
        x, (kv, own) = residual(config, norm, x, self_attention, self_sum_key)
    if params.cross_attention is not None:
        with jax.named_scope("cross_attention"):
            norm = params.cross_attention_norm
            x, cross = residual(config, norm, x, cross_attention, cross_sum_key)
    with jax.named_scope("feed_forward"):
        x, _ = residual(config, params.feed_forward_norm, x, position_wise, last_key)
    return x, kv, AttentionWeights(own, cross)


def run_stack(config: ModelConfig, layer, x: Float[Array, "B T D"], stack: Stack, key, caches=None):
    """Applies `layer`, a function of x and of (parameters, key, cache), for each layer of a stack.

    Returns the last x, and the other results of all layers: along a leading axis, or in tuples if
    the layers are in one.
    """
    if isinstance(stack.layers, tuple):
        keys, extras = split(key, len(stack.layers)), []
        for inputs in zip(stack.layers, keys, *[caches] * (caches is not None)):
            x, extra = layer(x, inputs)
            extras.append(extra)
        return x, tuple(zip(*extras))
    count = jax.tree.leaves(stack.layers)[0].shape[0]
    keys = None if key is None else jax.random.split(key, count)
    if config.recompute:  # in a loop: of unrolled layers XLA would merge both computations
        return jax.lax.scan(jax.checkpoint(layer, prevent_cse=False), x, (stack.layers, keys))
    # Unrolled: a loop would copy the residuals of each layer into stacks, and back out of them.
    return jax.lax.scan(layer, x, (stack.layers, keys), unroll=True)


def layer_memory(params: Layer, memory: Memory | None) -> LayerMemory | None:
    """The memory's keys and values in the cross-attention of a layer that has one."""
    if params.cross_attention is None:
        return None
    with jax.named_scope("cross_attention"):
        return LayerMemory(key_value(params.cross_attention, memory.states), memory.mask)


def pad_memory(memory: Memory, length: int) -> Memory:
    """The same memory with padding up to `length` source positions."""
    more = length - memory.states.shape[1]
    return memory.replace(
        states=jnp.pad(memory.states, ((0, 0), (0, more), (0, 0))),
        mask=jnp.pad(memory.mask, ((0, 0), (0, 0), (0, 0), (0, more))),
    )


def write(cached: KeyValue, row: Array, kv: KeyValue) -> KeyValue:
    """The cached keys and values with new ones from a row on, in the precision of the cache."""
    k, v = kv.k.astype(cached.k.dtype), kv.v.astype(cached.v.dtype)
    return KeyValue(
        jax.lax.dynamic_update_slice_in_dim(cached.k, k, row, axis=3),
        jax.lax.dynamic_update_slice_in_dim(cached.v, v, row, axis=2),
    )


def offsets_between(queries: Int[Array, "#B T"], keys: Int[Array, "#B S"]) -> Int[Array, "#B T S"]:
    """How far each key is behind (negative) or ahead of each query, in positions."""
    return keys[:, None, :] - queries[:, :, None]


def embed_source(config: ModelConfig, embedding: Embedding, tokens, positions, key=None):
    """The input of the encoder: embeddings of source tokens and their positions, [B, S, D]."""
    table, learned = tables(embedding).source, embedding.source_positions
    return _embed(config, table, learned, tokens, positions, key)


def embed_target(config: ModelConfig, embedding: Embedding, tokens, positions, key=None):
    """The input of the decoder: embeddings of target tokens and their positions, [B, T, D]."""
    table, learned = tables(embedding).target, embedding.target_positions
    return _embed(config, table, learned, tokens, positions, key)


def _embed(config, table, learned, tokens, positions, key) -> Float[Array, "B T D"]:
    with jax.named_scope("embed"):
        encoding = position_encoding(config, learned, positions)
        return embed(config, table, encoding, tokens, key)


def logits(output: OutputLayer, x: Float[Array, "B T D"]) -> Float[Array, "B T V"]:
    """The pre-softmax linear transformation (section 3.4), float32."""
    with jax.named_scope("logits"):
        scores = contract("btd,vd->btv", x, output.table)
        return scores if output.bias is None else scores + output.bias


def mean_state(memory: Memory) -> Float[Array, "B 1 D"]:
    """The mean of the states at real tokens, float32: the input of a classifier."""
    with jax.named_scope("mean_state"):
        real = memory.mask[:, 0, 0, :, None]
        states = jnp.where(real, memory.states.astype(jnp.float32), 0)
        return states.sum(1, keepdims=True) / jnp.maximum(memory.lengths[:, None, None], 1)


def final_norm(config: ModelConfig, norm: Norm | None, x: Float[Array, "B T D"]) -> Array:
    """With pre-norm the output of a stack is normalised once more; post-norm has no such norm."""
    return x if norm is None else layer_norm(config, norm, x)
