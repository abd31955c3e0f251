"""One small corpus and one finished run for all tests that start the real commands."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from small_run import run, write_data


@pytest.fixture(scope="session")
def config(tmp_path_factory) -> Path:
    """A config file of a run that takes seconds."""
    return write_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="session")
def undisturbed(config, tmp_path_factory) -> Path:
    """The folder of that run, finished."""
    folder = tmp_path_factory.mktemp("runs") / "undisturbed"
    result = run("train.py", config, "--run", folder)
    assert result.returncode == 0, result.stderr
    return folder
