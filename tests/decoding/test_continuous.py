"""Continuous batching finds for each sentence what a search for it alone finds."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.config import DecodeConfig
from transformer.decoding import continuous
from transformer.decoding.batches import SearchInput
from transformer.decoding.continuous import Queue, admit
from transformer.decoding.ensemble import make_ensemble
from transformer.decoding.search import BeamSearch
from transformer.decoding.translator import begin_search, search_batch, search_series
from transformer.model.batch import EOS, PAD


def sources(counts, rows, width=40):
    """A batch of so many tokens a sentence, EOS included; rows of padding behind them."""
    generator = np.random.default_rng(sum(counts))
    table = np.full((rows, width), PAD, np.int32)
    for row, count in enumerate(counts):
        table[row, :count] = [*generator.integers(4, 23, count - 1), EOS]
    return table


BATCHES = [
    sources([33, 30, 2, 9], 4),
    sources([12, 3, 25, 8], 4),
    sources([5, 7], 4),
    sources([2, 9, 2, 3], 4),
    sources([4, 4, 3, 2], 4),
    sources([2, 3, 2], 4),
]
"""Of different lengths of output too, since their model ends late: caches grow and shrink."""


@pytest.fixture
def ensemble(small_model, random_params):
    """Of `count` models that end seldom, or often."""

    def build(count=1, end=-2.0):
        model = small_model(output_bias=True)
        members = []
        for seed in range(count):
            params = random_params(model, seed=seed)
            bias = params.embedding.output_bias.at[EOS].add(end)
            embedding = params.embedding.replace(output_bias=bias)
            members.append((model, params.replace(embedding=embedding)))
        return make_ensemble(members, "model")

    return build


PREFIXES = [
    np.pad([[6, 7, 8]], ((0, 3), (0, 13))).astype(np.int32),
    np.zeros((4, 16), np.int32),
    *[np.pad([[5], [9]], ((0, 2), (0, 15))).astype(np.int32)] * 4,
]


SHORTLISTS = [
    np.array([[EOS, 5, 6, 7, 8, 9, first, last] for last in (19, 20, 21, 22)], np.int32)
    for first in range(10, 10 + len(BATCHES))
]


@pytest.mark.parametrize(
    "beam, wanted, models, tables",
    [
        pytest.param(1, 1, 1, (), marks=pytest.mark.slow),
        pytest.param(3, 1, 1, (), marks=pytest.mark.slow),
        (3, 2, 1, ("prefix", "shortlist")),
        pytest.param(1, 1, 1, ("prefix",), marks=pytest.mark.slow),
        pytest.param(3, 1, 2, ("shortlist",), marks=pytest.mark.slow),
    ],
)
def test_sentences_that_follow_each_other_are_found_as_alone(
    ensemble, monkeypatch, beam, wanted, models, tables
):
    settings = DecodeConfig(beam_size=beam, alpha=0.6, max_extra_length=3)
    prefixes = PREFIXES if "prefix" in tables else [None] * len(BATCHES)
    shortlists = SHORTLISTS if "shortlist" in tables else [None] * len(BATCHES)
    halvings = []
    halve = continuous._shrink
    monkeypatch.setattr(continuous, "_shrink", lambda state: halvings.append(1) or halve(state))
    members = ensemble(models)
    every = [
        SearchInput(source, prefix, None, shortlist)
        for source, prefix, shortlist in zip(BATCHES, prefixes, shortlists)
    ]
    results = search_series(members, settings, every, wanted)
    assert len(results) == len(BATCHES) and halvings
    for inputs, result in zip(every, results):
        [alone] = search_series(members, settings, [inputs], wanted)
        np.testing.assert_array_equal(result.tokens[:, :wanted], alone.tokens[:, :wanted])
        np.testing.assert_allclose(result.scores[:, :wanted], alone.scores[:, :wanted], rtol=1e-5)
        for row in range(len(inputs.source)):
            one = slice(row, row + 1)
            [own] = search_series(
                members, settings, [jax.tree.map(lambda table: table[one], inputs)], wanted
            )
            np.testing.assert_array_equal(result.tokens[one, :wanted], own.tokens[:, :wanted])


@pytest.mark.parametrize("end", [-2.0, 2.0])
def test_constraints_look_at_the_sentence_and_not_at_who_was_there_before(ensemble, end):
    settings = DecodeConfig(
        beam_size=2, max_extra_length=3, min_length=8, no_repeat_ngram=2, repetition_penalty=1.5
    )
    members = ensemble(end=end)
    results = search_series(members, settings, map(SearchInput, BATCHES), 1)
    for source, result in zip(BATCHES, results):
        alone = search_batch(members, settings, source)
        np.testing.assert_array_equal(result.tokens[:, 0], alone.tokens[:, 0])


def test_a_finished_sentence_changes_places_with_the_next_pending_one(ensemble):
    members, settings = ensemble(), DecodeConfig(beam_size=2)
    begin = partial(begin_search, members.models, settings, members.params)
    inputs = SearchInput(sources([5, 6, 7, 8], 4)), SearchInput(sources([9, 10], 4))
    state, others = map(begin, inputs)
    done = jnp.asarray([False, True, False, True])
    state = state.replace(done=done, scores=state.scores.at[:, 0].set(jnp.arange(4.0)))
    now, queue = admit(state, Queue(others, np.zeros(4, np.int32), np.int32(0)))
    # Slots 1 and 3 are taken, by sentences that are unfinished.
    assert queue.admitted == 2 and queue.slots[:2].tolist() == [1, 3]
    assert now.limits.tolist() == [
        state.limits[0],
        others.limits[0],
        state.limits[2],
        others.limits[1],
    ]
    assert not now.done.any()
    assert queue.state.scores[:2, 0].tolist() == [1.0, 3.0]
    [cache], [before], [coming] = now.cache, state.cache, others.cache
    for layers in zip(cache.layers, before.layers, coming.layers):
        mine, old, new = (layer.memory for layer in layers)
        np.testing.assert_array_equal(mine.kv.k[::2], old.kv.k[::2])
        np.testing.assert_array_equal(mine.kv.k[1::2], new.kv.k[:2])
        np.testing.assert_array_equal(mine.mask[1::2], new.mask[:2])
    # Rows of padding are finished: they come and go until the queue is empty.
    later, queue = admit(now.replace(done=done), queue)
    assert queue.admitted == 4 and later.done.tolist() == [False, True, False, True]


def test_a_search_has_the_same_types_before_and_after_a_pause(ensemble):
    """Else it would be compiled twice for each shape."""
    members, settings = ensemble(), DecodeConfig(beam_size=2)
    begun = begin_search(members.models, settings, members.params, SearchInput(sources([5, 6], 2)))
    paused, _ = continuous.search_until_pause(
        members, BeamSearch(settings), continuous.ensure_capacity(begun), 1
    )

    def types(state):
        return [(leaf.dtype, leaf.weak_type) for leaf in jax.tree.leaves(state)]

    assert types(begun) == types(paused)


@pytest.mark.parametrize("rows, at_first", [(4, 64), (8, 0)])
def test_a_search_that_has_not_begun_has_the_capacity_of_few_or_gets_it(ensemble, rows, at_first):
    members, settings = ensemble(), DecodeConfig(beam_size=2)
    inputs = SearchInput(sources([5, 6], rows))
    state = begin_search(members.models, settings, members.params, inputs)
    assert state.cache[0].ancestry.shape[-1] == at_first
    ready = continuous.ensure_capacity(state)
    assert ready.cache[0].ancestry.shape[-1] == (at_first or 16)
    assert continuous.ensure_capacity(ready) is ready
