"""Figure 1: the encoder and the decoder, together or one of them alone."""

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


@struct.dataclass
class Memory:
    """What the encoder hands to the decoder.

    states  [B, S, D]     the source, encoded
    mask    [B, 1, 1, S]  true at source tokens, false at padding
    lengths [B]           source tokens, EOS included
    """

    states: Array
    mask: Array
    lengths: Array


@struct.dataclass
class LayerMemory:
    """The memory as one layer sees it: the keys and values of its cross-attention, and the mask."""

    kv: KeyValue
    mask: Array


@struct.dataclass
class AttentionWeights:
    """How much each position looks at others; a leading axis N where they are of all layers.

    own    [B, H, T, L]  self-attention
    cross  [B, H, T, S]  cross-attention, or None
    """

    own: Array
    cross: Array | None


@struct.dataclass
class Past:
    """Keys and values of earlier positions, and the row where the next ones are written."""

    kv: KeyValue
    row: Array


@struct.dataclass
class LayerCache:
    """What a layer of the decoder keeps between tokens: the keys and values of earlier tokens, and
    the memory as it sees it, or None."""

    kv: KeyValue
    memory: LayerMemory | None


@struct.dataclass
class Context:
    """Where the tokens that a stack reads stand, and what self-attention may look at.

    positions [#B, T]
    mask      [#B, 1, #T, L]  true where a token may look at a key
    offsets   [#B, #T, L]     how far each key is behind (negative) or ahead of each token
    layers    the cache of each layer, or None
    row       where in these caches the keys and values of the tokens are written, which then look
              at all that is there; None: they look at each other alone
    """

    positions: Array
    mask: Array
    offsets: Array
    layers: tuple[LayerCache, ...] | None = None
    row: Array | None = None


def predict(
    config: ModelConfig, params: Params, batch: Batch, key: Key[Array, ""] | None = None
) -> Float[Array, "B T V"]:
    """Logits at every position of `batch.target_out`, float32."""
    return logits(output_layer(params), output_states(config, params, batch, key))


