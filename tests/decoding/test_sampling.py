"""Sampling over a table of logits: frequencies are probabilities, whatever else is drawn."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.config import DecodeConfig
from transformer.decoding.sampling import Choice, Sampling, restricted, start_sampling
from transformer.decoding.search import search
from transformer.model.batch import BOS, EOS, PAD

VOCABULARY = 8
TABLE = 1.5 * jax.random.normal(jax.random.key(5), (VOCABULARY, VOCABULARY))
"""Row v: the logits after token v."""

CHI_SQUARE = 20.5
"""With 5 degrees of freedom, six tokens, 999 of 1,000 are smaller."""


def choice(temperature=1.0, top_k=0, top_p=1.0, end=EOS):
    return Choice(jnp.float32(temperature), jnp.int32(top_k), jnp.float32(top_p), jnp.int32(end))


def table_step(cache, tokens):
    return TABLE[tokens], cache


def is_open(state):
    return ~state.done.all()


@partial(jax.jit, static_argnums=(1, 2))
def sampled(choice, length, samples, keys, last):
    """Tokens [B, W, L] and log-probabilities [B, W] of samples that follow tokens `last`."""
    limits = jnp.full(len(keys), length)
    state = start_sampling(choice, {}, limits, last, keys, (samples, length))
    method = Sampling(DecodeConfig())
    result = method.finish(search(method, table_step, lambda cache, rows: cache, state, is_open))
    return result.tokens, result.scores


def keys(count, seed=0):
    return jax.random.split(jax.random.key(seed), count)


def probabilities(token, temperature=1.0, top_k=0, top_p=1.0):
    """What should be drawn after a token, written out."""
    logits = np.asarray(TABLE[token], np.float64) / temperature
    logits[[PAD, BOS]] = -np.inf
    order = np.argsort(-logits)
    if top_k:
        logits[order[top_k:]] = -np.inf
    p = np.exp(logits) / np.exp(logits).sum()
    kept, total = [], 0.0
    for token in order:
        if total >= top_p:
            break
        kept.append(token)
        total += p[token]
    return np.where(np.isin(np.arange(VOCABULARY), kept), p, 0) / p[kept].sum()


SETTINGS = [
    {},
    {"temperature": 0.5},
    {"temperature": 2.0},
    {"top_k": 3},
    {"top_p": 0.7},
    {"top_k": 4, "top_p": 0.8, "temperature": 1.5},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_frequencies_are_the_models_probabilities(settings):
    draws, _ = sampled(choice(**settings), 1, 1000, keys(20), jnp.full(20, 4))
    counts = np.bincount(np.asarray(draws).reshape(-1), minlength=VOCABULARY)
    expected = 20_000 * probabilities(4, **settings)
    assert (counts[expected == 0] == 0).all()
    possible = expected > 0
    assert (np.square(counts - expected)[possible] / expected[possible]).sum() < CHI_SQUARE


def test_the_second_token_follows_the_first():
    draws, _ = sampled(choice(end=-1), 2, 1000, keys(20), jnp.full(20, 4))
    first, second = np.asarray(draws).reshape(-1, 2).T
    following = second[first == 5]
    expected = len(following) * probabilities(5)
    counts = np.bincount(following, minlength=VOCABULARY)
    assert len(following) > 500
    assert (np.square(counts - expected)[2:] / expected[2:]).sum() < CHI_SQUARE


@pytest.mark.parametrize("temperature", [0.0, 2e-38, 1e-6])
def test_without_temperature_or_nearly_it_is_the_likeliest_token(temperature):
    draws, _ = sampled(choice(temperature=temperature), 1, 5, keys(6), jnp.arange(2, 8))
    best = [np.argmax(probabilities(token)) for token in range(2, 8)]
    assert np.asarray(draws)[:, :, 0].tolist() == [[token] * 5 for token in best]


def test_the_top_of_all_is_all():
    logits = TABLE[None] - TABLE[None].max(-1, keepdims=True)
    np.testing.assert_array_equal(restricted(choice(), logits), logits)
    np.testing.assert_array_equal(restricted(choice(top_k=99), logits), logits)
    for top_p in (1e-6, 1e-60):  # float32 knows no such number but 0
        least = restricted(choice(top_p=top_p), logits)
        assert (np.isfinite(least).sum(-1) == 1).all()


def test_tokens_that_are_exactly_as_likely_as_top_p_are_all_that_is_drawn_from():
    """The probabilities of huggingface/transformers#18976, and others whose likeliest are 0.8."""
    rows = [[0.3, 0.1, 0.1, 0.5, 0.0], [0.1, 0.15, 0.1, 0.15, 0.5], [0.4, 0.25, 0.15, 0.1, 0.1]]
    kept = restricted(choice(top_p=0.8), jnp.log(jnp.array(rows))[None])[0]
    assert np.isfinite(kept).sum(-1).tolist() == [2, 3, 3]


