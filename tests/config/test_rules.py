"""Settings that are allowed and would waste a run."""

from dataclasses import replace
from pathlib import Path

import pytest

from transformer.config import Config, ModelConfig, OptimizerConfig, TrainConfig
from transformer.config.files import load_config
from transformer.config.rules import doubts

CONFIGS = sorted((Path(__file__).parents[2] / "configs").glob("*.py"))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_our_own_configs_are_not_doubtful(path):
    assert list(doubts(load_config(path))) == []


@pytest.mark.parametrize(
    ("optimizer", "train", "words"),
    [
        ({"warmup_steps": 500}, {"steps": 400}, ["warmup_steps (500)", "400 updates", "80%"]),
        ({"warmup_steps": 400}, {"steps": 400}, []),
        (
            {"warmup_steps": 400, "cooldown_steps": 201},
            {"steps": 500},
            ["warmup_steps (400)", "300 updates of training before its cooldown", "75%"],
        ),
        ({}, {"validate_every": 501}, ["validate_every (501)", "train.steps (500)"]),
        ({}, {"validate_every": 500}, []),
        ({}, {"validate_every": 100, "patience": 4}, ["patience (4)", "5 validations"]),
        ({}, {"validate_every": 90, "patience": 5}, ["patience (5)", "6 validations"]),
        ({}, {"validate_every": 90, "patience": 4}, []),
    ],
)
def test_what_would_waste_a_run_is_told_in_a_sentence(optimizer, train, words):
    train = {"steps": 500, "validate_every": 50} | train
    config = replace(
        Config(),
        optimizer=OptimizerConfig(**({"warmup_steps": 100} | optimizer)),
        train=TrainConfig(**train),
    )
    found = list(doubts(config))
    assert len(found) == bool(words)
    assert all(word in found[0] for word in words)


def test_r_drop_without_dropout_is_doubted_and_with_any_of_them_is_not():
    def doubted(**rates):
        model = ModelConfig(**({"dropout": 0.0} | rates))
        return list(doubts(Config(model=model, train=TrainConfig(r_drop=3.0))))

    [found] = doubted()
    assert "r_drop (3)" in found and "no effect" in found
    for name in ("dropout", "attention_dropout", "activation_dropout", "word_dropout"):
        assert doubted(**{name: 0.1}) == []
