"""Attention of short sentences as one kernel of a GPU, with dropout, forwards and backwards.

A program of the kernel has one head of one sentence, and keeps its scores and weights in registers.
In `layers.attend` they are arrays that products and softmax write to memory and read again. For the
gradient they are computed once more. Pallas compiles the kernels with Triton; elsewhere than on a
GPU they are interpreted, which is slow.

A contestant of attention.py and accelerator.py. It was compiled for an H100, but has not run on a
GPU yet: if it is as quick as expected (docs/experiments.md), it belongs into
transformer/model/kernels.py.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple
from unittest import mock

import jax
import jax.numpy as jnp
from jax import Array
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Float, Int, UInt

from transformer.model import layers
from transformer.model.primitives import hashed

SHORT = 64
"""Queries and keys that a program can keep in registers."""
SMALLEST = 16
"""Rows and columns of the smallest product of matrices."""
WIDTHS = (16, 32, 64, 128)
"""Of a head."""


@contextmanager
def in_short_kernel() -> Iterator[None]:
    """Within the context, functions that are traced attend in the kernel where it can."""
    attend = layers.attend

    def attend_anyhow(q, k, v, mask, *others):
        return attend_in_kernel(q, k, v, mask, *others) or attend(q, k, v, mask, *others)

    with mock.patch.object(layers, "attend", attend_anyhow):
        yield


def attend_in_kernel(q, k, v, mask, bias=None, rate=0.0, key=None) -> tuple[Array, None] | None:
    """What `attend` returns, without the weights; None if the kernel cannot compute it."""
    queries, keys, width = q.shape[2], k.shape[3], q.shape[3]
    is_padding, is_causal = mask.shape[2] == 1, mask.shape == (1, 1, keys, keys)
    fits = max(queries, keys) <= SHORT and width in WIDTHS and q.dtype == jnp.bfloat16
    if not fits or bias is not None or not (is_padding or is_causal):
        return None
    real = None
    if is_padding:
        real = jnp.broadcast_to(mask[:, 0, 0], (len(q), keys)).astype(jnp.int32)
    rate = 0.0 if key is None else rate
    words = jax.random.bits(key, (2,)) if rate else jnp.zeros(2, jnp.uint32)
    # XLA finds that projections are transposed there and back, and leaves out both.
    rows = q.swapaxes(1, 2), k.transpose(0, 3, 1, 2), v.swapaxes(1, 2)
    return attend_shortly(rate, *rows, real, words).swapaxes(1, 2), None


class Sizes(NamedTuple):
    """The rate of dropout, and the shapes [B, T, H, K] of queries and [B, S, H, K] of keys."""

    rate: float
    queries: tuple[int, ...]
    keys: tuple[int, ...]


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def attend_shortly(
    rate: float,
    q: Float[Array, "B T H K"],
    k: Float[Array, "B S H K"],
    v: Float[Array, "B S H K"],
    real: Int[Array, "B S"] | None,
    words: UInt[Array, "2"],
) -> Float[Array, "B T H K"]:
    """Equation 1 for every head, with dropout of the weights at a rate.

    `real` is 0 where a key is padding; None stands for the causal mask. `words` are those of
    `primitives.random_bits`: the same weights are dropped as in `attend`. K is one of WIDTHS.
    """
    return _forward(rate, q, k, v, real, words)[0]


def _forward(rate, q, k, v, real, words):
    kernel = partial(_values, Sizes(rate, q.shape, k.shape))
    [y] = _call(kernel, (q,), words, real, (q, k, v))
    return y, (q, k, v, real, words)


def _backward(rate, saved, gradient):
    q, k, v, real, words = saved
    kernel = partial(_gradients, Sizes(rate, q.shape, k.shape))
    inputs = q, k, v, gradient.astype(v.dtype)
    return (*_call(kernel, (q, k, v), words, real, inputs), None, None)


attend_shortly.defvjp(_forward, _backward)


def _call(kernel, results, words, real, inputs):
    """A kernel for each sentence and head, whose results have the shapes of these arrays."""
    q, k, *_ = inputs
    shapes = [jax.ShapeDtypeStruct(array.shape, array.dtype) for array in results]
    if real is None:
        kernel, masks, mask_blocks = partial(_causal, kernel), (), ()
    else:
        of_sentence = pl.BlockSpec((None, _size(k.shape[1])), lambda b, h: (b, 0))
        masks, mask_blocks = (real,), (of_sentence,)
    return pl.pallas_call(
        kernel,
        out_shape=shapes,
        grid=(q.shape[0], q.shape[2]),
        in_specs=[pl.BlockSpec((2,), lambda b, h: (0,)), *mask_blocks, *map(_block, inputs)],
        out_specs=[*map(_block, results)],
        compiler_params=triton.CompilerParams(num_warps=_warps(q, k), num_stages=1),
        interpret=jax.default_backend() != "gpu",
    )(words, *masks, *inputs)


def _causal(kernel, words, *blocks):
    kernel(words, None, *blocks)


def _block(array: Array) -> pl.BlockSpec:
    """One head of one sentence of [B, T, H, K], padded to a power of two."""
    _, length, _, width = array.shape
    return pl.BlockSpec((None, _size(length), None, width), lambda b, h: (b, 0, h, 0))


def _size(length: int) -> int:
    return max(SMALLEST, pl.next_power_of_2(length))


def _warps(q: Array, k: Array) -> int:
    return 4 if max(q.shape[1], k.shape[1]) > 32 else 2


def _values(sizes, words, real, *blocks):
    """The kernel of the values y [T, K]."""
    *inputs, y = blocks
    q, k, v = _read(sizes, *inputs)
    weights, _ = _softmax(sizes, real, q, k)
    dropped = _kept(sizes, words, weights)
    _write(y, sizes.queries, triton.dot(dropped.astype(v.dtype), v))


def _gradients(sizes, words, real, *blocks):
    """The kernel of the gradients of q, k and v."""
    *inputs, q_gradient, k_gradient, v_gradient = blocks
    q, k, v, gradient = _read(sizes, *inputs)
    weights, seen = _softmax(sizes, real, q, k)
    kept = partial(_kept, sizes, words)
    dropped_gradient = kept(triton.dot(gradient, v, trans_b=True))
    total = (weights * dropped_gradient).sum(-1, keepdims=True)
    scores = jnp.where(seen, weights * (dropped_gradient - total), 0)
    scores = (scores / math.sqrt(sizes.queries[-1])).astype(q.dtype)
    dropped = kept(weights).astype(v.dtype)
    _write(q_gradient, sizes.queries, triton.dot(scores, k))
    _write(k_gradient, sizes.keys, triton.dot(scores, q, trans_a=True))
    _write(v_gradient, sizes.keys, triton.dot(dropped, gradient, trans_a=True))


def _softmax(sizes: Sizes, real: Any, q: Array, k: Array) -> tuple[Array, Array]:
    """The weights [T, S] before dropout, and which keys each query may attend to. A query without
    any attends uniformly, as in `attend`."""
    row, column = _places((len(q), len(k)))
    exists = column < sizes.keys[1]
    seen = row >= column
    if real is not None:
        inside = jax.lax.iota(jnp.int32, len(k)) < sizes.keys[1]
        seen = triton.load(real, mask=inside, other=0)[None, :] != 0
    scores = triton.dot(q, k, trans_b=True) / math.sqrt(sizes.queries[-1])
    scores = jnp.where(seen, scores, jnp.finfo(jnp.float32).min)
    scores = jnp.where(exists, scores, -jnp.inf)
    powers = jnp.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True), jnp.broadcast_to(seen, scores.shape)


def _kept(sizes: Sizes, words: Any, weights: Array) -> Array:
    """Dropout of the weights, or of their gradient: the bits of a weight depend on its place in
    [B, H, T, S]."""
    rate = sizes.rate
    if not rate:
        return weights
    row, column = _places(weights.shape)
    _, queries, heads, _ = sizes.queries
    matrix = pl.program_id(0) * heads + pl.program_id(1)
    place = (matrix * queries + row) * sizes.keys[1] + column
    bits = hashed(place.astype(jnp.uint32), words[0], words[1])
    return jnp.where(bits >= jnp.uint32(round(rate * 2**32)), weights / (1 - rate), 0)


def _places(shape: tuple[int, ...]) -> tuple[Array, Array]:
    return tuple(jax.lax.broadcasted_iota(jnp.int32, shape, axis) for axis in (0, 1))


def _read(sizes: Sizes, q: Any, k: Any, v: Any, *gradient: Any) -> list[Array]:
    """The rows that exist, then zeros."""
    shapes = sizes.queries, sizes.keys, sizes.keys, sizes.queries
    blocks = zip((q, k, v, *gradient), shapes)
    return [triton.load(block, mask=_exists(block, shape), other=0) for block, shape in blocks]


def _write(block: Any, shape: tuple[int, ...], array: Array) -> None:
    triton.store(block, array.astype(block.dtype), mask=_exists(block, shape))


def _exists(block: Any, shape: tuple[int, ...]) -> Array:
    return _places(block.shape)[0] < shape[1]
