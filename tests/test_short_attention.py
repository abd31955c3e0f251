"""The kernel for short sentences (benchmarks/short_attention.py), interpreted, against `attend`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import short_attention
from benchmarks.short_attention import attend_shortly, in_short_kernel
from transformer.model.layers import attend, causal_mask
from transformer.training import sharding
from transformer.training.optimizer import learning_rate
from transformer.training.programs import jit_update, new_state

pytestmark = pytest.mark.slow


def values_and_gradients(attention, qkv, weight):
    def weighted_sum(*qkv):
        values = attention(*qkv)
        return jnp.vdot(values, weight), values

    gradients, values = jax.jit(jax.grad(weighted_sum, (0, 1, 2), has_aux=True))(*qkv)
    return values, *gradients


@pytest.mark.parametrize(
    "queries, keys, width, is_causal, rate",
    [(32, 32, 64, True, 0.1), (20, 37, 16, False, 0.3), (5, 3, 32, False, 0.0)],
)
def test_the_kernel_computes_what_attend_does_and_drops_the_same_weights(
    queries, keys, width, is_causal, rate
):
    generators = jax.random.split(jax.random.key(0), 5)
    lengths = queries, keys, keys, queries
    *qkv, weight = (
        jax.random.normal(key, (4, 2, length, width)) for key, length in zip(generators, lengths)
    )
    key, real, mask = generators[4], None, causal_mask(queries)
    if not is_causal:  # the last sentence is only padding
        real = jnp.arange(keys) < jnp.asarray([keys, 1, keys // 2, 0])[:, None]
        mask = real[:, None, None]

    def usual(q, k, v):
        return attend(q, k.mT, v, mask, None, rate, key)[0]

    def in_kernel(q, k, v):
        words = jax.random.bits(key, (2,))
        rows = (array.swapaxes(1, 2) for array in (q, k, v))
        mask = None if real is None else real.astype(jnp.int32)
        return attend_shortly(rate, *rows, mask, words).swapaxes(1, 2)

    for found, expected in zip(*(values_and_gradients(f, qkv, weight) for f in (in_kernel, usual))):
        np.testing.assert_allclose(found, expected, atol=2e-5)


def test_an_update_in_the_kernel_is_the_usual_update(small_config, random_batch, monkeypatch):
    config = small_config({"dtype": "bfloat16", "num_heads": 1, "attention_dropout": 0.2})
    mesh = sharding.make_mesh()
    batch = random_batch(rows=8, source_length=9, target_length=7)

    def updated():
        update, rows = jit_update(mesh, config), sharding.shard_batch(mesh, batch)
        return update(new_state(mesh, config), rows, learning_rate(config, 1))[1]

    usual = updated()
    calls = []
    kernel = short_attention.attend_shortly
    monkeypatch.setattr(
        short_attention, "attend_shortly", lambda *args: calls.append(1) or kernel(*args)
    )
    with in_short_kernel():
        in_kernel = updated()
    assert len(calls) == config.model.encoder_layers + 2 * config.model.decoder_layers
    np.testing.assert_allclose(in_kernel.sums.loss, usual.sums.loss, rtol=1e-3)
    np.testing.assert_allclose(in_kernel.gradient_norm, usual.gradient_norm, rtol=1e-2)