def test_log_probabilities_are_the_models_own_and_samples_end_with_the_end():
    tokens, log_probs = sampled(choice(temperature=1.3, top_k=4), 12, 50, keys(4), jnp.arange(3, 7))
    log_p = np.asarray(jax.nn.log_softmax(TABLE))
    ended = 0
    for row, first in enumerate(range(3, 7)):
        for sample, log_prob in zip(np.asarray(tokens[row]), log_probs[row]):
            real = sample[: np.argmax(sample == PAD)] if PAD in sample else sample
            assert not np.isin(real, [PAD, BOS]).any() and EOS not in real[:-1]
            assert (sample[len(real) :] == PAD).all()
            assert len(real) == 12 or real[-1] == EOS
            ended += real[-1] == EOS
            expected = log_p[[first, *real[:-1]], real].sum()
            assert float(log_prob) == pytest.approx(expected, abs=1e-4)
    assert ended > 50


def test_without_an_end_samples_go_on_behind_it():
    tokens, _ = sampled(choice(end=-1), 12, 50, keys(4), jnp.arange(3, 7))
    assert (np.asarray(tokens) != PAD).all() and (np.asarray(tokens) == EOS).any()


def test_what_is_drawn_for_a_sentence_depends_on_its_key_alone():
    together, _ = sampled(choice(), 9, 3, keys(4), jnp.arange(3, 7))
    alone, _ = sampled(choice(), 9, 3, keys(4)[2:3], jnp.arange(5, 6))
    np.testing.assert_array_equal(together[2], alone[0])
    others, _ = sampled(choice(), 9, 3, keys(4, seed=1), jnp.arange(3, 7))
    assert (np.asarray(others) != np.asarray(together)).any()
    assert len({tuple(sample) for sample in np.asarray(together).reshape(12, -1).tolist()}) > 6


def constrained_tokens(length, **settings):
    """[B, W, L] of samples that never end, after six different tokens."""
    limits, last = jnp.full(6, length), jnp.arange(2, VOCABULARY)
    state = start_sampling(choice(end=-1), {}, limits, last, keys(6), (64, length))
    method = Sampling(DecodeConfig(**settings))
    run = jax.jit(lambda s: search(method, table_step, lambda cache, rows: cache, s, is_open))
    return np.asarray(method.finish(run(state)).tokens).reshape(-1, length)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_no_n_gram_is_drawn_twice(order):
    """Where every token would repeat one, all are free: the seventh of six different tokens."""
    length = {1: 6, 2: 7, 3: 12}[order]
    for row in constrained_tokens(length, no_repeat_ngram=order).tolist():
        grams = [tuple(row[i : i + order]) for i in range(length - order + 1)]
        assert len(set(grams)) == len(grams)
    assert constrained_tokens(9, no_repeat_ngram=1).min() > max(PAD, BOS)


def test_no_sample_ends_too_early_and_some_end_then():
    tokens = constrained_tokens(6, min_length=3)
    assert EOS not in tokens[:, :3] and EOS in tokens[:, 3]


def test_what_has_been_drawn_is_less_likely_by_the_penalty():
    """Frequencies of the second token, given the first: each log-probability times the penalty if
    it is the first."""
    tokens = constrained_tokens(2, repetition_penalty=10.0)
    expected = 0.0
    for first in tokens[:, 0]:
        p = probabilities(int(first))
        p[first] **= 10
        expected += p[first] / p.sum()
    drawn = (tokens[:, 0] == tokens[:, 1]).sum()
    assert abs(drawn - expected) < 4 * np.sqrt(expected)
    plain = sum(probabilities(int(first))[first] for first in tokens[:, 0])
    assert plain > 1.5 * expected
