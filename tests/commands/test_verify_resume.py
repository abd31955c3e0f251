"""train.py --verify-resume: interruptions change nothing, and a difference is found."""

import re
import subprocess
import sys

import pytest
from small_run import ROOT, run

pytestmark = pytest.mark.slow


def test_it_proves_that_interruptions_change_nothing_and_leaves_nothing_behind(config, tmp_path):
    words = [config, "--run", tmp_path / "run", "--train.steps", 2000]
    words += ["--optimizer.cooldown-steps", 600]  # longer than what is trained
    result = run("train.py", *words, "--verify-resume")
    assert result.returncode == 0, result.stderr
    *steps, verdict = result.stdout.splitlines()
    assert len(steps) == 4
    assert re.fullmatch(r"50 updates, uninterrupted: \d+ s", steps[0])
    assert re.fullmatch(r"again, killed by SIGKILL: \d+ s", steps[1])
    assert re.fullmatch(r"from update [123]0, stopped by SIGTERM: \d+ s", steps[2])
    assert re.fullmatch(r"from update 4[1-9] to the end: \d+ s", steps[3])
    assert verdict.startswith("interruptions change nothing: all 96 arrays")
    assert not list(tmp_path.iterdir())


def test_a_trainer_that_forgets_something_is_detected(config, tmp_path):
    words = [config, "--run", tmp_path / "run", "--verify-resume"]
    command = [sys.executable, ROOT / "tests/commands/forgetful.py", *words]
    result = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert result.returncode == 2
    [kept] = tmp_path.iterdir()
    assert "error: optimizer.opt_state.count differs after an interruption" in result.stderr
    assert result.stderr.rstrip().endswith(f"both runs are in {kept}")


def test_an_error_of_train_py_is_shown(config, tmp_path):
    words = [config, "--run", tmp_path / "run", "--data.max-length", 1, "--verify-resume"]
    result = run("train.py", *words)
    assert result.returncode == 2
    assert (
        "error: train.py exited with code 2: error: none of the 300 training pairs" in result.stderr
    )
