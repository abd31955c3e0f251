"""How long translations may become, from the lengths of the training pairs."""

from dataclasses import replace

import numpy as np
import pytest
from pairs import token_pairs

from transformer.config import Config, DataConfig, DecodeConfig
from transformer.data import spilled
from transformer.data.derived import length_limits, with_derived
from transformer.decoding.batches import longest_output

CONFIG = Config(data=DataConfig(max_length=256))


def limit(config, source):
    return longest_output([config.model], config.decode, source)


def test_pairs_of_like_lengths_leave_the_limit_as_it_is():
    source = np.arange(1, 101)
    pairs = token_pairs(source, np.minimum(2 * source, source + 40))
    assert length_limits(CONFIG, pairs) == (1.0, 0)
    assert with_derived(CONFIG, pairs) == CONFIG
    assert length_limits(CONFIG, token_pairs([], [])) == (1.0, 0)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (np.arange(1, 21), 10 * np.arange(1, 21)),  # digits to words, by characters
        (np.arange(1, 101), np.full(100, 200)),  # a headline and an article
        (np.array([1] * 500), np.arange(1, 501) % 250),  # words and what they mean
    ],
)
def test_all_training_targets_are_within_the_limit(source, target, monkeypatch):
    monkeypatch.setattr(spilled, "AT_ONCE", 7)  # looked at in parts
    config = with_derived(CONFIG, token_pairs(source, target))
    limits = np.array([limit(config, int(n)) for n in source])
    assert (limits > target).all()  # EOS
    # It bounds what a source that is longer than all others may become.
    assert limit(config, 250) <= max(250, target.max() + 1) + 50
    assert limit(config, 1000) == 1000 + 50


def test_a_few_pairs_that_are_no_translations_or_left_out_do_not_count():
    source, target = np.full(5000, 20), np.full(5000, 25)
    target[:4] = 240
    assert length_limits(CONFIG, token_pairs(source, target)) == (1.0, 0)
    target[4:9] = 240
    assert length_limits(CONFIG, token_pairs(source, target)) == (9.6, 241)
    assert length_limits(CONFIG, token_pairs([3, 0, 5], [400, 100, 5])) == (1.0, 0)


def test_what_a_run_has_of_its_training_pairs_is_taken_over_when_it_goes_on():
    run = replace(CONFIG, decode=DecodeConfig(length_ratio=2.5, longest_target=99, beam_size=7))
    assert CONFIG.with_derived_of(run).decode == DecodeConfig(length_ratio=2.5, longest_target=99)
