"""Kernels against the attention that they replace: the GPU's on one, the TPU's interpreted."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec

from transformer.model import kernels, layers
from transformer.model.batch import PAD
from transformer.model.kernels import LONG, attend_in_kernel, fits_kernel
from transformer.model.layers import attend, causal_mask
from transformer.training import sharding
from transformer.training.programs import jit_update, new_state

on_gpu = pytest.mark.skipif(jax.default_backend() != "gpu", reason="cuDNN's kernel is for GPUs")
ACCELERATORS = [pytest.param("gpu", marks=on_gpu), "tpu"]


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    """The TPU's kernel runs where there is none, slowly."""
    if jax.default_backend() != "tpu":
        make = partial(kernels.splash.make_splash_mha, interpret=True)
        monkeypatch.setattr(kernels.splash, "make_splash_mha", make)


@pytest.mark.parametrize("accelerator", ["gpu", "tpu"])
@pytest.mark.parametrize(
    "more_queries, more_keys, width, dtype, has_bias, rate, fits",
    [
        (0, 0, 64, jnp.bfloat16, False, 0.0, True),
        (-1, 0, 64, jnp.bfloat16, False, 0.0, False),
        (0, -1, 64, jnp.bfloat16, False, 0.0, False),
        (0, 0, 60, jnp.bfloat16, False, 0.0, False),
        (0, 0, 2048, jnp.bfloat16, False, 0.0, False),
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


def inputs(queries, keys, rows=3, width=64):
    """q, k, v, what weighs the result, and how long each row's keys are."""
    shapes = [(rows, 2, length, width) for length in (queries, keys, keys, queries)]
    arrays = [jax.random.normal(jax.random.key(n), shape) for n, shape in enumerate(shapes)]
    lengths = jnp.resize(jnp.asarray([keys, 1, keys // 2]), rows)[:, None, None, None]
    return arrays, jnp.arange(keys) < lengths


def values_and_gradients(attention, arrays, dtype):
    q, k, v, weight = (array.astype(jnp.bfloat16).astype(dtype) for array in arrays)

    def weighted_sum(q, k, v):
        values = attention(q, k.mT, v)
        return jnp.vdot(values, weight, preferred_element_type=jnp.float32), values

    return jax.jit(jax.grad(weighted_sum, (0, 1, 2), has_aux=True))(q, k, v)


def assert_same(accelerator, arrays, mask, rows=slice(None)):
    """Gradients, and the values of some rows, as those of `attend` in float32."""

    def in_kernel(*qkv):
        return attend_in_kernel(accelerator, *qkv, mask)

    found, found_values = values_and_gradients(in_kernel, arrays, jnp.bfloat16)
    exact, values = values_and_gradients(lambda *qkv: attend(*qkv, mask)[0], arrays, jnp.float32)
    assert jnp.isfinite(found_values).all()
    for a, b in zip((*found, found_values[rows]), (*exact, values[rows])):
        largest = float(jnp.abs(b).max())
        np.testing.assert_allclose(a.astype(jnp.float32), b, atol=0.02 * largest)


@pytest.mark.parametrize("accelerator", ACCELERATORS)
@pytest.mark.parametrize(
    "queries, keys, width", [(128, 128, 64), (200, 96, 80), (101, 128, 64), (128, 301, 128)]
)
def test_kernels_compute_what_the_products_do(accelerator, queries, keys, width):
    arrays, padding = inputs(queries, keys, width=width)
    assert_same(accelerator, arrays, padding)


@pytest.mark.parametrize("accelerator", ACCELERATORS)
def test_a_sentence_that_is_only_padding_disturbs_nothing(accelerator):
    (q, k, v, weight), padding = inputs(128, 128)
    padding, weight = padding.at[1].set(False), weight.at[1].set(0)
    assert_same(accelerator, (q, k, v, weight), padding, rows=jnp.asarray([0, 2]))


@pytest.mark.parametrize("accelerator", ACCELERATORS)
@pytest.mark.parametrize("length", [101, 128, 200, 257, 640])
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


@pytest.mark.slow
def test_an_update_in_kernels_is_the_usual_update(small_config, random_batch, monkeypatch):
    calls = []

    def counted(*arguments):
        calls.append(arguments)
        return attend_in_kernel(*arguments)

    monkeypatch.setitem(kernels.LONG, "tpu", 8)
    monkeypatch.setattr(layers, "attend_in_kernel", counted)
    batch = random_batch(rows=8, source_length=9, target_length=9)
    batch = jax.tree.map(lambda tokens: tokens.at[3].set(PAD), batch)

    def updated(accelerator):
        model = {"dtype": "bfloat16", "num_heads": 2, "recompute": True}
        config = small_config(model | {"accelerator": accelerator}, micro_batches=2)
        mesh = sharding.make_mesh()
        rows = sharding.shard_batch(mesh, batch, 2)
        state, metrics = jit_update(mesh, config)(new_state(mesh, config), rows, np.float32(1e-3))
        return metrics, optax.tree.get(state.opt_state, "mu")

    usual, moments = updated("")
    assert not calls
    found, found_moments = updated("tpu")
    assert calls
    np.testing.assert_allclose(found.sums.loss, usual.sums.loss, rtol=1e-3)
    np.testing.assert_allclose(found.gradient_norm, usual.gradient_norm, rtol=1e-2)
    for a, b in zip(jax.tree.leaves(found_moments), jax.tree.leaves(moments)):
        np.testing.assert_allclose(a, b, atol=0.15 * float(np.abs(b).max()))
