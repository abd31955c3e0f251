"""Texts continued by a small random language model with a real tokenizer."""

import warnings
from dataclasses import replace
from functools import partial

import jax
import numpy as np
import pytest

from transformer.config import Config, DecodeConfig, GenerateConfig
from transformer.data.tokenizer import train_tokenizer
from transformer.data.vocabularies import Tokenizers
from transformer.decoding.generator import continuations, first_capacity, make_generator, stream
from transformer.model.batch import BOS, EOS, PAD, Batch
from transformer.model.encoder_decoder import predict

PROMPTS = ["the cat", "", "we see the house and the garden behind it", "a", "birds sing in the"]


@pytest.fixture(scope="module")
def tokenizers():
    text = ["the cat sleeps", "a dog", "we see the house and the garden behind it", "birds sing"]
    tokenizer = train_tokenizer(text, "char", 40)
    return Tokenizers(tokenizer, tokenizer)


@pytest.fixture
def build(tokenizers, small_model, random_params):
    """A function from settings to a generator whose model ends now and then."""
    size = tokenizers.target.vocab_size
    model = small_model(encoder_layers=0, target_vocab_size=size, output_bias=True, norm="pre")

    def make(model_changes=(), end=0.5, **settings):
        changed = replace(model, **dict(model_changes))
        params = random_params(changed)
        bias = params.embedding.output_bias.at[EOS].add(end).at[PAD].add(2.0)
        params = params.replace(embedding=params.embedding.replace(output_bias=bias))
        config = Config(model=changed, decode=DecodeConfig(batch_sentences=4))
        return params, make_generator(config, GenerateConfig(**settings), params, tokenizers)

    return make


def log_probs(generator, params, tokens):
    """Of the token after each of `tokens`, without a cache."""
    [model] = generator.ensemble.models
    row = np.full((1, 128), PAD, np.int32)  # causality: what comes behind does not count
    row[0, : len(tokens)] = tokens
    return np.array(_log_probs(model, params, row))[0, : len(tokens)]


@partial(jax.jit, static_argnums=0)
def _log_probs(model, params, row):
    return jax.nn.log_softmax(predict(model, params, Batch(None, row, row)))


def test_greedy_continuations_equal_argmax_over_whole_prefixes_without_a_cache(build, tokenizers):
    params, generator = build(temperature=0.0, max_tokens=7)
    for prompt, [found] in zip(PROMPTS, continuations(generator, PROMPTS)):
        tokens = [BOS, *tokenizers.target.encode([prompt])[0]]
        added = []
        while len(added) < 7 and EOS not in added:
            scores = log_probs(generator, params, tokens + added)[-1]
            scores[[PAD, BOS]] = -np.inf
            added.append(int(scores.argmax()))
        assert list(found.tokens) == added


def test_a_beam_of_one_is_greedy_and_a_wider_one_is_no_worse(build):
    greedy = continuations(build(temperature=0.0, max_tokens=9)[1], PROMPTS)
    beam_1 = continuations(build(beam_size=1, max_tokens=9)[1], PROMPTS)
    beam_5 = continuations(build(beam_size=5, max_tokens=9)[1], PROMPTS)
    for [one], [same], several in zip(greedy, beam_1, beam_5):
        assert one.tokens == same.tokens
        assert one.log_prob == pytest.approx(same.log_prob, abs=1e-4)
        assert several[0].log_prob >= one.log_prob - 1e-4


def test_what_is_added_obeys_the_constraints(build):
    """The beginning does not count."""
    for width in ({"beam_size": 4, "samples": 4}, {"samples": 4, "temperature": 0.5}):
        free = build(max_tokens=20, **width)[1]
        assert any(len(one.tokens) <= 6 for found in continuations(free, PROMPTS) for one in found)
        generator = build(max_tokens=20, no_repeat_ngram=2, min_length=6, **width)[1]
        for one in [one for found in continuations(generator, PROMPTS) for one in found]:
            pairs = list(zip(one.tokens, one.tokens[1:]))
            assert len(set(pairs)) == len(pairs) and len(one.tokens) > 6


@pytest.mark.parametrize("settings", [{"samples": 3}, {"samples": 3, "beam_size": 3}], ids=str)
def test_log_probabilities_are_those_of_the_model_without_a_cache(build, tokenizers, settings):
    params, generator = build(max_tokens=40, **settings)
    for prompt, found in zip(PROMPTS, continuations(generator, PROMPTS)):
        assert len(found) == 3
        for one in found:
            before = [BOS, *tokenizers.target.encode([prompt])[0]]
            tokens = [*before, *one.tokens]
            scores = log_probs(generator, params, tokens[:-1])[len(before) - 1 :]
            expected = scores[np.arange(len(one.tokens)), one.tokens].sum()
            assert one.log_prob == pytest.approx(expected, abs=1e-3)


