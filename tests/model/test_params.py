"""How many weights there are, how they start, and the table that lists them."""

import math
from functools import partial

import jax
import numpy as np
import pytest

from transformer.config import ModelConfig
from transformer.model.params import count_params, init_params, param_table


def shapes(model):
    return jax.eval_shape(partial(init_params, model), jax.random.key(0))


def base(**changes):
    return ModelConfig(source_vocab_size=37_000, target_vocab_size=37_000, **changes)


def test_base_and_big_have_the_parameters_that_the_paper_rounds_to_65_and_213_million():
    big = base(d_model=1024, num_heads=16, d_ff=4096, dropout=0.3)
    assert count_params(shapes(base())) == 63_045_632
    assert count_params(shapes(big)) == 214_171_648


@pytest.mark.parametrize(
    "changes, more",
    [
        ({"attention_bias": True}, 18 * 4 * 512),
        ({"output_bias": True}, 37_000),
        ({"tying": "target"}, 37_000 * 512),
        ({"tying": "none"}, 2 * 37_000 * 512),
        ({"positions": "learned", "max_positions": 100}, 2 * 100 * 512),
        ({"norm": "pre"}, 2 * 2 * 512),
        ({"num_heads": 4}, 0),
        ({"activation": "gelu", "dtype": "bfloat16"}, 0),
        ({"encoder_layers": 7}, 4 * 512**2 + 2 * 512 * 2048 + 2048 + 512 + 2 * 2 * 512),
        ({"decoder_layers": 7}, 8 * 512**2 + 2 * 512 * 2048 + 2048 + 512 + 3 * 2 * 512),
    ],
    ids=lambda value: str(value),
)
def test_each_option_adds_exactly_its_own_parameters(changes, more):
    assert count_params(shapes(base(**changes))) == 63_045_632 + more


def test_table_names_every_weight_once_and_ends_with_the_total(small_model):
    params = shapes(small_model(attention_bias=True, norm="pre"))
    *rows, total = param_table(params).splitlines()
    assert len(rows) == len(jax.tree.leaves(params)) == len({row.split()[0] for row in rows})
    sizes = [int(row.split()[-1].replace(",", "")) for row in rows]
    assert sizes == [leaf.size for leaf in jax.tree.leaves(params)]
    assert total.split() == ["total", f"{sum(sizes):,}"]
    assert "decoder.layers.cross_attention.w_q" in param_table(params)


def test_weights_start_as_glorot_says_and_embeddings_with_variance_one_over_width(small_model):
    model = small_model(
        d_model=64, d_ff=128, source_vocab_size=500, target_vocab_size=500, tying="none",
        attention_bias=True, positions="learned",
    )  # fmt: skip
    params = jax.jit(init_params, static_argnums=0)(model, jax.random.key(0))
    attention = params.decoder.layers.cross_attention
    feed_forward = params.encoder.layers.feed_forward
    limits = [(getattr(attention, name), 64 + 64) for name in ("w_q", "w_k", "w_v", "w_o")]
    for weight, fans in [*limits, (feed_forward.w_1, 64 + 128), (feed_forward.w_2, 64 + 128)]:
        limit = math.sqrt(6 / fans)
        assert 0.99 * limit < np.abs(weight).max() <= limit
        assert np.std(weight) == pytest.approx(limit / math.sqrt(3), rel=0.05)
        assert abs(np.mean(weight)) < 0.05 * limit
    embedding = params.embedding
    for table in (embedding.source, embedding.target, embedding.output, embedding.source_positions):
        assert np.std(table) == pytest.approx(1 / 8, rel=0.05)
    assert (params.encoder.layers.self_attention_norm.scale == 1).all()
    for zeros in (attention.b_q, attention.b_o, feed_forward.b_1, feed_forward.b_2):
        assert (zeros == 0).all()


def test_no_two_weights_start_the_same(small_model):
    model = small_model(d_ff=16, tying="none", positions="learned", max_positions=23)
    params = jax.jit(init_params, static_argnums=0)(model, jax.random.key(0))
    starts = [
        tuple(np.asarray(layer).reshape(-1)[:4].tolist())
        for leaf in jax.tree.leaves((params.encoder.layers, params.decoder.layers))
        for layer in leaf
        if np.std(layer) > 0
    ]
    tables = jax.tree.leaves(params.embedding)
    starts += [tuple(np.asarray(table).reshape(-1)[:4].tolist()) for table in tables]
    assert len(starts) == len(set(starts)) > 20


def test_the_same_key_gives_the_same_parameters_and_another_key_others(small_model):
    draw = jax.jit(init_params, static_argnums=0)
    first, again, other = (
        draw(small_model(), jax.random.key(seed)).embedding.source for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.allclose(first, other)
