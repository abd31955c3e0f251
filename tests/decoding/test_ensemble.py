"""Several models that decode together."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.config import DecodeConfig
from transformer.decoding.ensemble import ensemble_step, make_ensemble
from transformer.decoding.search import IMPOSSIBLE
from transformer.decoding.translator import search_batch
from transformer.model.batch import BOS, EOS, PAD, Batch
from transformer.model.cached_decoder import init_cache
from transformer.model.encoder_decoder import encode, predict

SOURCE = np.array([[5, 6, 7, 8, EOS], [9, 10, EOS, PAD, PAD]], np.int32)
SETTINGS = DecodeConfig(beam_size=3, max_extra_length=4)


@pytest.fixture
def members(small_model, random_params):
    """Two models of one vocabulary, of different depth and norm."""
    models = [small_model(), small_model(decoder_layers=1, norm="pre", positions="relative")]
    return [(model, random_params(model, seed)) for seed, model in enumerate(models)]


compiled_encode = jax.jit(encode, static_argnums=0)
compiled_step = jax.jit(ensemble_step, static_argnums=0)


@partial(jax.jit, static_argnums=0)
def translated(model, params, sources, target_in):
    """The probabilities of one model, without a cache."""
    return jax.nn.softmax(predict(model, params, Batch(sources, target_in, target_in)))


def test_the_next_token_has_the_mean_of_the_models_probabilities(members):
    ensemble = make_ensemble(members, "model")
    memories = [compiled_encode(model, params, jnp.asarray(SOURCE)) for model, params in members]
    caches = tuple(
        init_cache(model, params, memory, 2, 4)
        for model, params, memory in zip(ensemble.models, ensemble.params, memories)
    )
    target = np.array([[BOS, 4, 5], [BOS, 11, 12]], np.int32)
    for position in range(3):
        tokens = jnp.asarray(target[:, position])
        found, caches = compiled_step(ensemble.models, ensemble.params, caches, tokens)
    each = [
        translated(model, params, jnp.asarray(SOURCE), jnp.asarray(target))[:, -1]
        for model, params in members
    ]
    np.testing.assert_allclose(found.probabilities, (each[0] + each[1]) / 2, atol=1e-6)
    assert not np.allclose(each[0], each[1], atol=1e-3)


def test_a_model_with_itself_is_the_model(members):
    alone = search_batch(make_ensemble(members[:1], "model"), SETTINGS, SOURCE)
    twice = search_batch(make_ensemble(members[:1] * 2, "model"), SETTINGS, SOURCE)
    np.testing.assert_array_equal(alone.tokens, twice.tokens)
    np.testing.assert_allclose(alone.scores, twice.scores, atol=1e-5)


def test_scores_are_those_of_the_mean_on_the_whole_translation(members):
    """Every cache is reordered with the hypotheses, grows and shrinks with them."""
    settings = replace(SETTINGS, alpha=0.0, max_extra_length=30)
    result = search_batch(make_ensemble(members, "model"), settings, SOURCE)
    tokens, scores = result.tokens.reshape(6, -1), result.scores.reshape(6)
    sources = jnp.asarray(SOURCE.repeat(3, axis=0))
    target_in = jnp.asarray(np.insert(tokens[:, :-1], 0, BOS, axis=1))
    each = [translated(model, params, sources, target_in) for model, params in members]
    mean = np.asarray((each[0] + each[1]) / 2)
    log_probs = np.log(np.take_along_axis(mean, tokens[..., None], 2)[..., 0])
    expected = (log_probs * (tokens != PAD)).sum(1)
    real = scores > IMPOSSIBLE / 2
    assert real.sum() >= 4 and (tokens != PAD).sum(1).max() > 16  # a cache begins with 16
    np.testing.assert_allclose(scores[real], expected[real], atol=1e-4)


def test_decoding_in_another_precision_is_that_of_every_member(members):
    ensemble = make_ensemble(members, "bfloat16")
    assert {model.dtype for model in ensemble.models} == {"bfloat16"}
    for params in ensemble.params:
        assert params.embedding.source.dtype == jnp.bfloat16
