"""Every weight of the model and its shape, how it is initialised, and a table of them all.

The shapes follow flax.linen's attention ([D, H, K] and [H, K, D]). Layers of a stack are stacked
on a leading axis N. A weight that the configuration does without is None.
"""

import math
from operator import itemgetter
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from transformer.config import ModelConfig


class Norm(struct.PyTreeNode):
    """Layer normalisation: scale [D], bias [D]."""

    scale: Array
    bias: Array


class Attention(struct.PyTreeNode):
    """W^Q, W^K [D, H, K], W^V [D, H, K], W^O [H, K, D] (section 3.2.2), and optional biases.

    offset_bias [H, 2 C + 1]: relative positions, for offsets from -C to C.
    """

    w_q: Array
    w_k: Array
    w_v: Array
    w_o: Array
    b_q: Array | None = None
    b_k: Array | None = None
    b_v: Array | None = None
    b_o: Array | None = None
    offset_bias: Array | None = None


class FeedForward(struct.PyTreeNode):
    """W_1 [D, F], b_1 [F], W_2 [F, D], b_2 [D] (equation 2)."""

    w_1: Array
    b_1: Array
    w_2: Array
    b_2: Array


class Layer(struct.PyTreeNode):
    """A layer of either stack; without a memory it has no cross-attention."""

    self_attention: Attention
    self_attention_norm: Norm
    cross_attention: Attention | None
    cross_attention_norm: Norm | None
    feed_forward: FeedForward
    feed_forward_norm: Norm


class Stack(struct.PyTreeNode):
    """N layers: every leaf with a leading axis N, or for decoding a tuple (`decoding_params`);
    `norm` after the stack with pre-norm only."""

    layers: Layer | tuple[Layer, ...]
    norm: Norm | None


class Embedding(struct.PyTreeNode):
    """Tables [V, D]; None for one that shares another (section 3.4) or whose side does not exist.
    `tables` resolves them.

    positions: the learned tables [L, D]; output_bias [V].
    """

    source: Array | None
    target: Array | None
    output: Array | None
    output_bias: Array | None
    source_positions: Array | None
    target_positions: Array | None


class Classifier(struct.PyTreeNode):
    """w [D, C + 1], b [C + 1]: from the mean of the encoder's states to C classes; 0 is PAD."""

    w: Array
    b: Array


class Params(struct.PyTreeNode):
    """All weights; an absent stack is None."""

    embedding: Embedding
    encoder: Stack | None
    decoder: Stack | None
    classifier: Classifier | None = None


class OutputLayer(struct.PyTreeNode):
    """The linear transformation before the softmax: table [V, D], and bias [V] or None."""

    table: Array
    bias: Array | None


class Tables(NamedTuple):
    """The tables [V, D] that source tokens, target tokens and logits use."""

    source: Array | None
    target: Array | None
    output: Array


def tables(embedding: Embedding) -> Tables:
    """The three tables; shared ones are the same array."""
    source = embedding.source
    target = source if embedding.target is None else embedding.target
    return Tables(source, target, target if embedding.output is None else embedding.output)


def output_layer(params: Params) -> OutputLayer:
    """The output layer of the tokens, by default the embedding matrix (section 3.4), or of the
    classes."""
    if params.classifier is not None:
        return OutputLayer(params.classifier.w.T, params.classifier.b)
    return OutputLayer(tables(params.embedding).output, params.embedding.output_bias)


def init_params(config: ModelConfig, key: Array) -> Params:
    """Random parameters, float32: Glorot uniform for weights, N(0, 1/D) for embeddings.

    The paper does not describe its initialisation; this is that of its published code.
    """
    embedding_key, encoder_key, decoder_key = jax.random.split(key, 3)
    encoder_layers, decoder_layers = config.encoder_layers, config.decoder_layers
    has_memory = encoder_layers > 0
    return Params(
        embedding=_init_embedding(config, embedding_key),
        encoder=_init_stack(config, encoder_layers, encoder_key, has_memory=False),
        decoder=_init_stack(config, decoder_layers, decoder_key, has_memory=has_memory),
        classifier=_init_classifier(config, key) if config.classes else None,
    )


def _glorot(key: Array, shape: tuple[int, ...], fan_in: int, fan_out: int) -> Array:
    limit = math.sqrt(6 / (fan_in + fan_out))
    return jax.random.uniform(key, shape, minval=-limit, maxval=limit)


def _init_norm(config: ModelConfig) -> Norm:
    return Norm(jnp.ones(config.d_model), jnp.zeros(config.d_model))


