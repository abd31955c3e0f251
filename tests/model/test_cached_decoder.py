"""The decoder one token at a time equals the decoder on the whole target."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.model.batch import PAD, Batch
from transformer.model.cached_decoder import (
    admit,
    decode_step,
    decoding_params,
    grow,
    init_cache,
    prefill,
    reorder,
    required_capacity,
    shrink,
    with_output_rows,
)
from transformer.model.encoder_decoder import encode
from transformer.model.encoder_decoder import predict as predict_batch

MODELS = {
    "paper": {},
    "pre-norm": {"norm": "pre"},
    "biases": {"attention_bias": True, "output_bias": True, "activation": "gelu"},
    "two vocabularies": {"positions": "learned", "tying": "target", "target_vocab_size": 31},
    "relative positions": {"positions": "relative", "max_offset": 3},
    "rotary positions": {"positions": "rotary"},
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
    return predict_batch(model, params, Batch(source, target_in, target_in))


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


@pytest.mark.parametrize("name", ["paper", "biases"])
def test_logits_of_some_tokens_are_those_of_all(small_model, random_params, random_batch, name):
    model, beam = small_model(**MODELS[name]), 2
    params, source = decoding_params(model, random_params(model)), random_batch().source
    cache = init_cache(model, params, encode(model, params, source), len(source), 4, beam)
    tokens = jax.random.randint(jax.random.key(1), (len(source), 5), 1, model.target_vocab_size)
    tokens = tokens.at[0, 3:].set(PAD).at[1].set(PAD)  # a shorter list, and a row of padding
    last = jnp.arange(len(source) * beam) % model.target_vocab_size
    step = partial(decode_step, model, params)
    every, _ = step(cache, last)
    some, _ = step(with_output_rows(tokens, model, params, cache), last)
    expected = np.take_along_axis(np.array(every), np.repeat(tokens, beam, axis=0), 1)
    expected[:beam, 3:] = -np.inf
    np.testing.assert_allclose(some, expected, atol=1e-5)


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


@pytest.mark.parametrize(
    "name",
    [
        "paper",
        *(
            pytest.param(one, marks=pytest.mark.slow)
            for one in ("relative positions", "rotary positions", "two vocabularies")
        ),
    ],
)
def test_sentences_that_come_and_go_equal_teacher_forcing_of_their_own_tokens(
    small_model, random_params, random_batch, name
):
    """Two places; after some tokens another sentence takes one. The cache is written over again
    and again, and gets longer and shorter on the way."""
    model, beam, most = small_model(**MODELS[name]), 2, 10
    params, source = random_params(model), random_batch().source
    generator = np.random.default_rng(0)
    ready, memory = decoding_params(model, params), encode(model, params, source)
    waiting = init_cache(model, ready, memory, len(source), 0, beam)
    cache = init_cache(model, ready, encode(model, params, source[:2]), 2, 6, beam)
    step = jax.jit(partial(decode_step, model, ready))
    texts = {place: np.zeros((beam, 0), int) for place in range(2)}
    sentences, rooms = [0, 1], set()
    for turn in range(34):
        if turn % 5 == 4:  # one place after the other
            place, row = turn // 5 % 2, turn // 5 % len(source)
            cache = admit(cache, jnp.int32(place), waiting, jnp.int32(row))
            texts[place], sentences[place] = np.zeros((beam, 0), int), row
        needed = int(required_capacity(cache.position, cache.begins, jnp.zeros(2, bool)))
        assert needed == max(text.shape[1] for text in texts.values()) + 1
        room = cache.ancestry.shape[-1]
        if needed > room:
            cache = grow(cache)
        elif turn % 3 == 0 and room % 2 == 0 and needed <= room // 2:
            cache = shrink(cache)
        rooms.add(cache.ancestry.shape[-1])
        tokens = generator.integers(3, 23, (2, beam))
        for place in range(2):
            texts[place] = np.concatenate([texts[place], tokens[place][:, None]], 1)
        scores, cache = step(cache, jnp.asarray(tokens.reshape(-1)))
        for place, text in texts.items():
            padded = np.pad(text, ((0, 0), (0, most - text.shape[1])))
            sources = jnp.repeat(source[sentences[place]][None], beam, axis=0)
            expected = predict(model, params, sources, jnp.asarray(padded))[:, text.shape[1] - 1]
            own = scores.reshape(2, beam, -1)[place]
            np.testing.assert_allclose(own, expected, atol=1e-5)
        order = generator.integers(0, beam, (2, beam))
        rows = order + beam * np.arange(2)[:, None]
        cache = reorder(cache, jnp.asarray(rows.reshape(-1)))
        texts = {place: text[order[place]] for place, text in texts.items()}
    assert rooms >= {3, 6, 12} and int(cache.position) > 2 * max(rooms)


def test_a_cache_without_room_gets_some(small_model, random_params, random_batch):
    model = small_model()
    params, source = random_params(model), random_batch().source
    ready, memory = decoding_params(model, params), encode(model, params, source)
    empty = init_cache(model, ready, memory, len(source), 0, 3)
    assert required_capacity(empty.position, empty.begins, jnp.ones(4, bool)) == 1
    found, expected = grow(empty), init_cache(model, ready, memory, len(source), 16, 3)
    assert jax.tree.all(jax.tree.map(np.array_equal, found, expected))
