"""Models of several layers, which are the subject here."""

import pytest

TWO = {"encoder_layers": 2, "decoder_layers": 2}


@pytest.fixture(scope="session")
def small_model(small_model):
    """The same with two layers in each stack."""
    return lambda **changes: small_model(**(TWO | changes))


@pytest.fixture(scope="session")
def small_config(small_config):
    """The same for such a model."""
    return lambda model=None, **train: small_config(TWO | (model or {}), **train)