def _init_attention(config: ModelConfig, key: Array) -> Attention:
    width, heads, head_width = config.d_model, config.num_heads, config.d_model // config.num_heads
    inward, outward = (width, heads, head_width), (heads, head_width, width)
    weights = [
        _glorot(k, shape, width, width)
        for k, shape in zip(jax.random.split(key, 4), [inward, inward, inward, outward])
    ]
    attention = Attention(*weights)
    if config.attention_bias:
        b_q, b_k, b_v = (jnp.zeros((heads, head_width)) for _ in range(3))
        attention = attention.replace(b_q=b_q, b_k=b_k, b_v=b_v, b_o=jnp.zeros(width))
    return attention


def _init_self_attention(config: ModelConfig, key: Array) -> Attention:
    attention = _init_attention(config, key)
    if config.positions != "relative":
        return attention
    rows = 2 * config.max_offset + 1
    return attention.replace(offset_bias=jnp.zeros((config.num_heads, rows)))


def _init_feed_forward(config: ModelConfig, key: Array) -> FeedForward:
    width, inner = config.d_model, config.d_ff
    key_1, key_2 = jax.random.split(key)
    return FeedForward(
        w_1=_glorot(key_1, (width, inner), width, inner),
        b_1=jnp.zeros(inner),
        w_2=_glorot(key_2, (inner, width), inner, width),
        b_2=jnp.zeros(width),
    )


def _init_layer(config: ModelConfig, key: Array, has_memory: bool) -> Layer:
    self_key, feed_forward_key, cross_key = jax.random.split(key, 3)
    return Layer(
        self_attention=_init_self_attention(config, self_key),
        self_attention_norm=_init_norm(config),
        cross_attention=_init_attention(config, cross_key) if has_memory else None,
        cross_attention_norm=_init_norm(config) if has_memory else None,
        feed_forward=_init_feed_forward(config, feed_forward_key),
        feed_forward_norm=_init_norm(config),
    )


def _init_stack(config: ModelConfig, count: int, key: Array, has_memory: bool) -> Stack | None:
    if count == 0:
        return None
    layers = jax.vmap(lambda k: _init_layer(config, k, has_memory))(jax.random.split(key, count))
    return Stack(layers=layers, norm=_init_norm(config) if config.norm == "pre" else None)


def _init_classifier(config: ModelConfig, key: Array) -> Classifier:
    width, labels = config.d_model, config.classes + 1
    weight = _glorot(jax.random.fold_in(key, 3), (width, labels), width, labels)
    return Classifier(weight, jnp.zeros(labels))


def with_classifier(params: Params, classifier: Classifier) -> Params:
    """An encoder that predicted tokens, with a classifier in place of its output layer."""
    embedding = params.embedding.replace(output=None, output_bias=None)
    return params.replace(embedding=embedding, classifier=classifier)


def _init_embedding(config: ModelConfig, key: Array) -> Embedding:
    keys = jax.random.split(key, 5)
    deviation = config.d_model**-0.5

    def table(index: int, rows: int) -> Array:
        return deviation * jax.random.normal(keys[index], (rows, config.d_model))

    source_vocab, target_vocab = config.source_vocab_size, config.target_vocab_size
    encodes, decodes = config.encoder_layers > 0, config.decoder_layers > 0
    shares_source = encodes and (config.tying == "all" or not decodes)
    has_output, learned = not config.classes, config.positions == "learned"
    return Embedding(
        source=table(0, source_vocab) if encodes else None,
        target=None if shares_source else table(1, target_vocab),
        output=table(2, target_vocab) if has_output and config.tying == "none" else None,
        output_bias=jnp.zeros(target_vocab) if has_output and config.output_bias else None,
        source_positions=table(3, config.max_positions) if learned and encodes else None,
        target_positions=table(4, config.max_positions) if learned and decodes else None,
    )


def unstack(stack: Stack) -> tuple[Layer, ...]:
    """The layers of a stack one by one."""
    count = jax.tree.leaves(stack.layers)[0].shape[0]
    return tuple(jax.tree.map(itemgetter(n), stack.layers) for n in range(count))


def by_name(tree: Any) -> dict[str, Any]:
    """Every leaf of a tree by its name, such as encoder.norm.scale."""
    return {
        jax.tree_util.keystr(path, simple=True, separator="."): leaf
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }


def count_params(params: Params) -> int:
    """The number of parameters; shapes suffice (jax.eval_shape)."""
    return sum(leaf.size for leaf in jax.tree.leaves(params))


def param_table(params: Params) -> str:
    """Name, shape and size of every weight, and the total; shapes suffice (jax.eval_shape)."""
    rows = [(name, str(leaf.shape), f"{leaf.size:,}") for name, leaf in by_name(params).items()]
    rows.append(("total", "", f"{count_params(params):,}"))
    name_width, shape_width, size_width = (max(map(len, column)) for column in zip(*rows))
    return "\n".join(
        f"{name:{name_width}}  {shape:{shape_width}}  {size:>{size_width}}"
        for name, shape, size in rows
    )
