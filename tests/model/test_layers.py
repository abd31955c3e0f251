"""Attention, feed-forward, norms, positions and dropout against other people's and plain ones."""

import itertools
import math

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.model.batch import PAD
from transformer.model.encoder_decoder import offsets_between
from transformer.model.layers import (
    KeyValue,
    attend,
    attention,
    causal_mask,
    embed,
    feed_forward,
    key_value,
    layer_norm,
    linear,
    multi_head_attention,
    padding_mask,
    position_encoding,
    project,
    rotated,
    sinusoids,
)
from transformer.model.params import Attention, FeedForward, Norm, unstack

# ---------------------------------------------------------------- scaled dot-product attention

X1 = np.array([3, 0, 1, -0.5], np.float32)
W_Q = np.array([[1.5, 1, 2], [3, -2, 5], [1, 2, -2], [9, 4, 2]], np.float32)
W_K = np.array([[1, 0.5, 2], [-2, 0.5, 3], [0.5, 2, -3], [5, 3, 2]], np.float32)
OTHER_KEYS = np.array([[3, 4, 3], [5, 2, 3], [3, 2, 1]], np.float32)
VALUES = np.array([[1, 0.5, -1], [4, 5, -2], [-3, 2, 2], [1, 1, 6]], np.float32)


def projected(weight):
    return project(jnp.asarray(X1)[None, None], jnp.asarray(weight)[:, None], None)


def test_query_and_key_of_the_worked_example():
    np.testing.assert_allclose(projected(W_Q)[0, 0, 0], [1, 3, 3])
    np.testing.assert_allclose(projected(W_K)[0, 0, 0], [1, 2, 2])


def test_scores_and_output_of_the_worked_example():
    keys = jnp.concatenate([projected(W_K)[0, 0], OTHER_KEYS])
    query = projected(W_Q)[0, 0, 0]
    np.testing.assert_allclose(keys @ query, [13, 24, 20, 12])

    def padded_to_64(x):
        return jnp.pad(x, [(0, 0), (0, 61)])

    output, weights = attention(padded_to_64(query[None]), padded_to_64(keys), jnp.asarray(VALUES))
    exponentials = np.exp([1.625, 3, 2.5, 1.5])  # the scores divided by sqrt(64)
    np.testing.assert_allclose(weights[0], exponentials / exponentials.sum(), rtol=1e-5)
    np.testing.assert_allclose(output[0], [1.2756, 3.1513, 0.1436], atol=1e-4)


def numpy_attention(q, k, v, mask, bias):
    """Equation 1 in loops over sentences and heads, in float64."""
    batch, heads, queries, width = q.shape
    output = np.zeros((batch, heads, queries, v.shape[-1]))
    for b in range(batch):
        for h in range(heads):
            scores = q[b, h] @ k[b, h].T / math.sqrt(width) + bias[b, h]
            scores = np.where(mask[b, 0], scores, -np.inf)
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            output[b, h] = weights / weights.sum(-1, keepdims=True) @ v[b, h]
    return output


@pytest.mark.parametrize("value_width", [3, 5], ids=["d_v = d_k", "d_v != d_k"])
@pytest.mark.parametrize("queries", [1, 4, 12], ids=["one query", "few queries", "many queries"])
def test_attend_equals_equation_1_with_mask_and_bias(queries, value_width):
    generator = np.random.default_rng(0)
    q, k = generator.normal(size=(2, 2, queries, 3)), generator.normal(size=(2, 2, 6, 3))
    v, bias = (
        generator.normal(size=(2, 2, 6, value_width)),
        generator.normal(size=(2, 2, queries, 6)),
    )
    mask = generator.random((2, 1, queries, 6)) < 0.6
    mask[..., 0] = True
    expected = numpy_attention(q, k, v, mask, bias)
    q, k, v, bias = (jnp.asarray(x, jnp.float32) for x in (q, k, v, bias))
    values, weights = attend(q, k.swapaxes(2, 3), v, jnp.asarray(mask), bias)
    np.testing.assert_allclose(values, expected, atol=1e-6)
    np.testing.assert_allclose(np.asarray(weights).sum(-1), 1, atol=1e-6)
    assert (np.asarray(weights)[~np.broadcast_to(mask, weights.shape)] == 0).all()


