"""What each epoch shows: corpora by weight, words in other pieces, the same again when resumed."""

from collections import Counter
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from pairs import token_pairs
from sentences import SENTENCES

from transformer.config import DataConfig
from transformer.data import sampling
from transformer.data.batching import Position, batches
from transformer.data.sampling import even_weights, make_epochs, repeats
from transformer.data.token_store import encode_pairs
from transformer.data.tokenizer import train_tokenizer
from transformer.data.vocabularies import Tokenizers

"""Rows of batches are multiples of it."""


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    """Two corpora, of 20 and 10 pairs that differ, and the settings that name them."""
    folder = tmp_path_factory.mktemp("corpora")
    names = []
    for name, sentences in (("first", SENTENCES[:20]), ("second", SENTENCES[20:30])):
        for side in ("en", "de"):
            path = folder / f"{name}.{side}"
            path.write_text("".join(f"{line}\n" for line in sentences))
            names.append(str(path))
    return DataConfig(dataset="", train_files=tuple(names), batch_tokens=200, num_buckets=3)


@pytest.fixture(params=["unigram", "bpe"])
def tokenizers(request):
    tokenizer = train_tokenizer(SENTENCES, request.param, 44)
    return Tokenizers(tokenizer, tokenizer)


def sentences_of(tokenizers, drawn):
    """The text of all target sentences that an epoch shows, and their tokens."""
    pairs, plan = drawn
    rows = [pairs.target[number] for number in np.concatenate(plan.members).tolist()]
    return tokenizers.target.decode(rows), rows


@pytest.fixture
def sampled(corpora, tokenizers, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    data = replace(corpora, sampling=0.2)
    pairs = encode_pairs(data, tokenizers, "train")
    return pairs, *make_epochs(data, tokenizers, 1, pairs)


def test_every_epoch_shows_the_same_text_in_other_pieces(sampled, tokenizers):
    pairs, _, sample_epoch = sampled
    cut = []
    for epoch in range(3):
        texts, rows = sentences_of(tokenizers, sample_epoch(epoch))
        assert Counter(texts) == Counter(SENTENCES)
        cut.append(sorted(map(tuple, rows)))
    plain = sorted(tuple(pairs.target[number]) for number in range(len(pairs)))
    assert len({*map(str, cut), str(plain)}) == 4


def test_source_and_target_are_cut_each_by_itself(sampled):
    pairs, _ = sampled[2](0)
    sides = [(pairs.source[number], pairs.target[number]) for number in range(len(pairs))]
    assert any(source != target for source, target in sides)  # the texts are the same


def test_shapes_stay_and_everything_fits(sampled):
    _, plan, sample_epoch = sampled
    for epoch in range(5):
        pairs, of_epoch = sample_epoch(epoch)
        assert of_epoch.buckets == plan.buckets
        for bucket, members in zip(of_epoch.buckets, of_epoch.members):
            assert (pairs.source.lengths[members] <= bucket.source_length).all()
            assert (pairs.target.lengths[members] <= bucket.target_length).all()


def test_each_pair_is_in_the_cheapest_shape_that_it_fits_into(sampled):
    pairs, plan = sampled[2](2)
    for bucket, members in zip(plan.buckets, plan.members):
        for number in members:
            source, target = pairs.source.lengths[number], pairs.target.lengths[number]
            costs = [b[1] + 2 * b[2] for b in plan.buckets if b[1] >= source and b[2] >= target]
            assert bucket[1] + 2 * bucket[2] == min(costs)


def test_what_would_be_too_long_stays_in_its_likeliest_pieces(corpora, tokenizers, monkeypatch):
    lengths = [len(row) for row in tokenizers.source.rows(SENTENCES)]
    data = replace(corpora, sampling=0.2, max_length=max(lengths))
    plain = {tuple(row) for row in tokenizers.source.rows(SENTENCES)}
    pairs = encode_pairs(data, tokenizers, "train")
    plan, sample_epoch = make_epochs(data, tokenizers, 0, pairs)
    assert plan.left_out == 0
    for epoch in range(3):
        drawn, of_epoch = sample_epoch(epoch)
        assert sum(map(len, of_epoch.members)) == len(SENTENCES)
        assert max(drawn.source.lengths.max(), drawn.target.lengths.max()) <= max(lengths)
        longest = [drawn.source[n] for n in range(len(drawn)) if lengths[n] == max(lengths)]
        assert all(tuple(row) in plain for row in longest)


def test_the_stream_goes_on_from_any_place_as_if_it_had_not_stopped(sampled, corpora):
    pairs, plan, sample_epoch = sampled
    stream = list(islice(batches(pairs, plan, 1, Position(), sample_epoch=sample_epoch), 20))
    assert stream[-1][1].epoch > 1
    for start in (0, 7, 13, 18):
        again = batches(pairs, plan, 1, stream[start][1], sample_epoch=sample_epoch.__wrapped__)
        for (ours, place), (theirs, expected) in zip(again, stream[start + 1 :]):
            assert place == expected
            for a, b in zip(vars(ours).values(), vars(theirs).values()):
                np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("weights", [(1.0, 3.0), (0.5, 2.0), (0.0, 1.0), (2.3, 0.7)])
def test_corpora_are_repeated_by_their_weights(corpora, tokenizers, weights):
    data = replace(corpora, train_weights=weights)
    pairs = encode_pairs(data, tokenizers, "train")
    _, sample_epoch = make_epochs(data, tokenizers, 0, pairs)
    chosen = []
    for epoch in range(3):
        texts, _ = sentences_of(tokenizers, sample_epoch(epoch))
        counts = [
            Counter(t for t in texts if t in part) for part in (SENTENCES[:20], SENTENCES[20:])
        ]
        for counted, weight, size in zip(counts, weights, (20, 10)):
            assert counted.total() == round(weight * size)
            assert all(int(weight) <= n <= int(weight) + 1 for n in counted.values())
        chosen.append(str(counts))
    has_fraction = any(weight % 1 for weight in weights)
    assert len(set(chosen)) == (3 if has_fraction else 1)


@pytest.mark.parametrize(
    "temperature, weights", [(1, [1, 1, 1]), (2, [1, 3, 9]), (1e9, [1, 9, 81])]
)
def test_a_temperature_evens_out_the_sizes(monkeypatch, temperature, weights):
    data = DataConfig(corpus_temperature=temperature)
    monkeypatch.setattr(sampling, "corpora", lambda *_: ["a", "b", "c"])
    np.testing.assert_allclose(even_weights(data, (8100, 900, 100)), weights, rtol=1e-6)


def test_corpora_of_one_language_are_weighted_together(monkeypatch):
    data = DataConfig(corpus_temperature=2, targets=("de", "fr"), target="de")
    names = [(Path("a.de"),), (Path("b.fr"),), (Path("c.fr"),)]
    monkeypatch.setattr(sampling, "corpora", lambda *_: names)
    np.testing.assert_allclose(even_weights(data, (900, 60, 40)), [1, 3, 3])


def test_repeats_depend_on_seed_and_epoch_alone():
    one, same, other_epoch, other_seed = (
        repeats((0.5,), (100,), seed) for seed in ((1, 2), (1, 2), (1, 3), (2, 2))
    )
    np.testing.assert_array_equal(one, same)
    assert (one != other_epoch).any() and (one != other_seed).any()


def test_without_such_settings_nothing_is_sampled(tokenizers):
    plan, sample_epoch = make_epochs(DataConfig(), tokenizers, 0, token_pairs([3, 4], [5, 5]))
    assert sample_epoch is None and plan.left_out == 0
