"""train.py --from: another run's weights and vocabulary, with other data and another schedule."""

import json
import os
import random
import signal
import time
from functools import partial
from pathlib import Path

import jax
import numpy as np
import pytest
from small_run import family_words, run, start, wait_until
from test_processes import outputs, start_two
from test_resume import assert_same_end, updating

from transformer.runs.checkpoints import load_params
from transformer.runs.folder import load_run_config

pytestmark = pytest.mark.slow

STANDSTILL = ["--optimizer.scale", "1e-12", "--optimizer.warmup-steps", "1000"]


def weights(folder: Path, checkpoint: str) -> list[np.ndarray]:
    params, _ = load_params(folder, load_run_config(folder), checkpoint)
    return [np.asarray(leaf) for leaf in jax.tree.leaves(params)]


def test_it_begins_with_the_other_runs_weights(config, undisturbed, tmp_path):
    folder = tmp_path / "tuned"
    words = ["train.py", config, "--run", folder, "--from", undisturbed, "--train.steps", 1]
    result = run(*words, *STANDSTILL, "--from-checkpoint", 15)
    assert result.returncode == 0, result.stderr
    assert "starts from the weights of" in result.stdout and "15: step 15" in result.stdout
    for ours, theirs in zip(weights(folder, "last"), weights(undisturbed, "15"), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-8)


def test_it_has_its_own_data_and_schedule_and_the_others_vocabulary(config, undisturbed, tmp_path):
    data = config.parent
    folder = tmp_path / "tuned"
    words = [
        "train.py", config, "--run", folder, "--from", undisturbed, "--train.steps", 5,
        "--data.train-files", data / "valid.en", data / "valid.de", "--model.dropout", "0.3",
        "--optimizer.warmup-steps", 4,
    ]  # fmt: skip
    result = run(*words)
    assert result.returncode == 0, result.stderr
    assert "12 pairs" in result.stdout
    ours, theirs = (load_run_config(path) for path in (folder, undisturbed))
    assert ours.data.vocabulary == theirs.data.vocabulary
    assert ours.train.origin == str(undisturbed)
    assert ours.model.dropout == 0.3 and ours.optimizer.warmup_steps == 4
    model = (folder / "tokenizer" / "source.model").read_bytes()
    assert model == (undisturbed / "tokenizer" / "source.model").read_bytes()
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert lines[0]["step"] == 5
    assert run("eval.py", folder).returncode == 0

    # The same command goes on with the new run, and does not begin again.
    again = run(*words)
    assert again.returncode == 0, again.stderr
    assert "5 of 5 done" in again.stdout


def test_killed_before_its_first_checkpoint_it_begins_with_the_other_weights_again(
    config, undisturbed, tmp_path
):
    folder = tmp_path / "tuned"
    words = ["train.py", config, "--run", folder, "--from", undisturbed, *STANDSTILL]
    process = start(*words, "--train.steps", 10**6, "--train.validate-every", 10**6)
    assert wait_until(lambda: updating(folder), process)
    process.kill()
    process.communicate()
    assert not any((folder / "checkpoints").iterdir())
    result = run(*words, "--train.steps", 1)
    assert result.returncode == 0, result.stderr
    assert "starts from the weights of" in result.stdout
    for ours, theirs in zip(weights(folder, "last"), weights(undisturbed, "best"), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-8)


def test_two_processes_begin_with_the_other_runs_weights(config, undisturbed, tmp_path):
    folder = tmp_path / "tuned"
    words = [config, "--run", folder, "--from", undisturbed, *STANDSTILL, "--train.steps", 1]
    both = start_two(*words)
    said = outputs(both)
    assert [process.returncode for process in both] == [0, 0], said
    for ours, theirs in zip(weights(folder, "last"), weights(undisturbed, "best"), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-8)


def test_two_processes_tune_a_classifier(config, family, tmp_path):
    """Its classes are new, so its vocabulary is not the other run's."""
    words = [config, *family_words(config.parent, "classes")[:6], "--data.target="]
    words += ["--data.label-column", 2, "--train.best-by", "accuracy", "--train.steps", 2]
    both = start_two(*words, "--run", tmp_path / "tuned", "--from", family("masked"))
    said = outputs(both)
    assert [process.returncode for process in both] == [0, 0], said


def test_it_averages_as_many_checkpoints_as_the_other_run_does(config, undisturbed, tmp_path):
    folder = tmp_path / "tuned"
    words = ["train.py", config, "--run", folder, "--from", undisturbed, *STANDSTILL]
    result = run(*words, "--from-checkpoint", "average", "--train.steps", 1,
                 "--train.average-last", 1)  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "average of steps [10, 15, 20]" in result.stdout


def begin(processes, *words):
    return start_two(*words) if processes == 2 else [start("train.py", *words)]


def made(name):
    return lambda folder: (folder / name).exists()


EARLY = (made("lock"), made("config.json"), updating)
"""Moments before the first checkpoint."""


@pytest.mark.parametrize("processes", (1, 2) if "KILLS" in os.environ else (1,))
def test_tuning_killed_at_any_moment_ends_as_if_never_killed(
    config, undisturbed, tmp_path, processes
):
    chosen, folder = random.Random(processes), tmp_path / "killed"
    words = [config, "--from", undisturbed, "--train.seed", 3, "--partner-timeout", 5]
    whole = begin(processes, *words, "--run", tmp_path / "whole")
    assert [process.wait() for process in whole] == [0] * processes
    for kill in range(int(os.environ.get("KILLS", "2"))):
        started = begin(processes, *words, "--run", folder)
        if kill < len(EARLY):
            wait_until(partial(EARLY[-1 - kill], folder), *started)
        else:
            time.sleep(chosen.uniform(2, 8))
        chosen.choice(started).kill()
        codes = [process.wait(timeout=60) for process in started]
        assert set(codes) <= {-signal.SIGKILL, 3} or codes == [0] * processes
    started = begin(processes, *words, "--run", folder)
    assert [process.wait() for process in started] == [0] * processes
    assert_same_end(folder, tmp_path / "whole")