def test_a_line_is_continued_alike_whatever_its_neighbours(build):
    _, generator = build(samples=2, max_tokens=20, temperature=1.5)
    together = continuations(generator, PROMPTS * 2)
    for number, prompt in enumerate(PROMPTS * 2):
        [alone] = continuations(generator, [prompt], [number])
        assert [one.text for one in alone] == [one.text for one in together[number]]
    texts = [one.text for found in together for one in found]
    assert texts[:2] != texts[10:12]  # the same prompt in another line
    assert texts[0] != texts[1]
    other_seed = build(samples=2, max_tokens=20, temperature=1.5, seed=1)[1]
    [others] = continuations(other_seed, PROMPTS[:1])
    assert [one.text for one in others] != texts[:2]


@pytest.mark.parametrize("taken", [0, 7, 31, 255])
@pytest.mark.parametrize("added", [1, 16, 40, 100, 1000])
def test_the_room_of_a_long_prompt_is_not_doubled_in_vain(taken, added):
    first, most = first_capacity(taken, taken + added), taken + added
    doubled = first
    while doubled < most:
        doubled *= 2
    assert taken < first and doubled < 1.1 * most + 1
    assert first == most or taken + 16 <= first < 2 * (taken + 16)


def test_texts_begin_with_their_prompts_and_are_no_longer_than_asked(build):
    for prompt, [found] in zip(PROMPTS, continuations(build(max_tokens=5)[1], PROMPTS)):
        assert found.text.startswith(prompt) and 1 <= len(found.tokens) <= 5


def test_what_is_streamed_is_the_continuation(build):
    for settings in ({"max_tokens": 40}, {"max_tokens": 20, "temperature": 0.0}):
        _, generator = build(**settings)
        for number, [expected] in enumerate(continuations(generator, PROMPTS)):
            parts = list(stream(generator, PROMPTS[number], number))
            assert "".join(parts) == expected.text
            assert len(parts) <= len(expected.tokens)


def test_of_a_text_longer_than_learned_positions_the_end_is_read_with_a_warning(build):
    learned = {"positions": "learned", "max_positions": 20}
    _, generator = build(learned, temperature=0.0, max_tokens=50)
    with pytest.warns(UserWarning, match=r"a text of \d+ tokens was truncated to its last 19"):
        [[long]] = continuations(generator, [PROMPTS[2]])
    assert len(long.tokens) == 1 and long.text.startswith(PROMPTS[2])
    _, least = build({"positions": "learned", "max_positions": 2}, max_tokens=50)
    with pytest.warns(UserWarning, match="truncated to its last 1"):
        [[one]] = continuations(least, [PROMPTS[2]])
    assert len(one.tokens) == 1


def test_a_text_that_ends_where_learned_positions_do_is_marked_and_counted(build):
    learned = {"positions": "learned", "max_positions": 20}
    for end, max_tokens, truncated in ((-9.0, 50, True), (-9.0, 12, False), (99.0, 50, False)):
        _, generator = build(learned, end, temperature=0.0, max_tokens=max_tokens)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            [[one], [other]] = continuations(generator, ["the cat", "the dog"])
            assert "".join(stream(generator, "the cat")) == one.text
        assert one.truncated is other.truncated is truncated
        assert len(one.tokens) <= 20 - 8 + 1  # BOS, and the last one is not read
        said = [str(one.message).partition(" end after")[0] for one in told]
        assert said == (["2 texts", "1 texts"] if truncated else [])


def test_a_text_begins_with_its_prompt_as_it_was_typed(build):
    _, generator = build(max_tokens=5)
    for prompt in ("the \N{BAR OF SOAP}", " the  cat ", "THE", "the\ncat", "  "):
        [[one]] = continuations(generator, [prompt])
        assert one.text.startswith(prompt) and len(one.text) > len(prompt)
        assert "".join(stream(generator, prompt)) == one.text


def test_a_search_continues_with_distinct_texts(build):
    _, generator = build(max_tokens=5, beam_size=4, samples=4)
    for of_one in continuations(generator, PROMPTS):
        assert len({one.text for one in of_one}) == len(of_one) == 4


def test_in_a_text_of_many_lines_what_is_drawn_goes_on_behind_their_ends(build):
    _, generator = build(max_tokens=60, temperature=1.2)
    through = replace(generator, lines=True)
    [[one]] = continuations(through, ["the cat"])
    assert len(one.tokens) == 60 and EOS in one.tokens
    assert one.text.count("\n") == one.tokens.count(EOS)
    assert "".join(stream(through, "the cat")) == one.text
