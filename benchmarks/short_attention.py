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
from typing import Any
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

    def attend_anyhow(q, k, v, mask, bias=None, rate=0.0, key=None):
        lengths = q.shape[2], k.shape[3]
        fits = max(lengths) <= SHORT and q.shape[3] in WIDTHS and q.dtype == jnp.bfloat16
        if not fits or bias is not None:
            return attend(q, k, v, mask, bias, rate, key)
        words = jnp.zeros(2, jnp.uint32) if key is None else jax.random.bits(key, (2,))
        real = None
        if mask.shape[2] == 1:
            real = jnp.broadcast_to(mask[:, 0, 0], (len(q), lengths[1])).astype(jnp.int32)
        # XLA finds that projections are transposed there and back, and leaves out both.
        inputs = q.swapaxes(1, 2), k.transpose(0, 3, 1, 2), v.swapaxes(1, 2)
        return attend_shortly(rate, *inputs, real, words).swapaxes(1, 2), None

    with mock.patch.object(layers, "attend", attend_anyhow):
        yield


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
    y = _call(partial(_values, rate, q.shape, k.shape), (q,), q, k, v, real, words)
    return y[0], (q, k, v, real, words)


def _backward(rate, saved, gradient):
    q, k, v, real, words = saved
    kernel = partial(_gradients, rate, q.shape, k.shape)
    return (*_call(kernel, (q, k, v), q, k, v, real, words, gradient.astype(v.dtype)), None, None)


attend_shortly.defvjp(_forward, _backward)


def _call(kernel, results, q, k, v, real, words, *gradient):
    """A kernel for each sentence and head, whose results have the shapes of these arrays."""
    shapes = [jax.ShapeDtypeStruct(array.shape, array.dtype) for array in results]
    if real is None:
        kernel, masks, mask_blocks = partial(_causal, kernel), (), ()
    else:
        of_sentence = pl.BlockSpec((None, _size(k.shape[1])), lambda b, h: (b, 0))
        masks, mask_blocks = (real,), (of_sentence,)
    inputs = q, k, v, *gradient
    heads = [*map(_block_of_head, inputs)]
    return pl.pallas_call(
        kernel,
        out_shape=shapes,
        grid=(q.shape[0], q.shape[2]),
        in_specs=[pl.BlockSpec((2,), lambda b, h: (0,)), *mask_blocks, *heads],
        out_specs=[*map(_block_of_head, results)],
        compiler_params=triton.CompilerParams(num_warps=_warps(q, k), num_stages=1),
        interpret=jax.default_backend() != "gpu",
    )(words, *masks, *inputs)


def _causal(kernel, words, *others):
    kernel(words, None, *others)


def _block_of_head(array: Array) -> pl.BlockSpec:
    """One head of one sentence of [B, T, H, K], padded to a power of two."""
    _, length, _, width = array.shape
    return pl.BlockSpec((None, _size(length), None, width), lambda b, h: (b, 0, h, 0))


def _size(length: int) -> int:
    return max(SMALLEST, pl.next_power_of_2(length))


def _warps(q: Array, k: Array) -> int:
    return 4 if max(q.shape[1], k.shape[1]) > 32 else 2


def _values(rate, queries, keys, words, real, q, k, v, y):
    """The kernel of the values y [T, K]."""
    q, k, v = _read(q, queries), _read(k, keys), _read(v, keys)
    weights, _ = _softmax(queries, keys, real, q, k)
    dropped = _kept(rate, words, queries, keys, weights)
    _write(y, queries, triton.dot(dropped.astype(v.dtype), v))


def _gradients(rate, queries, keys, words, real, q, k, v, y_gradient, *results):
    """The kernel of the gradients of q, k and v."""
    q, k, v = _read(q, queries), _read(k, keys), _read(v, keys)
    gradient = _read(y_gradient, queries)
    weights, seen = _softmax(queries, keys, real, q, k)
    kept = partial(_kept, rate, words, queries, keys)
    dropped_gradient = kept(triton.dot(gradient, v, trans_b=True))
    total = (weights * dropped_gradient).sum(-1, keepdims=True)
    scores = jnp.where(seen, weights * (dropped_gradient - total), 0) / math.sqrt(queries[-1])
    scores = scores.astype(q.dtype)
    dropped = kept(weights).astype(v.dtype)
    _write(results[0], queries, triton.dot(scores, k))
    _write(results[1], keys, triton.dot(scores, q, trans_a=True))
    _write(results[2], keys, triton.dot(dropped, gradient, trans_a=True))


def _softmax(queries, keys, real, q, k) -> tuple[Array, Array]:
    """The weights [T, S] before dropout, and which keys each query may attend to. A query without
    any attends uniformly, as in `attend`."""
    row, column = _places((len(q), len(k)))
    seen = row >= column if real is None else real[...][None, :] != 0
    scores = triton.dot(q, k, trans_b=True) / math.sqrt(queries[-1])
    scores = jnp.where(seen, scores, jnp.finfo(jnp.float32).min)
    scores = jnp.where(column < keys[1], scores, -jnp.inf)
    powers = jnp.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True), jnp.broadcast_to(seen, scores.shape)


def _kept(rate: float, words: Any, queries: tuple, keys: tuple, weights: Array) -> Array:
    """Dropout of the weights, or of their gradient: the bits of a weight depend on its place in
    [B, H, T, S]."""
    if not rate:
        return weights
    row, column = _places(weights.shape)
    matrix = pl.program_id(0) * queries[2] + pl.program_id(1)
    place = (matrix * queries[1] + row) * keys[1] + column
    bits = hashed(place.astype(jnp.uint32), words[0], words[1])
    return jnp.where(bits >= jnp.uint32(round(rate * 2**32)), weights / (1 - rate), 0)


def _places(shape: tuple[int, ...]) -> tuple[Array, Array]:
    return tuple(jax.lax.broadcasted_iota(jnp.int32, shape, axis) for axis in (0, 1))


def _read(block: Any, shape: tuple[int, ...]) -> Array:
    """The rows that exist, then zeros."""
    return triton.load(block, mask=_exists(block, shape), other=0)


def _write(block: Any, shape: tuple[int, ...], array: Array) -> None:
    triton.store(block, array.astype(block.dtype), mask=_exists(block, shape))


def _exists(block: Any, shape: tuple[int, ...]) -> Array:
    return _places(block.shape)[0] < shape[1]
