"""What a model loses on text, sentence by sentence, and how sure that is."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.model.batch import PAD
from transformer.training.loss import loss_sums
from transformer.training.validation import Losses, estimates, losses_of, ratio, sentence_sums


@pytest.fixture
def losses():
    """Those of 400 made-up sentences: longer ones lose less a token."""
    generator = np.random.default_rng(0)
    tokens = generator.integers(2, 30, 400).astype(float)
    nll = tokens * generator.gamma(4, 0.5 + 3 / tokens)
    return Losses(nll, generator.binomial(tokens.astype(int), 0.7).astype(float), tokens)


def test_the_sums_of_sentences_add_up_to_those_of_the_batch(
    small_model, random_params, random_batch
):
    model = small_model()
    params, batch = random_params(model), random_batch(rows=5)
    by_sentence = sentence_sums(model, params, batch)
    whole = loss_sums(model, params, batch, 0.0)
    for name in ("loss", "nll", "correct", "tokens"):
        assert getattr(by_sentence, name).shape == (5,)
        np.testing.assert_allclose(
            getattr(by_sentence, name).sum(), getattr(whole, name), rtol=1e-5
        )


def test_rows_of_padding_are_no_sentences_and_the_split_into_batches_does_not_matter(
    small_model, random_params, random_batch
):
    model = small_model()
    params, batch = random_params(model), random_batch(rows=6)
    empty = jax.tree.map(lambda rows: jnp.full_like(rows[:2], PAD), batch)
    parts = [jax.tree.map(lambda rows: rows[:4], batch), empty]
    parts.append(jax.tree.map(lambda rows: rows[4:], batch))
    compute = partial(sentence_sums, model)
    whole, split = losses_of(compute, params, [batch]), losses_of(compute, params, parts)
    assert len(split.tokens) == 6
    for name in ("nll", "correct", "tokens"):
        np.testing.assert_allclose(getattr(split, name), getattr(whole, name), rtol=1e-5)


def test_the_error_of_a_ratio_is_the_spread_of_ratios_of_sentences_drawn_anew(losses):
    mean, error = ratio(losses.nll, losses.tokens)
    assert mean == pytest.approx(losses.nll.sum() / losses.tokens.sum())
    drawn = np.random.default_rng(1).integers(0, 400, (4000, 400))
    ratios = losses.nll[drawn].sum(1) / losses.tokens[drawn].sum(1)
    assert error == pytest.approx(ratios.std(), rel=0.05)


def test_of_sentences_of_one_token_each_it_is_the_standard_error_of_the_mean():
    values = np.random.default_rng(0).normal(size=50)
    _, error = ratio(values, np.ones(50))
    assert error == pytest.approx(values.std(ddof=1) / math.sqrt(50))


def test_estimates_are_one_loss_in_other_units(losses):
    found = {estimate.name: estimate for estimate in estimates(losses, num_bytes=12_345)}
    nats = losses.nll.sum() / losses.tokens.sum()
    assert found["nats/token"].value == pytest.approx(nats)
    assert found["bits/token"].value == pytest.approx(nats / math.log(2))
    assert found["perplexity"].value == pytest.approx(math.exp(nats))
    assert found["bits/byte"].value == pytest.approx(losses.nll.sum() / math.log(2) / 12_345)
    assert found["accuracy"].value == pytest.approx(losses.correct.sum() / losses.tokens.sum())
    for estimate in found.values():
        low, high = estimate.interval
        assert low < estimate.value < high
    lowest = found["nats/token"].interval[0]
    assert found["perplexity"].interval[0] == pytest.approx(math.exp(lowest))
    assert "bits/byte" not in {estimate.name for estimate in estimates(losses)}


def test_shares_stay_shares():
    nearly_all_right = Losses(np.ones(3), np.array([1.0, 2.0, 2.0]), np.array([1.0, 2.0, 3.0]))
    accuracy = estimates(nearly_all_right)[-1]
    assert accuracy.name == "accuracy" and accuracy.interval[1] == 1.0


@pytest.mark.parametrize("sentences", [1, 5], ids=["one sentence", "all alike"])
def test_where_nothing_says_how_sure_it_is_there_is_no_interval(sentences):
    alike = Losses(*(np.full(sentences, value) for value in (6.0, 3.0, 3.0)))
    for estimate in estimates(alike, unit="label"):
        assert estimate.interval is None
        assert str(estimate).endswith("(no interval: one sentence, or all alike)")
    assert estimates(alike, unit="label")[0].name == "nats/label"
