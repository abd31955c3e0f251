"""One small corpus and one finished run for all tests that start the real commands."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from small_run import family_words, run, write_data


@pytest.fixture(scope="session")
def config(shared, one_at_a_time) -> Path:
    """A config file of a run that takes seconds."""
    path = shared / "small.py"
    with one_at_a_time(path):
        return path if path.exists() else write_data(shared)


@pytest.fixture(scope="session")
def finished(shared, one_at_a_time) -> Callable[..., Path]:
    """A function from a name and the words of train.py to the folder of that run, finished."""

    def build(name: str, *words: object) -> Path:
        folder = shared / name
        with one_at_a_time(folder):
            if not folder.exists():
                result = run("train.py", *words, "--run", folder)
                assert result.returncode == 0, result.stderr
        return folder

    return build


@pytest.fixture(scope="session")
def undisturbed(config, finished) -> Path:
    """The folder of that run, finished."""
    return finished("undisturbed", config)


@pytest.fixture(scope="session")
def family(config, finished) -> Callable[[str], Path]:
    """A function from "language", "masked" or "classes" to the folder of such a model, finished."""
    return lambda kind: finished(kind, config, *family_words(config.parent, kind))
