"""Gradients written out against those that JAX derives; dropout and its bits."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.model.primitives import contract, dropout, random_bits, relu, softmax


@pytest.mark.parametrize(
    "ours, theirs",
    [
        (relu, lambda x: jnp.where(x > 0, x, 0)),
        (
            lambda x: softmax(x, jnp.float32),
            lambda x: jnp.exp(x) / jnp.exp(x).sum(-1, keepdims=True),
        ),
    ],
    ids=["relu", "softmax"],
)
def test_gradients_written_out_are_those_of_jax(ours, theirs):
    x, weight = jax.random.normal(jax.random.key(0), (2, 3, 5, 7))
    np.testing.assert_allclose(
        jax.grad(lambda x: (ours(x) * weight).sum())(x),
        jax.grad(lambda x: (theirs(x) * weight).sum())(x),
        atol=1e-6,
    )


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_dropout_zeroes_at_its_rate_and_scales_the_rest(rate):
    dropped = np.asarray(dropout(jnp.ones(100_000), rate, jax.random.key(0)))
    deviation = math.sqrt(rate * (1 - rate) / dropped.size)
    assert (dropped == 0).mean() == pytest.approx(rate, abs=5 * deviation)
    np.testing.assert_allclose(dropped[dropped != 0], 1 / (1 - rate), rtol=1e-6)


def test_no_key_or_no_rate_means_no_dropout():
    x = jax.random.normal(jax.random.key(0), (4, 5))
    np.testing.assert_array_equal(dropout(x, 0.5, None), x)
    np.testing.assert_array_equal(dropout(x, 0.0, jax.random.key(1)), x)


def test_gradient_of_dropout_passes_where_the_value_passed():
    x, key = jnp.ones((30, 20)), jax.random.key(3)
    weight = jax.random.normal(jax.random.key(4), x.shape)
    gradient = jax.grad(lambda x: (dropout(x, 0.3, key) * weight).sum())(x)
    np.testing.assert_allclose(gradient, weight * dropout(x, 0.3, key), rtol=1e-6)
    assert 0 < (gradient == 0).mean() < 1


def test_dropout_is_the_same_for_the_same_key_and_inside_jit():
    x, key = jnp.ones((30, 20)), jax.random.key(3)
    compiled = jax.jit(dropout, static_argnums=1)
    np.testing.assert_array_equal(compiled(x, 0.3, key), dropout(x, 0.3, key))


def bits_of(key, count=2**16):
    return np.asarray(random_bits(jax.random.bits(key, (2,)), (count,)))


def related_keys():
    """Keys as training makes them: of neighbouring steps, micro-steps, layers and sublayers."""
    key = jax.random.key(0)
    steps = [jax.random.fold_in(key, step) for step in range(3)]
    micro_steps = [jax.random.fold_in(steps[0], index) for index in range(2)]
    return [*steps, *micro_steps, *jax.random.split(micro_steps[0], 3)]


def test_every_bit_of_the_hash_is_one_half_of_the_time():
    for key in related_keys():
        ones = (bits_of(key)[:, None] >> np.arange(32)) & 1
        np.testing.assert_allclose(ones.mean(0), 0.5, atol=5 * 0.5 / math.sqrt(2**16))


def test_bits_of_different_keys_are_uncorrelated():
    columns = np.stack([bits_of(key) for key in related_keys()]).astype(np.float64)
    correlation = np.corrcoef(columns) - np.eye(len(columns))
    assert abs(correlation).max() < 5 / math.sqrt(2**16)


def test_masks_of_keys_that_differ_in_one_bit_are_uncorrelated():
    masks = [np.ravel(dropout(jnp.ones((256, 256)), 0.1, jax.random.key(n))) for n in (0, 1, 2, 4)]
    correlation = np.corrcoef(masks) - np.eye(len(masks))
    assert abs(correlation).max() < 5 / math.sqrt(2**16)


@pytest.mark.parametrize("lag", [1, 2, 16, 64, 512, 4096])
def test_bits_of_different_positions_are_uncorrelated(lag):
    kept = bits_of(jax.random.key(7)) > 2**32 * 0.1
    correlation = np.corrcoef(kept[:-lag], kept[lag:])[0, 1]
    assert abs(correlation) < 5 / math.sqrt(2**16)


def test_neighbouring_keys_share_no_stretch_of_bits():
    # Two streams that were shifts of each other would have most of their words in common; two
    # independent ones of 2^14 words have one sixteenth of a word in common.
    streams = [bits_of(key, 2**14) for key in related_keys()]
    for number, stream in enumerate(streams):
        for other in streams[:number]:
            assert len(np.intersect1d(stream, other)) < 10


@pytest.mark.parametrize(
    "equation, a_shape, b_shape",
    [
        ("btd,df->btf", (2, 5, 6), (6, 4)),
        ("btd,dhk->bthk", (2, 5, 6), (6, 3, 4)),
        ("bthk,hkd->btd", (2, 5, 3, 4), (3, 4, 6)),
        ("btd,vd->btv", (2, 5, 6), (7, 6)),
        ("bhtk,bhks->bhts", (2, 3, 5, 4), (2, 3, 4, 6)),
        ("bhts,bhsk->bhtk", (2, 3, 5, 6), (2, 3, 6, 4)),
        ("btf,fd->btd", (8, 9, 12), (12, 3)),
        ("btd,vd->btv", (8, 9, 3), (12, 3)),
        ("bthk,hkd->btd", (8, 9, 3, 4), (3, 4, 2)),
    ],
)
def test_the_gradients_of_contract_are_those_that_jax_derives(equation, a_shape, b_shape):
    keys = jax.random.split(jax.random.key(0), 3)
    a, b = jax.random.normal(keys[0], a_shape), jax.random.normal(keys[1], b_shape)
    factor = jax.random.normal(keys[2], jnp.einsum(equation, a, b).shape)
    ours = jax.grad(lambda a, b: jnp.sum(contract(equation, a, b) * factor), (0, 1))(a, b)
    derived = jax.grad(lambda a, b: jnp.sum(jnp.einsum(equation, a, b) * factor), (0, 1))(a, b)
    for found, expected in zip(ours, derived):
        np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize(
    "equation, a_shape, b_shape",
    [
        ("btd,df->btf", (16, 20, 8), (8, 96)),
        ("btf,fd->btd", (16, 20, 96), (96, 8)),
        ("btd,vd->btv", (16, 20, 8), (96, 8)),
    ],
)
def test_a_cpu_transposes_nothing_wide_for_the_gradient_of_a_weight(equation, a_shape, b_shape):
    a, b = jnp.ones(a_shape), jnp.ones(b_shape)
    gradient = jax.grad(lambda b: jnp.sum(jnp.sin(contract(equation, a, b))))
    program = jax.jit(gradient).lower(b).compile().as_text()
    assert "= f32[8,96]{1,0} dot(" in program and "= f32[96,8]{1,0} dot(" not in program