def test_attention_of_matrices_is_equation_1():
    q, k, v = (jax.random.normal(jax.random.key(n), (n, 3)) for n in (2, 5, 6))
    v = v[:5]
    for mask in (None, jnp.tri(2, 5, 1, bool)):
        kept = np.ones((2, 5), bool) if mask is None else np.asarray(mask)
        expected = numpy_attention(
            *(np.asarray(x)[None, None] for x in (q, k, v, kept)), np.zeros((1, 1, 2, 5))
        )
        values, weights = attention(q, k, v, mask)
        np.testing.assert_allclose(values, expected[0, 0], atol=1e-6)
        np.testing.assert_array_equal(np.asarray(weights) > 0, kept)


@pytest.mark.parametrize("use_bias", [False, True], ids=["no biases", "biases"])
@pytest.mark.parametrize("kind", ["self", "masked", "cross"])
def test_multi_head_attention_equals_linen(kind, use_bias):
    oracle = nn.MultiHeadDotProductAttention(num_heads=2, qkv_features=12, use_bias=use_bias)
    x = jax.random.normal(jax.random.key(0), (2, 5, 12))
    other = jax.random.normal(jax.random.key(1), (2, 7, 12)) if kind == "cross" else x
    tokens = jnp.asarray([[5] * other.shape[1], [5, 5] + [PAD] * (other.shape[1] - 2)])
    mask = causal_mask(5) if kind == "masked" else padding_mask(tokens)
    variables = jax.tree.map(
        lambda leaf: jax.random.normal(jax.random.key(leaf.size), leaf.shape) / 3,
        oracle.init(jax.random.key(2), x, other),
    )["params"]
    names = ("query", "key", "value", "out")
    biases = [variables[name]["bias"] for name in names] if use_bias else []
    params = Attention(*(variables[name]["kernel"] for name in names), *biases)
    output, _ = multi_head_attention(params, x, key_value(params, other), mask)
    expected = oracle.apply({"params": variables}, x, other, mask=mask)
    np.testing.assert_allclose(output, expected, atol=1e-5)


def test_causal_mask_lets_a_position_see_itself_and_what_came_before():
    expected = [[query >= seen for seen in range(4)] for query in range(4)]
    np.testing.assert_array_equal(causal_mask(4)[0, 0], expected)


# ---------------------------------------------------------------- the other layers


def test_sinusoids_equal_the_formula():
    encoding = sinusoids(jnp.arange(50), 12)
    for position in (0, 1, 7, 49):
        for i in range(6):
            angle = position / 10000 ** (2 * i / 12)
            assert encoding[position, 2 * i] == pytest.approx(math.sin(angle), abs=1e-5)
            assert encoding[position, 2 * i + 1] == pytest.approx(math.cos(angle), abs=1e-5)


def test_learned_positions_are_rows_of_their_table(small_model):
    table, rows = jax.random.normal(jax.random.key(0), (9, 4)), jnp.asarray([3, 8])
    np.testing.assert_array_equal(
        position_encoding(small_model(positions="learned"), table, rows[None])[0], table[rows]
    )


