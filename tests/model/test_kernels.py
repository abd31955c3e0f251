"""Kernels against the attention that they replace: the GPU's on one, the TPU's interpreted."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from transformer.model.kernels import LONG, attend_in_kernel, fits_kernel
from transformer.model.layers import attend, causal_mask
from transformer.training import sharding

on_gpu = pytest.mark.skipif(jax.default_backend() != "gpu", reason="cuDNN's kernel is for GPUs")
ACCELERATORS = [pytest.param("gpu", marks=on_gpu), "tpu"]


@pytest.mark.parametrize("accelerator", ["gpu", "tpu"])
@pytest.mark.parametrize(
    "more_queries, more_keys, width, dtype, has_bias, rate, fits",
    [
        (0, 0, 64, jnp.bfloat16, False, 0.0, True),
        (-1, 0, 64, jnp.bfloat16, False, 0.0, False),
        (0, -1, 64, jnp.bfloat16, False, 0.0, False),
        (0, 0, 60, jnp.bfloat16, False, 0.0, False),
        (0, 0, 64, jnp.float32, False, 0.0, False),
        (0, 0, 64, jnp.bfloat16, True, 0.0, False),
        (0, 0, 64, jnp.bfloat16, False, 0.1, False),
    ],
)
def test_kernels_take_long_attention_in_16_bits_without_bias_and_dropout(
    accelerator, more_queries, more_keys, width, dtype, has_bias, rate, fits
):
    long = LONG[accelerator]
    q = jnp.zeros((1, 2, long + more_queries, width), dtype)
    k = jnp.zeros((1, 2, width, long + more_keys), dtype)
    bias = jnp.zeros((1, 1, 1, long)) if has_bias else None
    assert fits_kernel(accelerator, q, k, bias, rate) == fits
    assert not fits_kernel("", q, k, bias, rate)


def inputs(queries, keys, rows=3):
    """q, k, v, what weighs the result, and how long each row's keys are."""
    shapes = [(rows, 2, length, 64) for length in (queries, keys, keys, queries)]
    arrays = [jax.random.normal(jax.random.key(n), shape) for n, shape in enumerate(shapes)]
    lengths = jnp.resize(jnp.asarray([keys, 1, keys // 2]), rows)[:, None, None, None]
    return arrays, jnp.arange(keys) < lengths


def values_and_gradients(attention, arrays, dtype):
    q, k, v, weight = (array.astype(jnp.bfloat16).astype(dtype) for array in arrays)

    def weighted_sum(q, k, v):
        values = attention(q, k.mT, v)
        return jnp.vdot(values, weight, preferred_element_type=jnp.float32), values

    return jax.jit(jax.grad(weighted_sum, (0, 1, 2), has_aux=True))(q, k, v)


def assert_same(accelerator, arrays, mask):
    found = values_and_gradients(
        lambda *qkv: attend_in_kernel(accelerator, *qkv, mask), arrays, jnp.bfloat16
    )
    exact = values_and_gradients(lambda *qkv: attend(*qkv, mask)[0], arrays, jnp.float32)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(exact)):
        largest = float(jnp.abs(b).max())
        np.testing.assert_allclose(a.astype(jnp.float32), b, atol=0.02 * largest)


@pytest.mark.parametrize("accelerator", ACCELERATORS)
@pytest.mark.parametrize("queries, keys", [(128, 128), (200, 96), (96, 300)])
def test_kernels_compute_what_the_products_do(accelerator, queries, keys):
    arrays, padding = inputs(queries, keys)
    assert_same(accelerator, arrays, padding)


@pytest.mark.parametrize("accelerator", ACCELERATORS)
@pytest.mark.parametrize("length", [128, 200, 640])
def test_kernels_look_at_no_later_position(accelerator, length):
    arrays, _ = inputs(length, length, rows=1)
    assert_same(accelerator, arrays, causal_mask(length))


def test_each_device_runs_the_kernel_on_its_own_sentences():
    (q, k, v, _), mask = inputs(128, 128, rows=8)
    mesh = sharding.make_mesh()

    def attend_on_mesh(*arrays):
        with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
            return attend_in_kernel("tpu", *arrays)

    rows = sharding.split_over(mesh)
    compiled = jax.jit(attend_on_mesh, in_shardings=rows, out_shardings=rows)
    arrays = (q, k.mT, v, mask)
    np.testing.assert_allclose(compiled(*arrays), attend_in_kernel("tpu", *arrays), atol=1e-5)
    assert compiled(*arrays).sharding.spec == PartitionSpec("data")
    assert not any(
        name in compiled.lower(*arrays).compile().as_text() for name in ("all-", "permute")
    )
