"""Batches: every pair once an epoch, in few shapes, in an order that can be resumed anywhere."""

import itertools
import json
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transformer.config import DataConfig
from transformer.data.batching import (
    TARGET_COST,
    Position,
    batches,
    make_plan,
    pad_sources,
    plan_buckets,
)
from transformer.data.token_store import TokenPairs
from transformer.errors import UserError
from transformer.model.batch import BOS, EOS, PAD

FIRST_TOKEN = 4


def token_pairs(source_lengths, target_lengths) -> TokenPairs:
    """Pairs in which the source of pair i is all i + 4, and its target too."""

    def side(lengths):
        numbers = np.arange(len(lengths)) + FIRST_TOKEN
        return np.repeat(numbers, lengths), np.concatenate([[0], np.cumsum(lengths)]).astype(int)

    return TokenPairs(*side(source_lengths), *side(target_lengths))


pair_lengths = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=1)
"""Source and target lengths, empty and too long ones among them."""

choices = st.fixed_dictionaries(
    {
        "max_length": st.integers(6, 30),
        "batch_tokens": st.integers(120, 400),
        "num_buckets": st.integers(1, 6),
    }
)
settings = st.tuples(pair_lengths, choices, st.integers(1, 4))
"""What a plan needs to know: the pairs' lengths, the settings of DataConfig, rows_multiple."""


def planned(lengths, chosen, multiple):
    """Pairs of these lengths and a usable one more, and their plan."""
    pairs = token_pairs(*zip(*lengths, (5, 5)))
    return pairs, make_plan(pairs, DataConfig(**chosen), multiple)


def pair_numbers(batch) -> list[int]:
    """Which pairs of `token_pairs` the rows of a batch hold."""
    return [int(row[0]) - FIRST_TOKEN for row in batch.source if row[0] != PAD]


def epoch(pairs, plan, seed=0, number=0):
    stream = batches(pairs, plan, seed, Position(number, 0))
    return [batch for batch, _ in itertools.islice(stream, plan.batches_per_epoch)]


def same(a, b) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(vars(a).values(), vars(b).values()))


@given(settings, st.integers(0, 5))
def test_an_epoch_shows_every_usable_pair_once(drawn, number):
    pairs, plan = planned(*drawn)
    longest = drawn[1]["max_length"]
    lengths = zip(pairs.source_lengths + 1, pairs.target_lengths + 1)
    usable = [i for i, pair in enumerate(lengths) if min(pair) > 1 and max(pair) <= longest]
    shown = [i for batch in epoch(pairs, plan, number=number) for i in pair_numbers(batch)]
    assert sorted(shown) == usable
    assert plan.left_out == len(pairs) - len(usable)


@given(settings)
def test_shapes_are_few_and_within_the_budget(drawn):
    pairs, plan = planned(*drawn)
    _, chosen, multiple = drawn
    shapes = {(*b.source.shape, b.target_out.shape[1]) for b in epoch(pairs, plan)}
    assert shapes == set(plan.buckets)
    assert len(shapes) <= chosen["num_buckets"]
    for rows, source_length, target_length in shapes:
        assert rows % multiple == 0
        assert rows * max(source_length, target_length) <= chosen["batch_tokens"]


@given(settings)
def test_padding_is_what_the_plan_says(drawn):
    pairs, plan = planned(*drawn)
    slots = np.concatenate(
        [x.ravel() for b in epoch(pairs, plan) for x in (b.source, b.target_out)]
    )
    assert np.mean(slots == PAD) == pytest.approx(plan.padding)


@given(settings)
def test_rows_are_laid_out_for_teacher_forcing(drawn):
    pairs, plan = planned(*drawn)
    for batch in epoch(pairs, plan):
        assert {x.dtype for x in vars(batch).values()} == {np.dtype(np.int32)}
        for source, target_in, target_out in zip(*vars(batch).values()):
            if not source.any():
                assert not target_in.any()
                assert not target_out.any()
                continue
            number = source[0] - FIRST_TOKEN
            ids = [number + FIRST_TOKEN] * pairs.target_lengths[number]
            assert source.tolist()[: pairs.source_lengths[number] + 1][-1] == EOS
            assert target_in.tolist()[: len(ids) + 1] == [BOS, *ids]
            assert target_out.tolist()[: len(ids) + 1] == [*ids, EOS]
            assert not target_in[len(ids) + 1 :].any()
            assert not target_out[len(ids) + 1 :].any()
            assert not source[pairs.source_lengths[number] + 1 :].any()


@given(settings, st.integers(0, 2**32), st.integers(0, 20))
def test_resuming_anywhere_equals_continuing(drawn, seed, steps):
    pairs, plan = planned(*drawn)
    stream = batches(pairs, plan, seed, Position())
    position = Position()
    for _ in range(steps):
        _, position = next(stream)
    position = Position(*json.loads(json.dumps(position)))
    resumed = batches(pairs, plan, seed, position)
    for (a, after_a), (b, after_b) in itertools.islice(zip(stream, resumed), 5):
        assert same(a, b)
        assert after_a == after_b


def test_the_order_depends_on_seed_and_epoch_alone():
    generator = np.random.default_rng(0)
    pairs = token_pairs(generator.integers(1, 30, 500), generator.integers(1, 30, 500))
    plan = make_plan(pairs, DataConfig(batch_tokens=256), 1)

    def order(seed, number):
        return [pair_numbers(batch) for batch in epoch(pairs, plan, seed, number)]

    assert order(1, 3) == order(1, 3)
    assert order(1, 3) != order(1, 4)
    assert order(1, 3) != order(2, 3)
    # Not only the batches move: pairs meet other pairs.
    met = [{frozenset(batch) for batch in order(1, number)} for number in (3, 4)]
    assert len(met[0] & met[1]) < plan.batches_per_epoch / 4


