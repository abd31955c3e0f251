"""Models of several layers, which are the subject here."""

import pytest

from transformer.config import Config, TrainConfig


@pytest.fixture(scope="session")
def small_model(small_model):
    """The same with two layers in each stack."""
    return lambda **changes: small_model(**({"encoder_layers": 2, "decoder_layers": 2} | changes))


@pytest.fixture(scope="session")
def small_config(small_model):
    """The same for such a model."""

    def build(model=None, **train):
        return Config(model=small_model(**(model or {})), train=TrainConfig(**train))

    return build
