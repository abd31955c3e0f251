"""Batches: every pair once an epoch, in few shapes, in an order that can be resumed anywhere."""

import itertools
import json
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pairs import FIRST_TOKEN, pair_lengths, token_pairs

from transformer.config import Config, DataConfig, ModelConfig
from transformer.data.batching import Position, arrangement, batches, pad, pad_sources
from transformer.data.buckets import make_plan
from transformer.data.token_store import Sentences
from transformer.model.batch import BOS, EOS, PAD

choices = st.fixed_dictionaries(
    {
        "max_length": st.integers(6, 30),
        "batch_tokens": st.integers(120, 400),
        "num_buckets": st.integers(1, 6),
    }
)
settings = st.tuples(pair_lengths, choices)
"""What a plan needs to know: the pairs' lengths, the settings of DataConfig."""


def planned(lengths, chosen):
    """Pairs of these lengths and a usable one more, and their plan."""
    pairs = token_pairs(*zip(*lengths, (5, 5)))
    return pairs, make_plan(pairs, DataConfig(**chosen))


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
    lengths = zip(pairs.source.lengths, pairs.target.lengths)
    usable = [i for i, pair in enumerate(lengths) if min(pair) > 1 and max(pair) <= longest]
    shown = [i for batch in epoch(pairs, plan, number=number) for i in pair_numbers(batch)]
    assert sorted(shown) == usable
    assert plan.left_out == len(pairs) - len(usable)


@given(settings)
def test_shapes_are_few_and_within_the_budget(drawn):
    pairs, plan = planned(*drawn)
    _, chosen = drawn
    shapes = {(*b.source.shape, b.target_out.shape[1]) for b in epoch(pairs, plan)}
    assert shapes == set(plan.buckets)
    assert len(shapes) <= chosen["num_buckets"]
    for rows, source_length, target_length in shapes:
        assert rows * max(source_length, target_length) <= chosen["batch_tokens"]


