"""Figure 1: the encoder and the decoder."""

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array
from jaxtyping import Float, Int, Key

from transformer.config import ModelConfig
from transformer.model.batch import PAD
from transformer.model.layers import (
    KeyValue,
    causal_mask,
    contract,
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
from transformer.model.params import DecoderLayer, Embedding, EncoderLayer, Params, Stack


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
class Past:
    """Keys and values of earlier target positions, and where the next ones are written."""

    kv: KeyValue
    position: Array


def encode(
    config: ModelConfig,
    params: Params,
    source: Int[Array, "B S"],
    key: Key[Array, ""] | None = None,
) -> Memory:
    """The encoder stack over a batch of source tokens (section 3.1)."""
    embedding_key, stack_key = split(key, 2)
    mask = padding_mask(source)
    positions = jnp.arange(source.shape[1])[None]
    x = embed(
        config,
        params.embedding.source,
        position_encoding(params.embedding.source_positions, positions, config.d_model),
        source,
        embedding_key,
    )

    def layer(x, layer_and_key):
        return encoder_layer(config, layer_and_key[0], x, mask, layer_and_key[1]), None

    x, _ = jax.lax.scan(layer, x, (params.encoder.layers, layer_keys(stack_key, params.encoder)))
    return Memory(final_norm(config, params.encoder, x), mask, (source != PAD).sum(-1))


def widened(memory: Memory, length: int) -> Memory:
    """The same memory with padding up to `length` source positions."""
    more = length - memory.states.shape[1]
    return memory.replace(
        states=jnp.pad(memory.states, ((0, 0), (0, more), (0, 0))),
        mask=jnp.pad(memory.mask, ((0, 0), (0, 0), (0, 0), (0, more))),
    )


def encoder_layer(
    config: ModelConfig, params: EncoderLayer, x: Float[Array, "B S D"], mask, key=None
) -> Float[Array, "B S D"]:
    attention_key, sum_key, inner_key, last_key = split(key, 4)

    def self_attention(x):
        kv = key_value(params.self_attention, x)
        rate = config.attention_dropout
        return multi_head_attention(params.self_attention, x, kv, mask, rate, attention_key)

    x, _ = residual(config, params.self_attention_norm, x, self_attention, sum_key)
    return feed_forward_sublayer(config, params, x, inner_key, last_key)


def decode(
    config: ModelConfig,
    params: Params,
    memory: Memory,
    target_in: Int[Array, "B T"],
    key: Key[Array, ""] | None = None,
) -> Float[Array, "B T V"]:
    """Logits for the token after each position of `target_in` (teacher forcing), float32."""
    x, _ = run_decoder(config, params, memory, target_in, key)
    return logits(params.embedding, x)


def cross_attention_weights(
    config: ModelConfig, params: Params, memory: Memory, target_in: Int[Array, "B T"]
) -> Float[Array, "N B H T S"]:
    """How much each target position looks at each source token, in every layer and head."""
    return run_decoder(config, params, memory, target_in)[1]


def run_decoder(
    config: ModelConfig, params: Params, memory: Memory, target_in: Int[Array, "B T"], key=None
) -> tuple[Float[Array, "B T D"], Float[Array, "N B H T S"]]:
    """The decoder stack: its output and its cross-attention weights."""
    embedding_key, stack_key = split(key, 2)
    mask = causal_mask(target_in.shape[1])
    positions = jnp.arange(target_in.shape[1])[None]
    x = embed_target(config, params.embedding, target_in, positions, embedding_key)

    def layer(x, layer_and_key):
        params, key = layer_and_key
        cross_kv = key_value(params.cross_attention, memory.states)
        x, _, weights = decoder_layer(config, params, x, cross_kv, mask, memory.mask, key)
        return x, weights

    keys = layer_keys(stack_key, params.decoder)
    x, weights = jax.lax.scan(layer, x, (params.decoder.layers, keys))
    return final_norm(config, params.decoder, x), weights


def decoder_layer(
    config: ModelConfig,
    params: DecoderLayer,
    x: Float[Array, "B T D"],
    cross_kv: KeyValue,
    self_mask,
    memory_mask,
    key: Key[Array, ""] | None = None,
    past: Past | None = None,
) -> tuple[Float[Array, "B T D"], KeyValue, Float[Array, "B H T S"]]:
    """Masked self-attention, cross-attention, feed-forward.

    With `past`, self-attention also looks at earlier positions. Returns the output, the keys and
    values that self-attention looked at, and the cross-attention weights.
    """
    self_key, self_sum_key, cross_key, cross_sum_key, inner_key, last_key = split(key, 6)
    rate = config.attention_dropout

    def self_attention(x):
        kv = key_value(params.self_attention, x)
        if past is not None:
            kv = extend(past, kv)
        y, _ = multi_head_attention(params.self_attention, x, kv, self_mask, rate, self_key)
        return y, kv

    def cross_attention(x):
        return multi_head_attention(
            params.cross_attention, x, cross_kv, memory_mask, rate, cross_key
        )

    x, kv = residual(config, params.self_attention_norm, x, self_attention, self_sum_key)
    x, weights = residual(config, params.cross_attention_norm, x, cross_attention, cross_sum_key)
    x = feed_forward_sublayer(config, params, x, inner_key, last_key)
    return x, kv, weights


def feed_forward_sublayer(
    config: ModelConfig,
    params: EncoderLayer | DecoderLayer,
    x: Float[Array, "B T D"],
    inner_key,
    key,
) -> Float[Array, "B T D"]:
    """The last sublayer of every layer, on either side."""

    def sublayer(x):
        return feed_forward(config, params.feed_forward, x, inner_key), None

    return residual(config, params.feed_forward_norm, x, sublayer, key)[0]


def extend(past: Past, kv: KeyValue) -> KeyValue:
    """The past with `kv` written at its position, in the precision of the past."""
    k, v = kv.k.astype(past.kv.k.dtype), kv.v.astype(past.kv.v.dtype)
    return KeyValue(
        jax.lax.dynamic_update_slice_in_dim(past.kv.k, k, past.position, axis=3),
        jax.lax.dynamic_update_slice_in_dim(past.kv.v, v, past.position, axis=2),
    )


def embed_target(config, embedding: Embedding, tokens, positions, key=None):
    table = embedding.source if embedding.target is None else embedding.target
    encoding = position_encoding(embedding.target_positions, positions, config.d_model)
    return embed(config, table, encoding, tokens, key)


def logits(embedding: Embedding, x: Float[Array, "B T D"]) -> Float[Array, "B T V"]:
    """The pre-softmax linear transformation, by default the embedding matrix (section 3.4)."""
    tables = (embedding.output, embedding.target, embedding.source)
    table = next(table for table in tables if table is not None)
    scores = contract("btd,vd->btv", x, table)
    return scores if embedding.output_bias is None else scores + embedding.output_bias


def final_norm(config: ModelConfig, stack: Stack, x: Float[Array, "B T D"]) -> Array:
    """With pre-norm the sum of all sublayers is normalised once more."""
    return x if stack.norm is None else layer_norm(config, stack.norm, x)


def layer_keys(key, stack: Stack):
    """A key for each layer, or none."""
    count = jax.tree.leaves(stack.layers)[0].shape[0]
    return None if key is None else jax.random.split(key, count)
