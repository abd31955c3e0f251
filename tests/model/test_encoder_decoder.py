"""What holds of the whole model: what it may look at, and what must change nothing."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import TypeCheckError

from transformer.model import encoder_decoder
from transformer.model.batch import PAD, Batch
from transformer.model.encoder_decoder import (
    Memory,
    context_of,
    decode,
    embed_source,
    embed_target,
    encode,
    final_norm,
    layer_memory,
    logits,
    run_encoder,
    run_layer,
    token_log_probs,
)
from transformer.model.encoder_decoder import predict as predict_batch
from transformer.model.layers import causal_mask, padding_mask
from transformer.model.params import init_params, output_layer, unstack

NORMS = pytest.mark.parametrize("norm", ["post", "pre"])


@partial(jax.jit, static_argnums=0)
def predict(model, params, source, target_in):
    """Logits at every target position."""
    return predict_batch(model, params, Batch(source, target_in, target_in))


def decoded(model, params, memory, target_in, key=None):
    """The same, of a memory."""
    return logits(output_layer(params), decode(model, params, memory, target_in, key=key)[0])


# ---------------------------------------------------------------- what the decoder may look at


@NORMS
def test_no_gradient_reaches_a_logit_from_a_later_target_position(
    small_model, random_params, random_batch, norm
):
    # With learned positions, row t of their table is part of the input at position t alone.
    model = small_model(positions="learned", norm=norm)
    params, batch = random_params(model), random_batch()
    length = batch.target_in.shape[1]
    weight = jax.random.normal(jax.random.key(1), (length, model.target_vocab_size))

    @jax.jit
    @jax.jacrev
    def influence(table):
        embedding = params.embedding.replace(target_positions=table)
        memory = encode(model, params, batch.source)
        out = decoded(model, params.replace(embedding=embedding), memory, batch.target_in)
        return (out * weight).sum((0, 2))

    reached = np.abs(influence(params.embedding.target_positions)).sum(-1)[:, :length] > 0
    np.testing.assert_array_equal(reached, np.tril(np.ones((length, length), bool)))


@NORMS
def test_every_encoder_position_sees_every_other(small_model, random_params, norm):
    model = small_model(positions="learned", norm=norm)
    params = random_params(model)
    source = jnp.arange(3, 8)[None]
    weight = jax.random.normal(jax.random.key(1), (5, model.d_model))

    @jax.jit
    @jax.jacrev
    def influence(table):
        embedding = params.embedding.replace(source_positions=table)
        memory = encode(model, params.replace(embedding=embedding), source)
        return (memory.states * weight).sum((0, 2))

    assert (np.abs(influence(params.embedding.source_positions)).sum(-1)[:, :5] > 0).all()


def test_decoder_attends_to_the_memory_and_only_to_its_real_positions(
    small_model, random_params, random_batch
):
    model = small_model()
    params, batch = random_params(model), random_batch()
    memory = jax.jit(encode, static_argnums=0)(model, params, batch.source)
    decode_now = jax.jit(partial(decoded, model, params))
    real = (batch.source != PAD)[..., None]
    noise = jax.random.normal(jax.random.key(1), memory.states.shape) * 100
    before = decode_now(memory, batch.target_in)
    padding_changed = memory.replace(states=jnp.where(real, memory.states, noise))
    np.testing.assert_array_equal(decode_now(padding_changed, batch.target_in), before)
    source_changed = memory.replace(states=jnp.where(real, noise, memory.states))
    assert np.abs(decode_now(source_changed, batch.target_in) - before).min(-1).max() > 1e-3


def all_weights(model, params, batch):
    """Those of the encoder, of masked and of cross attention."""
    memory, encoder = run_encoder(model, params, batch.source)
    _, _, decoder = decode(model, params, memory, batch.target_in)
    assert encoder.cross is None
    return encoder.own, decoder.own, decoder.cross


def test_attention_weights_are_distributions_over_what_may_be_seen(
    small_model, random_params, random_batch
):
    model = small_model(encoder_layers=3)
    params, batch = random_params(model), random_batch()
    encoder, masked, cross = all_weights(model, params, batch)
    assert encoder.shape == (3, 4, 4, 11, 11)
    assert masked.shape == (2, 4, 4, 10, 10)
    assert cross.shape == (2, 4, 4, 10, 11)
    for weights in (encoder, masked, cross):
        np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)
    for weights in (encoder, cross):
        padding = jnp.broadcast_to((batch.source == PAD)[None, :, None, None], weights.shape)
        assert (weights[padding] == 0).all()
    later = jnp.broadcast_to(~causal_mask(10)[None], masked.shape)
    assert (masked[later] == 0).all()
    assert (masked[~later] > 0).all()


def test_the_weights_of_each_attention_are_those_of_its_own_queries(
    small_model, random_params, random_batch
):
    """Queries of nothing look everywhere alike: in that layer and nowhere before."""
    model = small_model()
    params, batch = random_params(model), random_batch()
    before = all_weights(model, params, batch)
    for place, (stack, attention) in enumerate(
        [
            ("encoder", "self_attention"),
            ("decoder", "self_attention"),
            ("decoder", "cross_attention"),
        ]
    ):
        layers = getattr(params, stack).layers
        theirs = getattr(layers, attention)
        mute = theirs.replace(w_q=theirs.w_q.at[1].set(0))
        changed = getattr(params, stack).replace(layers=layers.replace(**{attention: mute}))
        after = all_weights(model, params.replace(**{stack: changed}), batch)
        np.testing.assert_array_equal(after[place][0], before[place][0])
        seen = before[place][1] > 0
        alike = seen / seen.sum(-1, keepdims=True)
        np.testing.assert_allclose(after[place][1], alike, atol=1e-6)
        assert np.abs(before[place][1] - alike).max() > 0.01


# ---------------------------------------------------------------- what must change nothing


@NORMS
def test_padding_changes_nothing_at_real_positions(small_model, random_params, random_batch, norm):
    model = small_model(norm=norm)
    params, batch = random_params(model), random_batch()
    real = np.asarray(batch.target_out != PAD)
    expected = predict(model, params, batch.source, batch.target_in)[real]
    more_columns = jax.tree.map(lambda ids: jnp.pad(ids, ((0, 0), (0, 3))), batch)
    wider = predict(model, params, more_columns.source, more_columns.target_in)[:, :10][real]
    np.testing.assert_allclose(wider, expected, atol=1e-5)
    more_rows = jax.tree.map(lambda ids: jnp.pad(ids, ((0, 2), (0, 0))), batch)
    higher = predict(model, params, more_rows.source, more_rows.target_in)
    np.testing.assert_allclose(higher[:4][real], expected, atol=1e-5)
    assert np.isfinite(higher).all()


def test_lengths_count_real_source_tokens(small_model, random_params):
    source = jnp.asarray([[5, 6, 2, PAD], [2, PAD, PAD, PAD]])
    memory = encode(small_model(), random_params(small_model()), source)
    np.testing.assert_array_equal(memory.lengths, [3, 1])


def test_the_order_of_a_batch_is_the_order_of_its_results(small_model, random_params, random_batch):
    model = small_model()
    params, batch = random_params(model), random_batch()
    order = jnp.asarray([2, 0, 3, 1])
    expected = predict(model, params, batch.source, batch.target_in)[order]
    shuffled = predict(model, params, batch.source[order], batch.target_in[order])
    np.testing.assert_allclose(shuffled, expected, atol=1e-5)


@NORMS
def test_stacked_layers_equal_the_layers_one_by_one(small_model, random_params, random_batch, norm):
    model = small_model(norm=norm, encoder_layers=3)
    params, batch = random_params(model), random_batch()

    @jax.jit
    def one_by_one(params, source, target_in):
        context = context_of(padding_mask(source))
        x = embed_source(model, params.embedding, source, context.positions)
        for layer in unstack(params.encoder):
            x, _, _ = run_layer(model, layer, x, context)
        memory = Memory(final_norm(model, params.encoder.norm, x), context.mask, None)
        context = context_of(causal_mask(target_in.shape[1]))
        x = embed_target(model, params.embedding, target_in, context.positions)
        for layer in unstack(params.decoder):
            x, _, _ = run_layer(model, layer, x, context, layer_memory(layer, memory))
        return logits(output_layer(params), final_norm(model, params.decoder.norm, x))

    assert len(unstack(params.encoder)) == 3
    np.testing.assert_allclose(
        one_by_one(params, batch.source, batch.target_in),
        predict(model, params, batch.source, batch.target_in),
        atol=1e-5,
    )


# ---------------------------------------------------------------- tying, precision, dropout


@pytest.mark.parametrize(
    "tying, learns_source, learns_target, learns_output",
    [("all", True, None, None), ("target", False, True, None), ("none", False, True, True)],
)
def test_tying_decides_which_table_the_decoder_teaches(
    small_model, random_params, random_batch, tying, learns_source, learns_target, learns_output
):
    model = small_model(tying=tying)
    params, batch = random_params(model), random_batch()
    memory = encode(model, params, batch.source)  # a constant: only the decoder teaches here

    def loss(embedding):
        out = decoded(model, params.replace(embedding=embedding), memory, batch.target_in)
        return jax.nn.log_softmax(out)[..., 5].sum()

    gradient = jax.jit(jax.grad(loss))(params.embedding)

    def learns(table):
        return None if table is None else bool((table != 0).any())

    assert learns(gradient.source) is learns_source
    assert learns(gradient.target) is learns_target
    assert learns(gradient.output) is learns_output
    if tying == "none":  # then only rows that were read learn from being read
        read = np.isin(np.arange(23), batch.target_in)
        np.testing.assert_array_equal(np.abs(gradient.target).sum(-1) > 0, read)


def test_output_bias_is_added_to_the_logits(small_model, random_params, random_batch):
    model = small_model(output_bias=True)
    params, batch = random_params(model), random_batch()
    without = params.replace(embedding=params.embedding.replace(output_bias=jnp.zeros(23)))
    np.testing.assert_allclose(
        predict(model, params, batch.source, batch.target_in)
        - predict(model, without, batch.source, batch.target_in),
        jnp.broadcast_to(params.embedding.output_bias, (4, 10, 23)),
        atol=1e-5,
    )


def test_bfloat16_leaves_parameters_gradients_and_logits_in_float32(
    small_model, random_params, random_batch
):
    exact, rough = small_model(norm="pre"), small_model(norm="pre", dtype="bfloat16")
    params, batch = random_params(exact), random_batch()
    assert encode(rough, params, batch.source).states.dtype == jnp.bfloat16
    out = predict(rough, params, batch.source, batch.target_in)
    difference = np.abs(out - predict(exact, params, batch.source, batch.target_in))
    assert out.dtype == jnp.float32
    assert 0 < difference.max() < 0.3
    gradient = jax.eval_shape(
        jax.grad(lambda params: predict(rough, params, batch.source, batch.target_in).sum()), params
    )
    assert {leaf.dtype for leaf in jax.tree.leaves(gradient)} == {jnp.dtype("float32")}
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype("float32")}


@pytest.mark.parametrize("rate", ["dropout", "attention_dropout", "activation_dropout"])
def test_each_dropout_rate_changes_both_stacks_and_only_with_a_key(
    small_model, random_params, random_batch, rate
):
    model = small_model(**{rate: 0.5})
    params, batch = random_params(model), random_batch()
    encode_now = jax.jit(partial(encode, model, params))
    decode_now = jax.jit(partial(decoded, model, params))
    memory = encode_now(batch.source)
    same = predict(small_model(), params, batch.source, batch.target_in)
    np.testing.assert_allclose(decode_now(memory, batch.target_in), same, atol=1e-5)
    keys = jax.random.split(jax.random.key(0), 2)
    first, second = (encode_now(batch.source, key).states for key in keys)
    assert not np.allclose(first, memory.states) and not np.allclose(first, second)
    np.testing.assert_array_equal(first, encode_now(batch.source, keys[0]).states)
    first, second = (decode_now(memory, batch.target_in, key) for key in keys)
    assert not np.allclose(first, same) and not np.allclose(first, second)


def test_each_layer_drops_other_elements(small_model, random_params):
    # Layers that only add ones, with half of them dropped: a sum of two layers that drop alike
    # has two values, and one of layers that drop on their own has three.
    model = small_model(norm="pre", dropout=0.5, positions="learned")
    nothing = jax.tree.map(jnp.zeros_like, random_params(model))
    layers = nothing.encoder.layers
    ones = layers.replace(feed_forward=layers.feed_forward.replace(b_2=jnp.ones((2, 16))))
    norm = nothing.encoder.norm.replace(scale=jnp.ones(16))
    params = nothing.replace(encoder=nothing.encoder.replace(layers=ones, norm=norm))
    run_encoder = jax.jit(partial(encode, model, params))
    states = run_encoder(jnp.full((1, 4), 5), jax.random.key(0)).states
    assert [len(np.unique(position.round(3))) for position in np.asarray(states[0])] == [3] * 4


# ---------------------------------------------------------------- the family


def test_the_parameters_say_what_a_batch_must_have(small_model, random_params, random_batch):
    batch = random_batch()
    translator = small_model()
    with pytest.raises(TypeCheckError):
        predict_batch(translator, random_params(translator), batch.replace(source=None))
    alone = small_model(encoder_layers=0)
    assert random_params(alone).encoder is None and random_params(alone).embedding.source is None
    out = predict_batch(alone, random_params(alone), batch.replace(source=None))
    assert out.shape == (4, 10, 23)
    encoder = small_model(decoder_layers=0)
    out = predict_batch(encoder, random_params(encoder), Batch(batch.source, None, None))
    assert out.shape == (4, 11, 23)


@NORMS
def test_a_decoder_alone_looks_at_no_later_position(small_model, random_params, random_batch, norm):
    model = small_model(positions="learned", norm=norm, encoder_layers=0)
    params, batch = random_params(model), random_batch()
    weight = jax.random.normal(jax.random.key(1), (10, 23))

    @jax.jit
    @jax.jacrev
    def influence(table):
        embedding = params.embedding.replace(target_positions=table)
        out = decoded(model, params.replace(embedding=embedding), None, batch.target_in)
        return (out * weight).sum((0, 2))

    reached = np.abs(influence(params.embedding.target_positions)).sum(-1)[:, :10] > 0
    np.testing.assert_array_equal(reached, np.tril(np.ones((10, 10), bool)))


@pytest.mark.slow
def test_layers_computed_again_or_written_out_are_the_same_layers(
    small_model, random_params, random_batch
):
    params, batch = random_params(small_model()), random_batch()

    def gradient(**how):
        def loss(params, key):
            return predict_batch(small_model(dropout=0.1, **how), params, batch, key)[..., 5].sum()

        return jax.jit(jax.grad(loss))(params, jax.random.key(0))

    usual = gradient()
    for other in (gradient(recompute=True), gradient(accelerator="gpu")):
        jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-4), other, usual)


@pytest.mark.slow
def test_layers_computed_again_need_less_memory(small_model, random_batch):
    batch = random_batch(rows=32)

    def memory(model):
        def loss(params):
            return predict_batch(model, params, batch, None).sum()

        shapes = jax.eval_shape(partial(init_params, model), jax.random.key(0))
        return jax.jit(jax.grad(loss)).lower(shapes).compile().memory_analysis().temp_size_in_bytes

    deep = {"encoder_layers": 8, "decoder_layers": 8, "d_ff": 256}
    assert memory(small_model(**deep, recompute=True)) < 0.6 * memory(small_model(**deep))


def test_relative_positions_depend_on_distance_alone(small_model, random_params):
    """The same words again and again; what is four words away or more is out of reach."""
    model = small_model(positions="relative", max_offset=4, encoder_layers=0)
    params = random_params(model)
    layers = params.decoder.layers
    attention = layers.self_attention
    near = attention.replace(offset_bias=attention.offset_bias.at[..., 0].set(-1e9))
    stack = params.decoder.replace(layers=layers.replace(self_attention=near))
    words = jnp.tile(jnp.asarray([[5, 6, 7, 8, 9]]), 3)
    out = decoded(model, params.replace(decoder=stack), None, words)
    # Two layers reach six words back.
    np.testing.assert_allclose(out[:, 11:], out[:, 6:10], atol=1e-4)
    assert not np.allclose(out[:, 5:10], out[:, :5], atol=1e-2)


def test_a_class_is_read_off_the_mean_of_real_states(small_model, random_params, random_batch):
    model = small_model(decoder_layers=0, classes=2)
    params, source = random_params(model), random_batch().source
    out = predict_batch(model, params, Batch(source, None, None))
    memory = encode(model, params, source)
    for row, length in enumerate(np.asarray(memory.lengths)):
        mean = memory.states[row, :length].mean(0)
        expected = mean @ params.classifier.w + params.classifier.b
        np.testing.assert_allclose(out[row, 0], expected, atol=1e-5)
    wider = predict_batch(model, params, Batch(jnp.pad(source, ((0, 2), (0, 3))), None, None))
    np.testing.assert_allclose(wider[:4], out, atol=1e-5)
    assert np.isfinite(wider).all()


@pytest.mark.parametrize("positions", [1, 12, 4096])
def test_log_probabilities_of_tokens_are_those_of_all_logits(
    small_model, random_params, random_batch, monkeypatch, positions
):
    monkeypatch.setattr(encoder_decoder, "POSITIONS", positions)
    model = small_model()
    params, batch = random_params(model), random_batch()
    found, is_likeliest = token_log_probs(model, params, batch)
    scores = predict_batch(model, params, batch)
    expected = jnp.take_along_axis(jax.nn.log_softmax(scores), batch.target_out[..., None], 2)
    np.testing.assert_allclose(found, expected[..., 0], atol=1e-5)
    np.testing.assert_array_equal(is_likeliest, scores.argmax(-1) == batch.target_out)