@given(settings)
def test_padding_is_what_the_plan_says(drawn):
    pairs, plan = planned(*drawn)
    slots = np.concatenate(
        [x.ravel() for b in epoch(pairs, plan) for x in (b.source, b.target_out)]
    )
    assert np.mean(slots == PAD) == pytest.approx(plan.padding())


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
            ids = [number + FIRST_TOKEN] * (pairs.target.lengths[number] - 1)
            assert source.tolist()[: pairs.source.lengths[number]][-1] == EOS
            assert target_in.tolist()[: len(ids) + 1] == [BOS, *ids]
            assert target_out.tolist()[: len(ids) + 1] == [*ids, EOS]
            assert not target_in[len(ids) + 1 :].any()
            assert not target_out[len(ids) + 1 :].any()
            assert not source[pairs.source.lengths[number] + 1 :].any()


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
    plan = make_plan(pairs, DataConfig(batch_tokens=256))

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
    plan = make_plan(pairs, DataConfig(max_length=8, batch_tokens=16))
    stream = batches(pairs, plan, 0, Position())
    positions = [position for _, position in itertools.islice(stream, 2 * plan.batches_per_epoch)]
    assert plan.batches_per_epoch == 3
    assert positions == [(0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (2, 0)]


def one_side(side):
    """Texts of one side: pairs without the other."""
    pairs = token_pairs([3, 5, 4, 5], [3, 5, 4, 5])
    return replace(pairs, **{side: Sentences(np.zeros(0, int), np.zeros(5, int))})


def batches_of(config, pairs):
    plan = make_plan(pairs, config.data)
    stream = batches(pairs, plan, 0, Position(), arrangement(config))
    return [batch for batch, _ in itertools.islice(stream, 2 * plan.batches_per_epoch)]


def test_a_decoder_alone_reads_the_target_and_predicts_the_token_after():
    config = Config(model=ModelConfig(encoder_layers=0), data=DataConfig(source="", num_buckets=1))
    batch = batches_of(config, one_side("source"))[0]
    assert batch.source is None
    row = batch.target_out.tolist().index([6, 6, 6, 6, EOS, PAD])
    assert batch.target_in[row].tolist() == [BOS, 6, 6, 6, 6, PAD]


def test_an_encoder_alone_gets_other_blanks_in_every_epoch_and_the_same_on_resuming():
    model = ModelConfig(decoder_layers=0, source_vocab_size=30)
    config = Config(model=model, data=DataConfig(target="", num_buckets=1))
    none = Sentences(np.zeros(0, int), np.zeros(2, int))
    alone = replace(token_pairs([40], [0]), target=none)  # one row, so the order is always the same
    first, second = batches_of(config, alone)
    assert first.target_in is None
    asked = [np.flatnonzero(batch.target_out[0]).tolist() for batch in (first, second)]
    assert len(asked[0]) == len(asked[1]) == 6 and asked[0] != asked[1]
    plan = make_plan(alone, config.data)
    resumed, _ = next(batches(alone, plan, 0, Position(1), arrangement(config)))
    assert np.array_equal(resumed.source, second.source)


def test_blanks_depend_on_seed_epoch_and_batch_alone():
    """Eight times the same sentence, in two batches an epoch: only chance can tell them apart."""
    config = Config(
        model=ModelConfig(decoder_layers=0, source_vocab_size=30),
        data=DataConfig(target="", num_buckets=1, batch_tokens=256),
    )
    texts = token_pairs([40] * 8, [0] * 8)
    ids = np.tile(np.append(np.arange(4, 24), np.arange(4, 25)), 8)
    ids[40::41] = EOS
    none = Sentences(np.zeros(0, int), np.zeros(9, int))
    texts = replace(texts, source=Sentences(ids, texts.source.offsets), target=none)
    plan, arrange = make_plan(texts, config.data), arrangement(config)
    assert plan.batches_per_epoch == 2

    def asked(seed, epoch, number):
        batch, _ = next(batches(texts, plan, seed, Position(epoch, number), arrange))
        return batch.target_out.tobytes()

    moments = list(itertools.product((0, 1), repeat=3))
    assert len({asked(*moment) for moment in moments}) == len(moments)
    stream = batches(texts, plan, 1, Position(), arrange)
    going_on = [batch.target_out.tobytes() for batch, _ in itertools.islice(stream, 4)]
    assert going_on == [asked(1, *moment) for moment in itertools.product((0, 1), repeat=2)]


def test_a_classifier_reads_sentences_and_predicts_their_classes():
    config = Config(
        model=ModelConfig(decoder_layers=0),
        data=DataConfig(target="", label_column=2, num_buckets=1),
    )
    texts = token_pairs([3, 5], [0, 0])
    pairs = replace(texts, target=Sentences(np.array([2, 1]), texts.target.offsets))
    batch = batches_of(config, pairs)[0]
    assert batch.target_in is None
    labels = dict(zip((row[0] for row in batch.source.tolist()), batch.target_out.tolist()))
    assert labels == {FIRST_TOKEN: [2], FIRST_TOKEN + 1: [1]}


@given(st.lists(st.lists(st.integers(3, 50), max_size=6), max_size=4))
def test_rows_are_padded_on_either_side(sentences):
    table = pad_sources(sentences, rows=4, length=7)
    assert table.shape == (4, 7)
    assert table.dtype == np.int32
    for row, ids in itertools.zip_longest(table.tolist(), sentences):
        expected = [] if ids is None else [*ids, EOS]
        assert row == expected + [PAD] * (7 - len(expected))
    for row, ids in itertools.zip_longest(pad(sentences, 4, 7, left=True).tolist(), sentences):
        assert row == [PAD] * (7 - len(ids or [])) + (ids or [])


@pytest.mark.parametrize("sentences", [[[5] * 7], [[5]] * 5])
def test_sources_that_do_not_fit_are_refused(sentences):
    with pytest.raises((IndexError, ValueError)):
        pad_sources(sentences, rows=4, length=7)


def test_batches_come_quicker_than_any_model_eats_them():
    count = 30_000
    generator = np.random.default_rng(0)
    pairs = token_pairs(generator.integers(5, 40, count), generator.integers(5, 40, count))
    plan = make_plan(pairs, DataConfig(batch_tokens=4096))
    began = time.perf_counter()
    epoch(pairs, plan)
    assert plan.batches_per_epoch / (time.perf_counter() - began) > 100
