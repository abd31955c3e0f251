"""The decoder one token at a time equals the decoder on the whole target."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.model.cached_decoder import (
    decode_step,
    decoding_params,
    init_cache,
    reorder,
)
from transformer.model.encoder_decoder import decode, encode

MODELS = {
    "paper": {},
    "pre-norm": {"norm": "pre"},
    "biases": {"attention_bias": True, "output_bias": True, "activation": "gelu"},
    "two vocabularies": {"positions": "learned", "tying": "target", "target_vocab_size": 31},
    "all options": {
        "norm": "pre",
        "tying": "none",
        "target_vocab_size": 31,
        "positions": "learned",
        "attention_bias": True,
    },
}


@partial(jax.jit, static_argnums=0)
def predict(model, params, source, target_in):
    """Logits at every target position."""
    return decode(model, params, encode(model, params, source), target_in)


@pytest.mark.parametrize("name", MODELS)
def test_one_cached_token_at_a_time_equals_teacher_forcing(
    small_model, random_params, random_batch, name
):
    model = small_model(**MODELS[name])
    params, batch = random_params(model), random_batch()

    @jax.jit
    def step_by_step(source, target_in):
        ready = decoding_params(model, params)
        cache = init_cache(model, ready, encode(model, params, source), len(source), 12)

        def step(cache, tokens):
            scores, cache = decode_step(model, ready, cache, tokens)
            return cache, scores

        return jax.lax.scan(step, cache, target_in.T)[1].swapaxes(0, 1)

    expected = predict(model, params, batch.source, batch.target_in)
    cached = step_by_step(batch.source, batch.target_in)
    np.testing.assert_allclose(cached, expected, atol=1e-5)


def test_reordered_hypotheses_equal_teacher_forcing_of_their_own_tokens(
    small_model, random_params, random_batch
):
    model, beam, length = small_model(), 3, 10
    params, source = random_params(model), random_batch().source
    rows = len(source) * beam
    generator = np.random.default_rng(0)
    ready, memory = decoding_params(model, params), encode(model, params, source)
    cache = init_cache(model, ready, memory, len(source), length, beam)
    step = jax.jit(partial(decode_step, model, ready))
    sequences = np.zeros((rows, 0), int)
    for _ in range(length):
        tokens = generator.integers(1, 23, rows)
        sequences = np.concatenate([sequences, tokens[:, None]], 1)
        scores, cache = step(cache, jnp.asarray(tokens))
        sources = jnp.repeat(source, beam, axis=0)
        padded = np.pad(sequences, ((0, 0), (0, length - sequences.shape[1])))
        expected = predict(model, params, sources, jnp.asarray(padded))
        np.testing.assert_allclose(scores, expected[:, sequences.shape[1] - 1], atol=1e-5)
        # Some hypotheses go on more than once and others not at all, as in a beam search.
        order = np.repeat(np.arange(len(source)) * beam, beam) + generator.integers(0, beam, rows)
        cache, sequences = reorder(cache, jnp.asarray(order)), sequences[order]


def test_a_cache_longer_than_needed_changes_nothing(small_model, random_params, random_batch):
    model = small_model()
    params, batch = random_params(model), random_batch()
    memory = encode(model, params, batch.source)
    ready = decoding_params(model, params)
    step = jax.jit(partial(decode_step, model, ready))
    results = []
    for length in (2, 7):
        cache = init_cache(model, ready, memory, 4, length)
        _, cache = step(cache, batch.target_in[:, 0])
        results.append(step(cache, batch.target_in[:, 1])[0])
    np.testing.assert_allclose(results[0], results[1], atol=1e-6)
