"""Several models trained at once (benchmarks/grid.py), against one at a time."""

from dataclasses import replace
from functools import partial
from itertools import islice

import jax
import numpy as np
import pytest

from benchmarks.grid import Outcome, Training, best, prepared, translated, with_values
from transformer.config import Config, DataConfig, DecodeConfig, ModelConfig
from transformer.data.batching import Position, batches, one_epoch
from transformer.decoding.translator import make_translator, translate
from transformer.training import sharding
from transformer.training.optimizer import learning_rate
from transformer.training.programs import jit_update, new_state
from transformer.training.step import init_state
from transformer.training.validation import losses_of, sentence_sums

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Sentences of a few words, and the same words backwards."""
    folder = tmp_path_factory.mktemp("data")
    generator = np.random.default_rng(0)
    words = ["house", "river", "green", "stone", "cloud", "window", "bread", "garden"]
    texts = [generator.choice(words, generator.integers(2, 6)).tolist() for _ in range(200)]
    files = folder / "text.en", folder / "text.de"
    for file, step in zip(files, (1, -1)):
        lines = [" ".join(text[::step]) for text in texts]
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    names = tuple(map(str, files))
    model = ModelConfig(
        encoder_layers=1, decoder_layers=1, d_model=16, num_heads=2, d_ff=32, dropout=0.1
    )
    corpus = DataConfig(
        dataset="", train_files=names, validation_files=names, vocab_size=60,
        batch_tokens=256, num_buckets=1,
    )  # fmt: skip
    return prepared(Config(model=model, data=corpus, decode=DecodeConfig(beam_size=2)))


def trained_alone(data, variant):
    """The validation loss after the updates of train.py, on the batches of the config's seed."""
    mesh, training = sharding.make_mesh(), data.training
    state, update = new_state(mesh, variant), jit_update(mesh, variant)
    stream = batches(training.pairs, training.plan, data.config.train.seed, Position())
    for step, (batch, _) in enumerate(islice(stream, variant.train.steps), 1):
        rows = sharding.shard_batch(mesh, batch)
        state, _ = update(state, rows, learning_rate(variant, step))
    validation = one_epoch(variant, data.validation.tokens, data.validation.plan)
    return losses_of(partial(sentence_sums, variant.model), state.result, validation).loss[0]


def test_models_that_are_trained_at_once_are_those_that_are_trained_alone(data):
    variants = [
        with_values(data.config, 0.5, *values)
        for values in [(0.1, 4, 6, 0), (0.3, 2, 9, 0), (0.3, 2, 9, 5)]
    ]
    together = Training(data, len(variants)).outcomes(variants, test=False)
    assert [outcome.config for outcome in together] == variants
    found = [outcome.scores["loss"] for outcome in together]
    alone = [trained_alone(data, variant) for variant in variants]
    np.testing.assert_allclose(found, alone, rtol=1e-5)
    assert len({round(loss, 3) for loss in alone}) == len(alone)


def test_the_best_settings_are_those_of_the_highest_mean_over_seeds(data):
    def outcome(scale, seed, bleu):
        return Outcome(with_values(data.config, 0.5, scale, 4, 6, seed), {"bleu": bleu, "loss": 0})

    found = [outcome(1.0, 0, 50), outcome(1.0, 1, 10), outcome(2.0, 0, 40), outcome(2.0, 1, 40)]
    assert [config.optimizer.scale for config in best(found)] == [2.0, 1.0]


def test_translations_are_those_of_the_translator(data):
    params = init_state(data.config, jax.random.key(3)).params
    pairs = data.validation.pairs[:20]
    for beam in (1, 3):
        config = replace(data.config, decode=replace(data.config.decode, beam_size=beam))
        found = translated(data, params, pairs, config.decode)
        translator = make_translator(config, params, data.tokenizers)
        assert found == translate(translator, [source for source, _ in pairs])
