"""One small corpus and one finished run for all tests that start the real commands."""

import fcntl
import os
import signal
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from small_run import run, write_data

# Where Ctrl-C is ignored, as in a job in the background, commands that are started inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def shared(tmp_path_factory) -> Path:
    """A folder for all processes of pytest: what one of them made, the others find."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "shared"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def config(shared) -> Path:
    """A config file of a run that takes seconds."""
    path = shared / "small.py"
    with (shared / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return path if path.exists() else write_data(shared)


@pytest.fixture(scope="session")
def undisturbed(config, shared) -> Path:
    """The folder of that run, finished."""
    folder = shared / "undisturbed"
    with (shared / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            result = run("train.py", config, "--run", folder)
            assert result.returncode == 0, result.stderr
    return folder
