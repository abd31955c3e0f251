"""Products, softmax, normalisation and dropout, with hand-written gradients where those that JAX
derives are slower or store more.

Each says why. Tests compare each gradient with the one that JAX derives from the formula.
"""

import math
import re
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Key, UInt


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def contract(equation: str, a: Array, b: Array) -> Array:
    """The einsum of a and b: b in the precision of a, sums and result in float32.

    Its gradients are such products too, each in the precision of its input: that of a float32
    weight is never rounded. They are written by hand because those that JAX derives are slower: dW
    is transposed, and 16-bit values are multiplied by 32-bit gradients.
    """
    return jnp.einsum(equation, a, b.astype(a.dtype), preferred_element_type=jnp.float32)


def _contract_backward(
    equation: str, saved: tuple[Array, Array], gradient: Array
) -> tuple[Array, Array]:
    a, b = saved
    axes_a, axes_b, axes = re.split(",|->", equation)
    gradient = gradient.astype(a.dtype)
    return (
        contract(f"{axes},{axes_b}->{axes_a}", gradient, b).astype(a.dtype),
        _summed_over_rows(f"{axes_a},{axes}->{axes_b}", a, gradient).astype(b.dtype),
    )


def _summed_over_rows(equation: str, a: Array, b: Array) -> Array:
    """`contract` for the gradient of a weight, which sums over all rows.

    On a CPU, XLA transposes the left factor, which takes longer than the product if it is wide. So
    the factors are swapped and the result is transposed, if right factor and result together are
    smaller; the barrier prevents XLA from undoing that.
    """
    axes_a, axes_b, axes = re.split(",|->", equation)
    free_a, free_b = ("".join(filter(axes.__contains__, own)) for own in (axes_a, axes_b))
    if axes == free_b + free_a and free_b:  # as it comes out with b on the left
        return _summed_over_rows(f"{axes_b},{axes_a}->{axes}", b, a)
    sizes = dict(zip(axes_a + axes_b, a.shape + b.shape))
    result = math.prod(sizes[axis] for axis in axes)
    if axes != free_a + free_b or a.size <= b.size + result:
        return contract(equation, a, b)
    turned = jax.lax.platform_dependent(
        contract(f"{axes_b},{axes_a}->{free_b}{free_a}", b, a),
        cpu=jax.lax.optimization_barrier,
        default=lambda product: product,
    )
    return jnp.einsum(f"{free_b}{free_a}->{axes}", turned)


contract.defvjp(lambda equation, a, b: (contract(equation, a, b), (a, b)), _contract_backward)


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def softmax(scores: Float[Array, "*B S"], dtype: Any) -> Float[Array, "*B S"]:
    """Softmax computed in float32, in the precision in which it is used; its gradient needs the
    result alone."""
    return jax.nn.softmax(scores).astype(dtype)


def _softmax_forward(scores, dtype):
    weights = softmax(scores, dtype)
    return weights, weights


def _softmax_backward(dtype, weights, gradient):
    weights, gradient = weights.astype(jnp.float32), gradient.astype(jnp.float32)
    return (weights * (gradient - (weights * gradient).sum(-1, keepdims=True)),)


softmax.defvjp(_softmax_forward, _softmax_backward)


@jax.custom_vjp
def relu(x: Array) -> Array:
    """max(0, x). Its gradient needs the result alone, which the next product stores anyway."""
    return jnp.maximum(x, 0)


def _relu_forward(x):
    y = relu(x)
    return y, y


relu.defvjp(_relu_forward, lambda y, gradient: (jnp.where(y > 0, gradient, 0),))


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def normalise(epsilon: float, scale: Array, bias: Array, x: Float[Array, "*B D"]) -> Array:
    """Layer normalisation over D, computed in float32, in the precision of x."""
    return _normalise_forward(epsilon, scale, bias, x)[0]


def _normalise_forward(epsilon, scale, bias, x):
    x32 = x.astype(jnp.float32)
    mean = x32.mean(-1, keepdims=True)
    deviation = jax.lax.rsqrt(jnp.square(x32 - mean).mean(-1, keepdims=True) + epsilon)
    normed = (x32 - mean) * deviation
    return (normed * scale + bias).astype(x.dtype), (x, mean, deviation, scale)


def _normalise_backward(epsilon, saved, gradient):
    """By hand, since the one of JAX stores several arrays of the size of x."""
    x, mean, deviation, scale = saved
    gradient = gradient.astype(jnp.float32)
    normed = (x.astype(jnp.float32) - mean) * deviation
    scaled = gradient * scale
    along = (scaled * normed).mean(-1, keepdims=True)
    x_gradient = deviation * (scaled - scaled.mean(-1, keepdims=True) - normed * along)
    tokens = tuple(range(x.ndim - 1))
    return (gradient * normed).sum(tokens), gradient.sum(tokens), x_gradient.astype(x.dtype)


normalise.defvjp(_normalise_forward, _normalise_backward)


def dropout(x: Array, rate: float, key: Key[Array, ""] | None) -> Array:
    """Zeroes each element with probability `rate` and scales the others by 1 / (1 - rate)."""
    if key is None or rate == 0:
        return x
    with jax.named_scope("dropout"):
        return _drop(x, rate, jax.random.bits(key, (2,)))


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def _drop(x: Array, rate: float, words: UInt[Array, "2"]) -> Array:
    keep = random_bits(words, x.shape) >= jnp.uint32(round(rate * 2**32))
    return jnp.where(keep, x / (1 - rate), 0).astype(x.dtype)


# Dropout is its own transpose. Generating the same bits again costs less than storing the mask.
_drop.defvjp(
    lambda x, rate, words: (_drop(x, rate, words), words),
    lambda rate, words, gradient: (_drop(gradient, rate, words), None),
)


def random_bits(words: UInt[Array, "2"], shape: tuple[int, ...]) -> UInt[Array, "..."]:
    """32 random bits per element: a hash of its index and two random words.

    The mixing constants are those of "lowbias32" (https://nullprogram.com/blog/2018/07/31/). Unlike
    threefry's, these bits are computed inside the operation that uses them.
    """
    counter = jax.lax.iota(jnp.uint32, math.prod(shape)).reshape(shape)
    bits = counter + words[0]
    bits = (bits ^ (bits >> 16)) * jnp.uint32(0x7FEB352D)
    bits = ((bits ^ (bits >> 15)) + words[1]) * jnp.uint32(0x846CA68B)
    return bits ^ (bits >> 16)
