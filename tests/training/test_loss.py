"""Label-smoothed cross-entropy and the sums over a batch."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from transformer.model.batch import EOS, PAD
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
    loss, nll = smoothed_cross_entropy(logits, LABELS, smoothing)
    np.testing.assert_allclose(loss, -(q * log_p).sum(-1), atol=1e-5)
    np.testing.assert_allclose(nll, -(np.eye(11)[LABELS] * log_p).sum(-1), atol=1e-5)


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

    def loss(logits):
        return smoothed_cross_entropy(logits[None, None], labels, smoothing)[0][0, 0]

    best = jnp.asarray(np.log(q), jnp.float32)
    assert loss(best) == pytest.approx(-(q * np.log(q)).sum(), abs=1e-6)
    np.testing.assert_allclose(jax.grad(loss)(best), 0, atol=1e-6)
    assert loss(1.1 * best) > loss(best) and loss(0.9 * best) > loss(best)
    assert loss(50 * jax.nn.one_hot(4, vocabulary)) > loss(best)  # certainty costs more


def test_large_logits_do_not_overflow():
    logits = jnp.asarray([[[1e4, 0.0, -1e4]]])
    loss, gradient = jax.value_and_grad(
        lambda logits: smoothed_cross_entropy(logits, jnp.asarray([[0]]), 0.1)[0].sum()
    )(logits)
    assert np.isfinite(loss) and np.isfinite(gradient).all()


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