def test_positions_count_batches_and_epochs():
    pairs = token_pairs([3] * 10, [3] * 10)
    plan = make_plan(pairs, DataConfig(max_length=8, batch_tokens=16), 1)
    stream = batches(pairs, plan, 0, Position())
    positions = [position for _, position in itertools.islice(stream, 2 * plan.batches_per_epoch)]
    assert plan.batches_per_epoch == 3
    assert positions == [(0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (2, 0)]


def test_more_buckets_never_pad_more():
    generator = np.random.default_rng(0)
    source = generator.poisson(12, 5000) + 1
    target = np.maximum(1, source + generator.integers(-4, 5, 5000))
    pairs = token_pairs(source, target)
    padding = [
        make_plan(pairs, DataConfig(num_buckets=n, batch_tokens=2048), 8).padding
        for n in (1, 2, 4, 8, 12, 24)
    ]
    assert padding == sorted(padding, reverse=True)
    assert padding[0] > 0.4
    assert padding[4] < 0.2


@given(pair_lengths)
def test_the_second_shape_is_the_best_there_is(lengths):
    """All shapes beside the one that holds all pairs are tried."""
    lengths = np.array(lengths) + 1
    longest = lengths.max(axis=0)

    def cost(shape):
        return shape[0] + TARGET_COST * shape[1]

    def cost_with(shape):
        fits = (lengths <= shape).all(axis=1)
        return fits.sum() * cost(shape) + (~fits).sum() * cost(longest)

    least = min(map(cost_with, itertools.product(*(range(1, n + 1) for n in longest))))
    # With so few pairs and rows_multiple 1 nothing but padding counts.
    buckets, _ = plan_buckets(*lengths.T, num_buckets=2, batch_tokens=10**6, rows_multiple=1)
    # Less still where the pairs that are left are shorter than the longest.
    assert sum(b.rows * cost((b.source_length, b.target_length)) for b in buckets) <= least


@given(pair_lengths, st.integers(1, 6))
def test_every_pair_is_in_a_shape_that_it_fits_into(lengths, num_buckets):
    lengths = np.array(lengths) + 1
    buckets, bucket_of = plan_buckets(*lengths.T, num_buckets, 10**6, 1)
    for pair, number in zip(lengths, bucket_of):
        fitting = [b for b in buckets if pair[0] <= b.source_length and pair[1] <= b.target_length]
        assert buckets[number] in fitting
    assert len(set(buckets)) == len(buckets) <= num_buckets


def test_very_many_lengths_are_planned_as_well():
    generator = np.random.default_rng(0)
    lengths = generator.integers(1, 1000, (2, 20_000))
    few, many = (plan_buckets(*lengths, n, 10**4, 8)[0] for n in (4, 16))
    assert len(few) == 4
    assert len(many) == 16


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 500), st.integers(1, 8))
def test_the_last_batch_is_nearly_full(source, target, count, multiple):
    (bucket,), _ = plan_buckets(np.full(count, source), np.full(count, target), 12, 400, multiple)
    batches_needed = -(-count // bucket.rows)
    assert batches_needed * bucket.rows - count < batches_needed * multiple
    fullest = 400 // max(source, target) // multiple * multiple
    assert batches_needed == -(-count // fullest)


def test_a_budget_too_small_names_the_settings():
    with pytest.raises(UserError, match=r"data\.batch_tokens \(100\).*micro_batches.*devices.*168"):
        make_plan(token_pairs([20], [5]), DataConfig(batch_tokens=100), rows_multiple=8)


@pytest.mark.parametrize("lengths", [([0], [3]), ([3], [0]), ([300], [3]), ([], [])])
def test_no_usable_pair_is_an_error(lengths):
    with pytest.raises(UserError, match=r"data\.max_length \(256\)"):
        make_plan(token_pairs(*(np.array(side, int) for side in lengths)), DataConfig(), 1)


def test_a_pair_of_exactly_the_longest_length_is_used():
    data = DataConfig(max_length=10)
    assert make_plan(token_pairs([9, 10], [9, 10]), data, 1).left_out == 1


@given(st.lists(st.lists(st.integers(3, 50), max_size=6), max_size=4))
def test_sources_are_padded_for_decoding(sentences):
    table = pad_sources(sentences, rows=4, length=7)
    assert table.shape == (4, 7)
    assert table.dtype == np.int32
    for row, ids in itertools.zip_longest(table.tolist(), sentences):
        expected = [] if ids is None else [*ids, EOS]
        assert row == expected + [PAD] * (7 - len(expected))


@pytest.mark.parametrize("sentences", [[[5] * 7], [[5]] * 5])
def test_sources_that_do_not_fit_are_refused(sentences):
    with pytest.raises((IndexError, ValueError)):
        pad_sources(sentences, rows=4, length=7)


def test_batches_come_quicker_than_any_model_eats_them():
    count = 30_000
    generator = np.random.default_rng(0)
    pairs = token_pairs(generator.integers(5, 40, count), generator.integers(5, 40, count))
    plan = make_plan(pairs, DataConfig(batch_tokens=4096), 8)
    began = time.perf_counter()
    epoch(pairs, plan)
    assert plan.batches_per_epoch / (time.perf_counter() - began) > 100