def test_relative_positions_add_a_number_for_each_head_and_clipped_offset(
    small_model, random_params
):
    model = small_model(positions="relative", max_offset=2)
    params = unstack(random_params(model).encoder)[0].self_attention
    x = jax.random.normal(jax.random.key(0), (1, 6, 16))
    places = jnp.arange(6)[None]
    found, _ = multi_head_attention(
        params, x, key_value(params, x), causal_mask(6), offsets_between(places, places)
    )
    expected = np.zeros((6, 16))
    for head in range(4):
        q, k, v = (np.asarray(x[0] @ w[:, head]) for w in (params.w_q, params.w_k, params.w_v))
        for t in range(6):
            scores = [
                q[t] @ k[s] / 2 + float(params.offset_bias[head, max(s - t, -2) + 2])
                for s in range(t + 1)
            ]
            weights = np.exp(scores) / np.exp(scores).sum()
            expected[t] += weights @ v[: t + 1] @ np.asarray(params.w_o[head])
    np.testing.assert_allclose(found[0], expected, atol=1e-5)


def test_rotary_positions_equal_the_formula_and_scores_depend_on_distance_alone():
    generator = np.random.default_rng(0)
    x = generator.normal(size=(1, 5, 2, 6)).astype(np.float32)
    found = rotated(jnp.asarray(x), jnp.arange(5)[None])
    for position, pair in itertools.product(range(5), range(3)):
        turn = np.exp(1j * position / 10000 ** (2 * pair / 6))
        expected = (x[0, position, :, 2 * pair] + 1j * x[0, position, :, 2 * pair + 1]) * turn
        np.testing.assert_allclose(found[0, position, :, 2 * pair], expected.real, atol=1e-6)
        np.testing.assert_allclose(found[0, position, :, 2 * pair + 1], expected.imag, atol=1e-6)
    later = rotated(jnp.asarray(x), jnp.arange(5)[None] + 7)
    scores = (jnp.einsum("bthk,bshk->bhts", turned, turned) for turned in (found, later))
    np.testing.assert_allclose(*scores, atol=1e-5)


def test_embeddings_are_scaled_by_the_root_of_their_width(small_model):
    table, tokens = jax.random.normal(jax.random.key(0), (23, 16)), jnp.asarray([[3, 4, 4]])
    x = embed(small_model(), table, jnp.ones((1, 3, 16)), tokens)
    np.testing.assert_allclose(x[0], 4 * table[tokens[0]] + 1, rtol=1e-6)


@pytest.mark.parametrize("epsilon", [1e-6, 0.1])
def test_layer_norm_equals_linen(small_model, epsilon):
    x = 3 + 0.5 * jax.random.normal(jax.random.key(0), (2, 3, 16))
    scale, bias = jax.random.normal(jax.random.key(1), (2, 16))
    ours = layer_norm(small_model(norm_epsilon=epsilon), Norm(scale, bias), x)
    linen = nn.LayerNorm(epsilon=epsilon).apply({"params": {"scale": scale, "bias": bias}}, x)
    np.testing.assert_allclose(ours, linen, atol=1e-5)


@pytest.mark.parametrize("activation", ["relu", "gelu", "swish"])
def test_feed_forward_equals_equation_2(small_model, activation):
    generator = np.random.default_rng(0)
    w_1, b_1 = generator.normal(size=(16, 24)), generator.normal(size=24)
    w_2, b_2 = generator.normal(size=(24, 16)), generator.normal(size=16)
    x = generator.normal(size=(2, 3, 16))
    plain = {
        "relu": lambda z: np.maximum(z, 0),
        "gelu": lambda z: z * (1 + np.vectorize(math.erf)(z / math.sqrt(2))) / 2,
        "swish": lambda z: z / (1 + np.exp(-z)),
    }[activation]
    params = FeedForward(*(jnp.asarray(p, jnp.float32) for p in (w_1, b_1, w_2, b_2)))
    ours = feed_forward(small_model(activation=activation), params, jnp.asarray(x, jnp.float32))
    np.testing.assert_allclose(ours, plain(x @ w_1 + b_1) @ w_2 + b_2, atol=1e-4)


