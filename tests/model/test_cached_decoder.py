"""The decoder one token at a time equals the decoder on the whole target."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.model.batch import PAD
from transformer.model.cached_decoder import (
    decode_step,
    decoding_params,
    init_cache,
    prefill,
    reorder,
)
from transformer.model.encoder_decoder import decode, encode

MODELS = {
    "paper": {},
    "pre-norm": {"norm": "pre"},
    "biases": {"attention_bias": True, "output_bias": True, "activation": "gelu"},
    "two vocabularies": {"positions": "learned", "tying": "target", "target_vocab_size": 31},
    "relative positions": {"positions": "relative", "max_offset": 3},
    "a decoder alone": {"encoder_layers": 0},
    "a decoder alone with relative positions": {
        "encoder_layers": 0,
        "positions": "relative",
        "max_offset": 3,
        "norm": "pre",
    },
    "all options": {
        "norm": "pre",
        "tying": "none",
        "target_vocab_size": 31,
        "positions": "learned",
        "attention_bias": True,
    },
}


ALONE = [name for name in MODELS if "alone" in name]


def memory_of(model, params, source):
    return encode(model, params, source) if model.encoder_layers else None


@partial(jax.jit, static_argnums=0)
def predict(model, params, source, target_in):
    """Logits at every target position."""
    return decode(model, params, memory_of(model, params, source), target_in)


@pytest.mark.parametrize("name", MODELS)
def test_one_cached_token_at_a_time_equals_teacher_forcing(
    small_model, random_params, random_batch, name
):
    model = small_model(**MODELS[name])
    params, batch = random_params(model), random_batch()

    @jax.jit
    def step_by_step(source, target_in):
        ready = decoding_params(model, params)
        cache = init_cache(model, ready, memory_of(model, params, source), len(source), 12)

        def step(cache, tokens):
            scores, cache = decode_step(model, ready, cache, tokens)
            return cache, scores

        return jax.lax.scan(step, cache, target_in.T)[1].swapaxes(0, 1)

    expected = predict(model, params, batch.source, batch.target_in)
    cached = step_by_step(batch.source, batch.target_in)
    np.testing.assert_allclose(cached, expected, atol=1e-5)


@pytest.mark.parametrize("name", ["paper", "relative positions", *ALONE])
def test_reordered_hypotheses_equal_teacher_forcing_of_their_own_tokens(
    small_model, random_params, random_batch, name
):
    model, beam, length = small_model(**MODELS[name]), 3, 10
    params, source = random_params(model), random_batch().source
    rows = len(source) * beam
    generator = np.random.default_rng(0)
    ready, memory = decoding_params(model, params), memory_of(model, params, source)
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


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("name", ["paper", "two vocabularies", *ALONE])
def test_a_prompt_read_at_once_equals_one_token_at_a_time(
    small_model, random_params, random_batch, name, beam
):
    """Prompts of different lengths, each with what follows, against the whole without a cache."""
    model = small_model(**MODELS[name])
    params, source = random_params(model), random_batch().source
    ready, memory = decoding_params(model, params), memory_of(model, params, source)
    generator = np.random.default_rng(0)
    texts = generator.integers(3, 23, (4, 9))
    lengths, prompt = np.array([6, 1, 4, 2]), np.full((4, 6), PAD, np.int32)
    for row, length in enumerate(lengths):
        prompt[row, 6 - length :] = texts[row, :length]
    cache = init_cache(model, ready, memory, 4, 9, beam)
    cache = jax.jit(partial(prefill, model))(ready, cache, jnp.asarray(prompt))
    step = jax.jit(partial(decode_step, model, ready))
    expected = predict(model, params, source, jnp.asarray(texts))
    for following in range(3):
        tokens = np.repeat(texts[np.arange(4), lengths + following], beam)
        scores, cache = step(cache, jnp.asarray(tokens))
        wanted = np.asarray(expected)[np.arange(4), lengths + following]
        np.testing.assert_allclose(scores, np.repeat(wanted, beam, axis=0), atol=1e-5)
