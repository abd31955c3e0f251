"""Label-smoothed cross-entropy and the sums over a batch."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from transformer.config import ModelConfig
from transformer.model.batch import EOS, PAD
from transformer.model.encoder_decoder import predict, token_log_probs
from transformer.model.params import init_params
from transformer.training import loss
from transformer.training.loss import loss_sums, smoothed_cross_entropy


@pytest.fixture
def logits():
    return 3 * jax.random.normal(jax.random.key(0), (2, 4, 11))


LABELS = jnp.asarray([[3, 4, 10, 2], [0, 1, 5, 2]])


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_smoothed_cross_entropy_equals_its_definition(logits, smoothing):
    wide = np.asarray(logits, np.float64)
    log_p = wide - np.log(np.exp(wide).sum(-1, keepdims=True))
    q = (1 - smoothing) * np.eye(11)[LABELS] + smoothing / 11
    smoothed, nll, largest = smoothed_cross_entropy(logits, LABELS, smoothing)
    np.testing.assert_allclose(smoothed, -(q * log_p).sum(-1), atol=1e-5)
    np.testing.assert_allclose(nll, -(np.eye(11)[LABELS] * log_p).sum(-1), atol=1e-5)
    np.testing.assert_array_equal(largest, wide.argmax(-1) == LABELS)


def test_without_smoothing_it_is_the_cross_entropy_of_optax(logits):
    expected = optax.softmax_cross_entropy_with_integer_labels(logits, LABELS)
    np.testing.assert_allclose(smoothed_cross_entropy(logits, LABELS, 0.0)[0], expected, atol=1e-5)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_its_own_gradient_equals_the_derivative_of_the_definition(logits, smoothing):
    weight = jnp.asarray([[1.0, 0, 2, 0.5], [3, 1, 0, 1]])

    def plain(logits):
        q = (1 - smoothing) * jax.nn.one_hot(LABELS, 11) + smoothing / 11
        return (-(q * jax.nn.log_softmax(logits)).sum(-1) * weight).sum()

    def ours(logits):
        return (smoothed_cross_entropy(logits, LABELS, smoothing)[0] * weight).sum()

    np.testing.assert_allclose(jax.grad(ours)(logits), jax.grad(plain)(logits), atol=1e-6)


def test_the_lowest_possible_loss_is_the_entropy_of_the_smoothed_labels():
    smoothing, vocabulary = 0.1, 11
    q = np.full(vocabulary, smoothing / vocabulary)
    q[4] += 1 - smoothing
    labels = jnp.asarray([[4]])

    def lost(logits):
        return smoothed_cross_entropy(logits[None, None], labels, smoothing)[0][0, 0]

    best = jnp.asarray(np.log(q), jnp.float32)
    assert lost(best) == pytest.approx(-(q * np.log(q)).sum(), abs=1e-6)
    np.testing.assert_allclose(jax.grad(lost)(best), 0, atol=1e-6)
    assert lost(1.1 * best) > lost(best) and lost(0.9 * best) > lost(best)
    assert lost(50 * jax.nn.one_hot(4, vocabulary)) > lost(best)  # certainty costs more


@pytest.mark.parametrize("shift", [0.0, 1e4, -1e4])
def test_logits_are_summed_up_alike_in_one_pass(logits, shift):
    logits = shift + 10 * logits
    in_one_pass = jax.jit(loss._summary_in_one_pass)(logits)
    for ours, expected in zip(in_one_pass, loss._summary(logits)):
        np.testing.assert_allclose(ours, expected, rtol=1e-6)


def test_large_logits_do_not_overflow():
    logits = jnp.asarray([[[1e4, 0.0, -1e4]]])
    value, gradient = jax.value_and_grad(
        lambda logits: smoothed_cross_entropy(logits, jnp.asarray([[0]]), 0.1)[0].sum()
    )(logits)
    assert np.isfinite(value) and np.isfinite(gradient).all()


@pytest.fixture
def compute_sums(small_config):
    return jax.jit(lambda params, batch: loss_sums(small_config().model, params, batch, 0.1))


def test_padding_is_not_counted_and_does_not_count(
    compute_sums, small_config, random_params, random_batch
):
    params, batch = random_params(small_config().model), random_batch()
    sums = compute_sums(params, batch)
    assert sums.tokens == (np.asarray(batch.target_out) != PAD).sum()
    padded = jax.tree.map(lambda ids: jnp.pad(ids, ((0, 3), (0, 2))), batch)
    for more, value in zip(*map(jax.tree.leaves, (compute_sums(params, padded), sums))):
        np.testing.assert_allclose(more, value, rtol=1e-5)


def test_sums_of_the_parts_of_a_batch_add_up_to_the_sums_of_the_batch(
    compute_sums, small_config, random_params, random_batch
):
    params, batch = random_params(small_config().model), random_batch(rows=8)
    halves = [jax.tree.map(lambda ids: ids[:3], batch), jax.tree.map(lambda ids: ids[3:], batch)]
    first, second = (compute_sums(params, half) for half in halves)
    assert first.tokens != second.tokens
    added = jax.tree.map(jnp.add, first, second)
    for part, whole in zip(*map(jax.tree.leaves, (added, compute_sums(params, batch)))):
        np.testing.assert_allclose(part, whole, rtol=1e-5)


def test_correct_counts_the_tokens_whose_logit_is_largest(
    compute_sums, small_config, random_params, random_batch
):
    params, batch = random_params(small_config(model={"output_bias": True}).model), random_batch()
    bias = jnp.zeros(23).at[EOS].set(1e6)  # a model that always says EOS
    params = params.replace(embedding=params.embedding.replace(output_bias=bias))
    sums = compute_sums(params, batch)
    assert sums.correct == 4
    assert sums.nll > sums.tokens


MODELS = {
    "paper": {},
    "untied, bias": {"tying": "none", "output_bias": True},
    "classes": {"decoder_layers": 0, "classes": 4},
}
PIECES = [(4096, 1), (7, 2), (1, 4)]
"""Positions of a piece, and devices."""

EACH_MODEL_IN_PIECES = pytest.mark.parametrize(
    "changes, positions, devices",
    [
        pytest.param(
            changes,
            *pieces,
            id=name,
            marks=() if name in ("paper", "classes") else pytest.mark.slow,
        )
        for (name, changes), pieces in zip(MODELS.items(), PIECES)
    ],
)
"""Each model and each size of a piece once."""


@EACH_MODEL_IN_PIECES
def test_piece_by_piece_losses_and_gradients_are_those_of_all_logits(
    monkeypatch, small_config, random_params, random_batch, changes, positions, devices
):
    monkeypatch.setattr(loss, "POSITIONS", positions)
    model = small_config(model=changes).model
    params, batch = random_params(model), random_batch(rows=4, target_length=11)
    if model.classes:
        batch = batch.replace(target_out=jnp.asarray([[1], [4], [PAD], [2]]))

    def plain(params):
        labels, scores = batch.target_out, predict(model, params, batch)
        q = 0.9 * jax.nn.one_hot(labels, scores.shape[-1]) + 0.1 / scores.shape[-1]
        return (optax.softmax_cross_entropy(scores, q) * (labels != PAD)).sum()

    def ours(params):
        return loss_sums(model, params, batch, 0.1, devices=devices).loss

    expected, gradients = jax.jit(jax.value_and_grad(plain))(params)
    found, own = jax.jit(jax.value_and_grad(ours))(params)
    assert found == pytest.approx(float(expected), rel=1e-5)
    for a, b in zip(*map(jax.tree.leaves, (own, gradients))):
        np.testing.assert_allclose(a, b, atol=1e-5 * max(1, float(jnp.abs(b).max())))


@EACH_MODEL_IN_PIECES
def test_r_drop_equals_its_definition(
    monkeypatch, small_config, random_params, random_batch, changes, positions, devices
):
    monkeypatch.setattr(loss, "POSITIONS", positions)
    model = small_config(model=changes | {"dropout": 0.3}).model
    params, batch = random_params(model), random_batch(rows=4, target_length=11)
    if model.classes:
        batch = batch.replace(target_out=jnp.asarray([[1], [4], [PAD], [2]]))
    key, alpha = jax.random.key(3), 5.0

    def plain(params):
        """Half of CE(p) + CE(q) + alpha * (KL(p, q) + KL(q, p)) / 2."""
        twice = jax.tree.map(lambda rows: jnp.repeat(rows, 2, axis=0), batch)
        scores = predict(model, params, twice, key)
        q = 0.9 * jax.nn.one_hot(twice.target_out, scores.shape[-1]) + 0.1 / scores.shape[-1]
        losses = optax.softmax_cross_entropy(scores, q).reshape(4, 2, -1).sum(1)
        first, second = (jax.nn.log_softmax(scores)[start::2] for start in (0, 1))
        apart = optax.losses.kl_divergence(first, jnp.exp(second))
        apart += optax.losses.kl_divergence(second, jnp.exp(first))
        return ((losses + alpha * apart / 2) * (batch.target_out != PAD)).sum() / 2

    def ours(params):
        sums = loss_sums(model, params, batch, 0.1, key, devices, jnp.float32(alpha))
        return sums.loss, sums

    expected, gradients = jax.jit(jax.value_and_grad(plain))(params)
    (found, sums), own = jax.jit(jax.value_and_grad(ours, has_aux=True))(params)
    assert found == pytest.approx(float(expected), rel=1e-5)
    assert sums.tokens == (np.asarray(batch.target_out) != PAD).sum()
    for a, b in zip(*map(jax.tree.leaves, (own, gradients))):
        np.testing.assert_allclose(a, b, atol=1e-5 * max(1, float(jnp.abs(b).max())))


def test_r_drop_adds_nothing_where_nothing_is_dropped(small_config, random_params, random_batch):
    model = small_config().model
    params, batch = random_params(model), random_batch(rows=4)
    plain, twice = (
        jax.jit(partial(loss_sums, model))(params, batch, 0.1, r_drop=weight)
        for weight in (None, jnp.float32(5))
    )
    for a, b in zip(*map(jax.tree.leaves, (plain, twice))):
        np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_logits_of_all_positions_never_exist_together(random_batch, operations, dtype):
    rows, length, vocabulary = 512, 64, 50_000
    layers, width = {"encoder_layers": 1, "decoder_layers": 1}, {"d_model": 8, "d_ff": 8}
    model = ModelConfig(vocabulary, vocabulary, **layers, **width, num_heads=2, dtype=dtype)
    params = jax.eval_shape(lambda: init_params(model, jax.random.key(0)))
    batch = random_batch(rows, length, length)

    def lost(params):
        return loss_sums(model, params, batch, 0.1).loss

    for function in (jax.grad(lost), lambda params: token_log_probs(model, params, batch)):
        most = max(
            variable.aval.size
            for operation in operations(jax.make_jaxpr(function)(params).jaxpr)
            for variable in operation.outvars
        )
        assert most == loss.POSITIONS * vocabulary < rows * length * vocabulary