def test_norms_and_softmax_compute_in_float32_whatever_they_are_given(small_model):
    x = (100 + jax.random.normal(jax.random.key(0), (1, 4, 16))).astype(jnp.bfloat16)
    ours = layer_norm(small_model(), Norm(jnp.ones(16), jnp.zeros(16)), x)
    exact = layer_norm(small_model(), Norm(jnp.ones(16), jnp.zeros(16)), x.astype(jnp.float32))
    assert ours.dtype == jnp.bfloat16
    np.testing.assert_allclose(ours.astype(jnp.float32), exact, atol=0.02)
    heads = 3 * jax.random.normal(jax.random.key(1), (1, 2, 4, 3), jnp.bfloat16)
    rough = attend(heads, heads.mT, heads, causal_mask(4))[1].astype(jnp.float32)
    wide = heads.astype(jnp.float32)
    exact = attend(wide, wide.mT, wide, causal_mask(4))[1]
    np.testing.assert_allclose(rough, exact, rtol=2**-8, atol=1e-6)  # rounded once


def test_layer_norms_gradients_are_flaxs(small_model):
    x, weight = 3 + jax.random.normal(jax.random.key(0), (2, 3, 5, 16))
    scale, bias = jax.random.normal(jax.random.key(1), (2, 16))
    flax_norm = nn.LayerNorm(epsilon=small_model().norm_epsilon, use_fast_variance=False)

    def ours(scale, bias, x):
        return (layer_norm(small_model(), Norm(scale, bias), x) * weight).sum()

    def theirs(scale, bias, x):
        return (flax_norm.apply({"params": {"scale": scale, "bias": bias}}, x) * weight).sum()

    found, expected = (jax.grad(f, (0, 1, 2))(scale, bias, x) for f in (ours, theirs))
    for gradient, other in zip(found, expected):
        np.testing.assert_allclose(gradient, other, atol=1e-5)


def test_word_dropout_leaves_out_whole_words_and_keeps_their_positions(small_model):
    model = small_model(word_dropout=0.4, embedding_scale=False)
    table, tokens = jnp.ones((23, 16)), jnp.full((50, 200), 7)
    encoding = jnp.full((1, 200, 16), 3.0)
    x = np.asarray(embed(model, table, encoding, tokens, jax.random.key(1))) - 3
    left_out = x == 0
    assert (left_out.all(-1) | ~left_out.any(-1)).all()
    np.testing.assert_allclose(left_out.mean(), 0.4, atol=0.02)
    np.testing.assert_allclose(x[~left_out], 1 / 0.6, rtol=1e-5)
    np.testing.assert_array_equal(embed(model, table, encoding, tokens), encoding + table[tokens])


def test_key_value_is_a_pair_of_projections():
    params = Attention(*jax.random.normal(jax.random.key(0), (4, 6, 2, 3)))
    x = jax.random.normal(jax.random.key(1), (1, 5, 6))
    kv = key_value(params, x)
    assert isinstance(kv, KeyValue)
    np.testing.assert_allclose(kv.k.mT, jnp.einsum("btd,dhk->bhtk", x, params.w_k), atol=1e-5)
    np.testing.assert_allclose(kv.v, jnp.einsum("btd,dhk->bhtk", x, params.w_v), atol=1e-5)


def test_linear_sums_in_float32_and_keeps_the_precision_of_its_input():
    x, weight, bias = jnp.ones((1, 1001, 1024), jnp.bfloat16), jnp.ones((1024, 3)), jnp.ones(3)

    def total(x, weight, bias):
        return linear("btd,df->btf", x, weight, bias).astype(jnp.float32).sum()

    assert linear("btd,df->btf", x, weight).dtype == jnp.bfloat16
    assert linear("btd,df->btf", x, weight)[0, 0, 0] == 1024  # sums in bfloat16 would stop at 256
    of_x, of_weight, of_bias = jax.grad(total, (0, 1, 2))(x, weight, bias)
    assert of_x.dtype == jnp.bfloat16
    np.testing.assert_array_equal(of_weight, 1001)  # which bfloat16 would round to 1000
    np.testing.assert_array_equal(of_bias, 1001)
