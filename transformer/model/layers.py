"""The layers of sections 3.1 to 3.5, each a function of its parameters and its input.

`key=None` means no dropout, everywhere. Masks are true where a query may attend to a key.
Parameters are float32 and are cast where they multiply, except in decoding, where they already have
the precision of the model. Products, softmax, norms and dropout are those of `primitives`.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array
from jaxtyping import Bool, Float, Int, Key

from transformer.config import ModelConfig
from transformer.model.batch import PAD
from transformer.model.kernels import attend_in_kernel, fits_kernel
from transformer.model.params import Attention, FeedForward, Norm
from transformer.model.primitives import contract, dropout, normalise, relu, softmax

Extra = TypeVar("Extra")


class KeyValue(struct.PyTreeNode):
    """Keys k [B, H, K, S], transposed for equation 1, and values v [B, H, S, K]."""

    k: Array
    v: Array


def attend(
    q: Float[Array, "B H T K"],
    k: Float[Array, "B H K S"],
    v: Float[Array, "B H S Kv"],
    mask: Bool[Array, "#B 1 #T #S"],
    bias: Float[Array, "#B #H #T #S"] | None = None,
    dropout_rate: float = 0.0,
    key: Key[Array, ""] | None = None,
) -> tuple[Float[Array, "B H T Kv"], Float[Array, "B H T S"]]:
    """Scaled dot-product attention, equation 1: softmax(Q K^T / sqrt(d_k)) V.

    `k` is K^T, so that a cache need not be transposed for every token. `bias` is added to the
    scaled scores. Returns the values and the weights before dropout; jit removes weights that are
    not used. A fully masked query attends uniformly.
    """
    scores = contract("bhtk,bhks->bhts", q.astype(k.dtype), k) / math.sqrt(q.shape[-1])
    if bias is not None:
        scores = scores + bias
    weights = softmax(jnp.where(mask, scores, jnp.finfo(jnp.float32).min), v.dtype)
    dropped = dropout(weights, dropout_rate, key)
    return contract("bhts,bhsk->bhtk", dropped, v).astype(v.dtype), weights


def attention(
    q: Float[Array, "T K"],
    k: Float[Array, "S K"],
    v: Float[Array, "S Kv"],
    mask: Bool[Array, "#T #S"] | None = None,
) -> tuple[Float[Array, "T Kv"], Float[Array, "T S"]]:
    """Equation 1 as the paper writes it, for one head and one sentence: `attend` on matrices.

    Without a mask, each query attends to all keys.
    """
    mask = jnp.ones((1, 1), bool) if mask is None else mask
    y, weights = attend(q[None, None], k.T[None, None], v[None, None], mask[None, None])
    return y[0, 0], weights[0, 0]


def multi_head_attention(
    params: Attention,
    x: Float[Array, "B T D"],
    kv: KeyValue,
    mask: Bool[Array, "#B 1 #T #S"],
    offsets: Int[Array, "#B #T S"] | None = None,
    positions: Int[Array, "#B #T"] | None = None,
    dropout_rate: float = 0.0,
    key: Key[Array, ""] | None = None,
    accelerator: str = "",
) -> tuple[Float[Array, "B T D"], Float[Array, "B H T S"] | None]:
    """Section 3.2.2. Self, masked and cross attention differ only in `kv` and `mask`.

    `offsets` from each query to each key are for relative positions, `positions` of the queries
    for rotary ones. Returns the output and the attention weights, or None for the weights if the
    accelerator has a kernel that fits.
    """
    q = rotated(project(x, params.w_q, params.b_q), positions).swapaxes(1, 2)
    bias = None if params.offset_bias is None else offset_bias(params.offset_bias, offsets)
    rate = 0.0 if key is None else dropout_rate
    if fits_kernel(accelerator, q, kv.k, bias, rate):
        values, weights = attend_in_kernel(accelerator, q, kv.k, kv.v, mask), None
    else:
        values, weights = attend(q, kv.k, kv.v, mask, bias, rate, key)
    values = values.swapaxes(1, 2).astype(x.dtype)
    return linear("bthk,hkd->btd", values, params.w_o, params.b_o), weights


def key_value(
    params: Attention, x: Float[Array, "B S D"], positions: Int[Array, "#B #S"] | None = None
) -> KeyValue:
    """The keys and values of `x` in every head; with rotary positions, the keys at `positions`."""
    k, v = project(x, params.w_k, params.b_k), project(x, params.w_v, params.b_v)
    return KeyValue(rotated(k, positions).transpose(0, 2, 3, 1), v.swapaxes(1, 2))


def rotated(
    x: Float[Array, "B T H K"], positions: Int[Array, "#B #T"] | None
) -> Float[Array, "B T H K"]:
    """Features 2i and 2i + 1 of each head rotated by the angle position / 10000^(2i/K) (Su et al.,
    2021, equation 34), so that a score depends on the distance of query and key; None: as it is."""
    if positions is None:
        return x
    angles = positions[..., None, None] * 10000 ** (-jnp.arange(0, x.shape[-1], 2) / x.shape[-1])
    even, odd = x[..., ::2].astype(jnp.float32), x[..., 1::2].astype(jnp.float32)
    sin, cos = jnp.sin(angles), jnp.cos(angles)
    pairs = jnp.stack([even * cos - odd * sin, even * sin + odd * cos], -1)
    return pairs.reshape(x.shape).astype(x.dtype)


def project(
    x: Float[Array, "B T D"], weight: Float[Array, "D H K"], bias: Float[Array, "H K"] | None
) -> Float[Array, "B T H K"]:
    """x W + b in every head: queries, keys or values (section 3.2.2)."""
    return linear("btd,dhk->bthk", x, weight, bias)


def offset_bias(
    table: Float[Array, "H O"], offsets: Int[Array, "#B #T S"]
) -> Float[Array, "#B H #T S"]:
    """The learned bias of each head for the offset from query to key (Shaw et al., 2018; Raffel et
    al., 2020): O = 2 C + 1 values, for offsets from -C to C, to which others are clipped."""
    furthest = table.shape[1] // 2
    rows = jnp.clip(offsets, -furthest, furthest) + furthest
    return table[:, rows].swapaxes(0, 1)


ACTIVATIONS = {
    "relu": relu,
    "gelu": partial(jax.nn.gelu, approximate=False),
    "gelu_tanh": partial(jax.nn.gelu, approximate=True),
    "swish": jax.nn.swish,
}


def feed_forward(
    config: ModelConfig,
    params: FeedForward,
    x: Float[Array, "B T D"],
    key: Key[Array, ""] | None = None,
) -> Float[Array, "B T D"]:
    """Position-wise feed-forward network, equation 2: max(0, x W_1 + b_1) W_2 + b_2."""
    inner = ACTIVATIONS[config.activation](linear("btd,df->btf", x, params.w_1, params.b_1))
    inner = dropout(inner, config.activation_dropout, key)
    return linear("btf,fd->btd", inner, params.w_2, params.b_2)


def linear(equation: str, x: Array, weight: Array, bias: Array | None = None) -> Array:
    """x W + b as an einsum, in the precision of x. A float32 bias is added in float32, so that its
    gradient is summed in float32 too."""
    product = contract(equation, x, weight).astype(x.dtype)
    return product if bias is None else (product + bias).astype(x.dtype)


def layer_norm(
    config: ModelConfig, params: Norm, x: Float[Array, "B T D"]
) -> Float[Array, "B T D"]:
    """Layer normalisation over D (Ba et al., 2016)."""
    with jax.named_scope("norm"):
        return normalise(config.norm_epsilon, params.scale, params.bias, x)


def residual(
    config: ModelConfig,
    norm: Norm,
    x: Float[Array, "B T D"],
    sublayer: Callable[[Array], tuple[Array, Extra]],
    key: Key[Array, ""] | None = None,
) -> tuple[Float[Array, "B T D"], Extra]:
    """A sublayer with its residual connection, norm and dropout (sections 3.1 and 5.4).

    Returns the sum and the other result of the sublayer.
    """
    if config.norm == "pre":
        y, extra = sublayer(layer_norm(config, norm, x))
        return x + dropout(y, config.dropout, key), extra
    y, extra = sublayer(x)
    return layer_norm(config, norm, x + dropout(y, config.dropout, key)), extra


def embed(
    config: ModelConfig,
    table: Float[Array, "V D"],
    encoding: Float[Array, "#B #T D"] | None,
    tokens: Int[Array, "B T"],
    key: Key[Array, ""] | None = None,
) -> Float[Array, "B T D"]:
    """Embeddings scaled by sqrt(d_model), plus positions (sections 3.4, 3.5 and 5.4)."""
    x = table[tokens]
    if key is not None and config.word_dropout:
        words = jnp.ones((*tokens.shape, 1), x.dtype)
        x = x * dropout(words, config.word_dropout, jax.random.fold_in(key, 0))
    if config.embedding_scale:
        x = x * math.sqrt(config.d_model)
    if encoding is not None:
        x = x + encoding
    # Cast here and not before, so that the gradients of both tables are summed in float32.
    return dropout(x.astype(config.dtype), config.dropout, key)


def position_encoding(
    config: ModelConfig, learned: Float[Array, "L D"] | None, positions: Int[Array, "*B T"]
) -> Float[Array, "*B T D"] | None:
    """What is added to embeddings: rows of the learned table, the sinusoids of section 3.5, or
    None if attention itself uses the positions."""
    if config.positions in ("relative", "rotary"):
        return None
    return sinusoids(positions, config.d_model) if learned is None else learned[positions]


def sinusoids(positions: Int[Array, "*B T"], width: int) -> Float[Array, "*B T D"]:
    """PE(pos, 2i) = sin(pos / 10000^(2i/D)), PE(pos, 2i+1) = cos(pos / 10000^(2i/D))."""
    frequencies = 10000 ** (-jnp.arange(0, width, 2) / width)
    angles = positions[..., None] * frequencies
    return jnp.stack([jnp.sin(angles), jnp.cos(angles)], -1).reshape(*positions.shape, width)


def padding_mask(tokens: Int[Array, "B S"]) -> Bool[Array, "B 1 1 S"]:
    """True at the tokens that are not padding."""
    return (tokens != PAD)[:, None, None, :]


def causal_mask(length: int) -> Bool[Array, "1 1 T T"]:
    """True where a position attends to itself or an earlier one (section 3.2.3)."""
    return jnp.tril(jnp.ones((1, 1, length, length), bool))


def split(key: Key[Array, ""] | None, count: int) -> list[Array | None]:
    """`count` keys from one; no key gives none."""
    return [None] * count if key is None else list(jax.random.split(key, count))
