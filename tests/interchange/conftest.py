"""Pairs of sentences, their SentencePiece models, and folders with random MarianMTModels."""

import sys
from itertools import islice
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from marian_models import make_folder, train_spm

from transformer.config import DataConfig
from transformer.data.corpus import read_pairs


@pytest.fixture(scope="session")
def pairs():
    """1,000 pairs of the phrasebook."""
    return list(islice(read_pairs(DataConfig(), "validation"), 1000))


@pytest.fixture(scope="session")
def spm(pairs):
    """A SentencePiece model for each side."""
    sources, targets = zip(*pairs)
    return {"source": train_spm(sources, 150), "target": train_spm(targets, 150)}


@pytest.fixture(scope="session")
def marian_folder(spm, tmp_path_factory):
    """A function from the name of a shape, and changes, to a folder and the model in it."""
    pytest.importorskip("torch", reason="torch is in the extra `oracles`")
    pytest.importorskip("transformers", reason="it is in the extra `oracles`")

    def build(name="as OPUS-MT", **changes):
        folder = tmp_path_factory.mktemp("marian") / "opus"
        return folder, make_folder(folder, spm, name, **changes)

    return build
