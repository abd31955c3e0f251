"""Batch shapes: few, with little padding, and one for every pair."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pairs import pair_lengths, token_pairs

from transformer.config import Config, DataConfig, ModelConfig
from transformer.data.buckets import (
    MOST_LENGTHS,
    TARGET_COST,
    make_plan,
    plan_buckets,
    plan_to_score,
)
from transformer.errors import UserError


def test_more_buckets_never_pad_more():
    generator = np.random.default_rng(0)
    source = generator.poisson(12, 5000) + 1
    target = np.maximum(1, source + generator.integers(-4, 5, 5000))
    pairs = token_pairs(source, target)
    padding = [
        make_plan(pairs, DataConfig(num_buckets=n, batch_tokens=2048)).padding()
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
    once = np.ones(len(lengths), int)
    buckets, _ = plan_buckets(*lengths.T, once, num_buckets=2, batch_tokens=10**6)
    # Less still where the pairs that are left are shorter than the longest.
    assert sum(b.rows * cost((b.source_length, b.target_length)) for b in buckets) <= least


@given(pair_lengths, st.integers(1, 6))
def test_every_pair_is_in_a_shape_that_it_fits_into(lengths, num_buckets):
    lengths = np.array(lengths) + 1
    buckets, bucket_of = plan_buckets(*lengths.T, np.ones(len(lengths), int), num_buckets, 10**6)
    for pair, number in zip(lengths, bucket_of):
        fitting = [b for b in buckets if pair[0] <= b.source_length and pair[1] <= b.target_length]
        assert buckets[number] in fitting
    assert len(set(buckets)) == len(buckets) <= num_buckets


def test_very_many_lengths_are_planned_as_well():
    generator = np.random.default_rng(0)
    lengths = generator.integers(1, 1000, (2, 20_000))
    once = np.ones(20_000, int)
    few, many = (plan_buckets(*lengths, once, n, 10**4)[0] for n in (4, 16))
    assert len(few) == 4
    assert len(many) == 16


def test_lengths_that_are_counted_are_planned_as_lengths_one_by_one():
    generator = np.random.default_rng(0)
    lengths = generator.poisson((10, 200), (20_000, 2)) + 1
    distinct, counts = np.unique(lengths, axis=0, return_counts=True)
    assert len(np.unique(distinct[:, 1])) > MOST_LENGTHS and len(distinct) < len(lengths) / 2
    buckets, bucket_of = plan_buckets(*distinct.T, counts, 8, 10**4)
    one_by_one, each = plan_buckets(*lengths.T, np.ones(len(lengths), int), 8, 10**4)
    assert buckets == one_by_one
    found = {tuple(pair): bucket for pair, bucket in zip(distinct.tolist(), bucket_of)}
    assert [found[tuple(pair)] for pair in lengths.tolist()] == each.tolist()


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 500))
def test_the_last_batch_is_nearly_full(source, target, count):
    (bucket,), _ = plan_buckets(*np.array([[source], [target], [count]]), 12, 400)
    batches_needed = -(-count // bucket.rows)
    assert batches_needed * bucket.rows - count < batches_needed
    assert batches_needed == -(-count // (400 // max(source, target)))


@given(pair_lengths, st.integers(1, 16))
def test_padding_counts_the_rows_that_devices_need(lengths, multiple):
    pairs = token_pairs(*zip(*lengths, (5, 5)))
    plan = make_plan(pairs, DataConfig(num_buckets=3, batch_tokens=300))
    assert 0 <= plan.padding() <= plan.padding(multiple) < 1
    positions = 0
    for (rows, source, target), members in zip(plan.buckets, plan.members):
        rows_of_each = rows + -rows % multiple
        positions += -(-len(members) // rows) * rows_of_each * (source + target)
    assert plan.padding(multiple) == pytest.approx(1 - plan.tokens / positions)


def test_a_budget_too_small_names_the_settings():
    with pytest.raises(UserError, match=r"data\.batch_tokens \(20\).*a sentence of 21 tokens"):
        make_plan(token_pairs([20], [5]), DataConfig(batch_tokens=20))


@pytest.mark.parametrize("lengths", [([0], [3]), ([3], [0]), ([300], [3]), ([], [])])
def test_no_usable_pair_is_an_error(lengths):
    with pytest.raises(UserError, match=r"data\.max_length \(256\)"):
        make_plan(token_pairs(*(np.array(side, int) for side in lengths)), DataConfig())


def test_unusable_pairs_are_named_by_their_split_and_true_limits():
    config = Config(data=DataConfig(max_length=10))
    with pytest.raises(UserError, match="none of the 1 training pairs") as caught:
        make_plan(token_pairs([11], [3]), config.data)
    assert str(caught.value).endswith("more tokens than data.max_length (10)")
    with pytest.raises(UserError, match="none of the 2 validation pairs") as caught:
        plan_to_score(config, token_pairs([2000, 5], [3, 0]), "validation")
    limits = "data.max_length (10) and decode.max_source_length (1024)"
    assert str(caught.value).endswith(f"more tokens than {limits}")
    learned = replace(config, model=ModelConfig(positions="learned", max_positions=10))
    with pytest.raises(UserError, match=r"or model.max_positions \(10\)$"):
        plan_to_score(learned, token_pairs([12], [12]), "validation")


def test_a_pair_of_exactly_the_longest_length_is_used():
    data = DataConfig(max_length=10)
    assert make_plan(token_pairs([9, 10], [9, 10]), data).left_out == 1


def test_a_text_that_is_only_scored_is_planned_whole_whatever_training_leaves_out():
    pairs = token_pairs([3, 200, 0], [4, 150, 2])
    config = Config(data=DataConfig(max_length=10, batch_tokens=64))
    assert make_plan(pairs, config.data).left_out == 2
    assert plan_to_score(config, pairs).left_out == 1
    learned = replace(config, model=ModelConfig(positions="learned", max_positions=100))
    assert plan_to_score(learned, pairs).left_out == 2


def test_few_pairs_are_scored_in_one_shape():
    config = Config(data=DataConfig(batch_tokens=100))
    lengths = [3, 5, 9, 14, 19] * 4
    assert len(plan_to_score(config, token_pairs(lengths, lengths)).buckets) == 1
    more = [*lengths, 3]
    assert len(plan_to_score(config, token_pairs(more, more)).buckets) > 1
