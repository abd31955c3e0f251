"""Several models trained at once (benchmarks/grid.py), against one at a time."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from benchmarks.grid import Training, prepared, translated, with_values
from transformer.config import Config, DataConfig, DecodeConfig, ModelConfig
from transformer.decoding.translator import make_translator, translate
from transformer.training.step import init_state

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


def test_models_that_are_trained_at_once_are_those_that_are_trained_alone(data):
    variants = [
        with_values(data.config, 0.5, *values)
        for values in [(1.0, 4, 6, 0), (3.0, 2, 9, 0), (3.0, 2, 9, 5)]
    ]
    together = Training(data, len(variants)).outcomes(variants, test=False)
    alone = Training(data, 1)
    losses = []
    for outcome, variant in zip(together, variants):
        assert outcome.config == variant
        [single] = alone.outcomes([variant], test=False)
        np.testing.assert_allclose(outcome.scores["loss"], single.scores["loss"], rtol=1e-5)
        losses.append(single.scores["loss"])
    assert len({round(loss, 4) for loss in losses}) == len(losses)


def test_translations_are_those_of_the_translator(data):
    params = init_state(data.config, jax.random.key(3)).params
    pairs = data.validation.pairs[:20]
    for beam in (1, 3):
        config = replace(data.config, decode=replace(data.config.decode, beam_size=beam))
        found = translated(data, params, pairs, config.decode)
        translator = make_translator(config, params, data.tokenizers)
        assert found == translate(translator, [source for source, _ in pairs])