def token_log_probs(
    config: ModelConfig, params: Params, batch: Batch
) -> tuple[Float[Array, "B T"], Bool[Array, "B T"]]:
    """The log-probability of each token of `batch.target_out`, and whether none is likelier. Values
    at PAD mean nothing. Logits of all positions never exist together."""
    x, output = output_states(config, params, batch), output_layer(params)

    def at_position(column):
        x, tokens = column
        scores = logits(output, x[:, None])[:, 0]
        chosen = jnp.take_along_axis(scores, tokens[:, None], 1)[:, 0]
        return chosen - jax.nn.logsumexp(scores, -1), chosen == scores.max(-1)

    columns, at_once = (x.swapaxes(0, 1), batch.target_out.T), max(1, POSITIONS // len(x))
    log_probs, is_likeliest = jax.lax.map(at_position, columns, batch_size=at_once)
    return log_probs.T, is_likeliest.T


def output_states(
    config: ModelConfig, params: Params, batch: Batch, key: Key[Array, ""] | None = None
) -> Float[Array, "B T D"]:
    """What the logits are made of, at every position of `batch.target_out`.

    The parameters say what is read: the source where there is an encoder, `target_in` where there
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
    """The encoder stack: what it hands to the decoder, and the weights of all layers."""
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

    Without `context`, the tokens are whole targets and each looks at those before it: teacher
    forcing. A context with caches is made of prompts and of single tokens (`cached_decoder`), and
    the memory is in there.
    """
    embedding_key, stack_key = split(key, 2)
    context = context_of(causal_mask(tokens.shape[1])) if context is None else context
    x = embed_target(config, params.embedding, tokens, context.positions, embedding_key)

    def layer(x, inputs):
        params, key, *cached = inputs
        past, seen = None, cached[0].memory if cached else layer_memory(params, memory)
        if context.row is not None:
            past = Past(cached[0].kv, context.row)
        x, kv, weights = run_layer(config, params, x, context, seen, past, key)
        return x, (kv, weights)

    x, (kv, weights) = run_stack(config, layer, x, params.decoder, stack_key, context.layers)
    return final_norm(config, params.decoder.norm, x), kv, weights


def context_of(mask: Bool[Array, "#B 1 #T T"]) -> Context:
    """Tokens at positions 0, 1, ... that look at each other as the mask allows."""
    positions = jnp.arange(mask.shape[-1])[None]
    return Context(positions, mask, offsets_between(positions, positions))


def run_layer(
    config: ModelConfig,
    params: Layer,
    x: Float[Array, "B T D"],
    context: Context,
    memory: LayerMemory | None = None,
    past: Past | None = None,
    key: Key[Array, ""] | None = None,
) -> tuple[Float[Array, "B T D"], KeyValue, AttentionWeights]:
    """Self-attention, cross-attention if there is a memory, feed-forward: a layer of either stack.

    With a mask of padding it encodes, with one that is causal it decodes. With `past`,
    self-attention also looks at earlier positions. Returns the output, the keys and values that
    self-attention looked at, and the weights of both attentions.
    """
    self_key, self_sum_key, inner_key, last_key, cross_key, cross_sum_key = split(key, 6)
    attend_to = partial(
        multi_head_attention,
        dropout_rate=config.attention_dropout,
        accelerator=config.accelerator,
    )
    positions = context.positions if config.positions == "rotary" else None
    cross = None

    def self_attention(x):
        attention, mask, offsets = params.self_attention, context.mask, context.offsets
        kv = key_value(attention, x, positions)
        if past is not None:
            kv = extend(past, kv)
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
    """`layer`, a function of x and of its parameters, key and cache, for each layer of the stack.

    Returns what the last made of x, and what else each returned: along a leading axis, or of layers
    in a tuple in tuples.
    """
    if isinstance(stack.layers, tuple):
        keys, extras = split(key, len(stack.layers)), []
        for inputs in zip(stack.layers, keys, *[caches] * (caches is not None)):
            x, extra = layer(x, inputs)
            extras.append(extra)
        return x, tuple(zip(*extras))
    count = jax.tree.leaves(stack.layers)[0].shape[0]
    keys = None if key is None else jax.random.split(key, count)
    if config.recompute:  # in a loop: between layers written out XLA would find them alike
        return jax.lax.scan(jax.checkpoint(layer, prevent_cse=False), x, (stack.layers, keys))
    # Written out: a loop would copy what each layer keeps into stacks, and back out of them.
    return jax.lax.scan(layer, x, (stack.layers, keys), unroll=True)


def layer_memory(params: Layer, memory: Memory | None) -> LayerMemory | None:
    """The memory's keys and values in the cross-attention of a layer that has one."""
    if params.cross_attention is None:
        return None
    with jax.named_scope("cross_attention"):
        return LayerMemory(key_value(params.cross_attention, memory.states), memory.mask)


def widened(memory: Memory, length: int) -> Memory:
    """The same memory with padding up to `length` source positions."""
    more = length - memory.states.shape[1]
    return memory.replace(
        states=jnp.pad(memory.states, ((0, 0), (0, more), (0, 0))),
        mask=jnp.pad(memory.mask, ((0, 0), (0, 0), (0, 0), (0, more))),
    )


def extend(past: Past, kv: KeyValue) -> KeyValue:
    """The past with `kv` written at its row, in the precision of the past."""
    k, v = kv.k.astype(past.kv.k.dtype), kv.v.astype(past.kv.v.dtype)
    return KeyValue(
        jax.lax.dynamic_update_slice_in_dim(past.kv.k, k, past.row, axis=3),
        jax.lax.dynamic_update_slice_in_dim(past.kv.v, v, past.row, axis=2),
    )


def offsets_between(queries: Int[Array, "#B T"], keys: Int[Array, "#B S"]) -> Int[Array, "#B T S"]:
    """How far each key is behind (negative) or ahead of each query, in positions."""
    return keys[:, None, :] - queries[:, :, None]


def embed_source(config: ModelConfig, embedding: Embedding, tokens, positions, key=None):
    """What the encoder reads: embeddings of source tokens with their positions, [B, S, D]."""
    return _embed(
        config, tables(embedding).source, embedding.source_positions, tokens, positions, key
    )


def embed_target(config: ModelConfig, embedding: Embedding, tokens, positions, key=None):
    """What the decoder reads: embeddings of target tokens with their positions, [B, T, D]."""
    return _embed(
        config, tables(embedding).target, embedding.target_positions, tokens, positions, key
    )


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
    """The mean of the states at real tokens, float32: what a classifier judges a sentence by."""
    with jax.named_scope("mean_state"):
        real = memory.mask[:, 0, 0, :, None]
        states = jnp.where(real, memory.states.astype(jnp.float32), 0)
        return states.sum(1, keepdims=True) / jnp.maximum(memory.lengths[:, None, None], 1)


def final_norm(config: ModelConfig, norm: Norm | None, x: Float[Array, "B T D"]) -> Array:
    """With pre-norm the sum of all sublayers is normalised once more."""
    return x if norm is None else layer_norm(config, norm, x)
