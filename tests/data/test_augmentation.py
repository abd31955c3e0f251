"""Data augmentation: epochs in which shares of the pairs are changed."""

from dataclasses import replace

import numpy as np
import pytest
from sentences import SENTENCES

from transformer.config import DataConfig
from transformer.data.augmentation import KINDS, draw_kinds
from transformer.data.buckets import fits, longest_targets
from transformer.data.sampling import make_epochs
from transformer.data.token_store import encoded
from transformer.data.tokenizer import train_tokenizer
from transformer.data.vocabularies import Labels, Tokenizers
from transformer.model.batch import UNK

PAIRS = [(sentence, f"so {sentence}") for sentence in SENTENCES * 20]
DATA = DataConfig(upper_case=0.3, typos=0.2, batch_tokens=400, num_buckets=4)


@pytest.fixture(scope="module")
def tokenizers():
    texts = [text for pair in PAIRS for text in pair]
    tokenizer = train_tokenizer([*texts, *map(str.upper, texts)], "unigram", 90)
    return Tokenizers(tokenizer, tokenizer)


def texts_of(tokenizers, epoch):
    """(source, target) of all pairs of an epoch, in the order of the buckets."""
    pairs, plan = epoch
    numbers = np.concatenate(plan.members).tolist()
    sides = (pairs.source, pairs.target)
    columns = ([side[number] for number in numbers] for side in sides)
    return list(zip(*(t.decode(rows) for t, rows in zip(tokenizers, columns))))


def test_each_epoch_changes_other_pairs_by_the_shares_alone(tokenizers):
    pairs = encoded(DATA, tokenizers, PAIRS)
    plan, sample_epoch = make_epochs(DATA, tokenizers, 3, pairs)
    seen = []
    for number in range(3):
        drawn, of_epoch = sample_epoch.__wrapped__(number)
        assert of_epoch.buckets == plan.buckets
        for bucket, members in zip(plan.buckets, of_epoch.members):
            assert (drawn.source.lengths[members] <= bucket.source_length).all()
            assert (drawn.target.lengths[members] <= bucket.target_length).all()
        found = texts_of(tokenizers, (drawn, of_epoch))
        assert len(found) == len(PAIRS)
        upper = [pair for pair in found if pair[0].isupper()]
        typed = [(s, t) for s, t in found if t.islower() and t != f"so {s}"]
        assert {(s.lower(), t.lower()) for s, t in upper} <= set(PAIRS)
        assert {t for _, t in typed} <= {t for _, t in PAIRS}
        assert abs(len(upper) / len(PAIRS) - 0.3) < 0.1
        assert 0.05 < len(typed) / len(PAIRS) < 0.3  # a sentence may have no word that is long
        again = texts_of(tokenizers, sample_epoch.__wrapped__(number))
        assert again == found
        seen.append(str(found))
    assert len(set(seen)) == 3


def test_symbols_stay_in_lower_cased_text_too():
    data = replace(DATA, typos=0.9, upper_case=0.0, lowercase=True, user_symbols=("<NAME>",))
    pairs = [(f"<NAME> {source}", target) for source, target in PAIRS]
    tokenizer = train_tokenizer([text for pair in pairs for text in pair], "char", 90, data)
    both = Tokenizers(tokenizer, tokenizer)
    _, sample_epoch = make_epochs(data, both, 3, encoded(data, both, pairs))
    sources = [source for source, _ in texts_of(both, sample_epoch.__wrapped__(0))]
    assert set(sources) - {source for source, _ in pairs}
    assert all(source.startswith("<name> ") for source in sources)


def test_what_would_be_too_long_stays(tokenizers):
    longest = max(len(row) for pair in PAIRS for row in tokenizers.source.rows(pair))
    data = replace(DATA, upper_case=0.0, merged=0.9, typos=0.0, max_length=longest)
    pairs = encoded(data, tokenizers, PAIRS)
    plan, sample_epoch = make_epochs(data, tokenizers, 0, pairs)
    drawn, of_epoch = sample_epoch(0)
    members = np.concatenate(of_epoch.members)
    lengths = drawn.source.lengths[members], drawn.target.lengths[members]
    assert fits(*lengths, longest_targets(plan.buckets)).all() and plan.left_out == 0
    found = texts_of(tokenizers, (drawn, of_epoch))
    merged = [pair for pair in found if pair not in PAIRS]
    assert 0 < len(merged) < len(found)


def test_pairs_with_unknown_tokens_stay(tokenizers):
    strange = [("das \u4e2d haus", "so \u4e2d")] * 50
    pairs = encoded(DATA, tokenizers, [*PAIRS, *strange])
    data = replace(DATA, upper_case=0.9, typos=0.0)
    drawn, plan = make_epochs(data, tokenizers, 0, pairs)[1](0)
    members = np.concatenate(plan.members)
    unknown = [number for number in members.tolist() if UNK in drawn.source[number]]
    assert len(unknown) == 50 and max(unknown) < len(pairs)


def test_changes_that_bring_unknown_tokens_are_left_out():
    tokenizer = train_tokenizer([text for pair in PAIRS for text in pair], "char", 60)
    both = Tokenizers(tokenizer, tokenizer)
    data = replace(DATA, upper_case=0.9, typos=0.0)
    drawn, plan = make_epochs(data, both, 0, encoded(data, both, PAIRS))[1](0)
    assert set(texts_of(both, (drawn, plan))) == set(PAIRS)


def test_classes_stay_and_sources_change(tokenizers):
    both = Tokenizers(tokenizers.source, Labels(("cold", "warm")))
    data = replace(DATA, target="", label_column=2)
    pairs = encoded(
        data, both, [(source, ("cold", "warm")[len(source) % 2]) for source, _ in PAIRS]
    )
    found = texts_of(both, make_epochs(data, both, 0, pairs)[1](0))
    upper = [(source, label) for source, label in found if source.isupper()]
    assert abs(len(upper) / len(PAIRS) - 0.3) < 0.1
    assert all(label == ("cold", "warm")[len(source) % 2] for source, label in upper)


def test_weights_segmentations_and_changes_go_together(tokenizers):
    data = replace(DATA, sampling=0.2)
    pairs = encoded(data, tokenizers, PAIRS)
    found = texts_of(tokenizers, make_epochs(data, tokenizers, 0, pairs)[1](1))
    assert len(found) == len(PAIRS)
    plain = sum(pair in PAIRS for pair in found)
    assert 0.45 < plain / len(PAIRS) < 0.75


def test_kinds_are_drawn_by_their_shares():
    drawn = draw_kinds(DataConfig(upper_case=0.1, cut=0.4), 10_000, (1, 2))
    counts = np.bincount(drawn, minlength=len(KINDS) + 1) / 10_000
    np.testing.assert_allclose(counts, [0.1, 0, 0, 0, 0, 0.4, 0.5], atol=0.03)
