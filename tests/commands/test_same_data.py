"""However many devices and processes train, and whenever their number changes: the same tokens in
every update, and the same parameters but for rounding."""

import os

import numpy as np
import pytest
from small_run import start
from test_processes import devices, free_port, outputs
from test_resume import final_state, metrics

pytestmark = pytest.mark.slow

STEPS = 40
WIDE = ["--model.d-model", 128, "--model.d-ff", 256]
"""A model with arrays that are worth splitting."""
SPLIT = [*WIDE, "--train.shard-state"]


def watched(folder, stop, config, *more, count=1, processes=1):
    """Trains on `count` devices, or one in each of several processes, up to update `stop` of this
    start (0: to the end), and adds a digest of what each update read to FOLDER.lines."""
    port, started = free_port(), []
    for number in range(processes):
        together = {
            "JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{port}",
            "JAX_NUM_PROCESSES": str(processes),
            "JAX_PROCESS_ID": str(number),
        }
        lines = folder.with_suffix(".lines" if number == 0 else f".{number}")
        words = [lines, stop, config, "--run", folder, "--train.steps", STEPS, *more]
        # With a high rate Adam makes much of rounding, and moves a weight whose gradient is nearly
        # nothing as far as any other. A ReLU whose input is rounding makes it a whole gradient.
        words += ["--optimizer.scale", 0.1, "--optimizer.epsilon", 1e-5]
        words += ["--model.activation", "swish"]
        words += ["--distributed"] if processes > 1 else []
        env = os.environ | devices(count) | (together if processes > 1 else {})
        started.append(start("tests/commands/watched.py", *words, env=env))
    said = outputs(started)
    assert [process.returncode for process in started] == [0] * processes, said
    assert "continuing with the next epoch" not in said[0][0]
    return said[0][0]


@pytest.fixture(scope="session")
def on_one(config, tmp_path_factory):
    folder = tmp_path_factory.mktemp("same") / "one"
    watched(folder, 0, config)
    return folder


@pytest.fixture(scope="session")
def wide_on_one(config, tmp_path_factory):
    folder = tmp_path_factory.mktemp("same") / "wide"
    watched(folder, 0, config, *WIDE)
    return folder


def assert_same(folder, on_one):
    assert folder.with_suffix(".lines").read_text() == on_one.with_suffix(".lines").read_text()
    ours, theirs = final_state(folder), final_state(on_one)
    for name, array in theirs.items():
        np.testing.assert_allclose(ours[name], array, atol=1e-5, err_msg=name)
    for line, expected in zip(metrics(folder), metrics(on_one), strict=True):
        assert line["step"] == expected["step"]
        if "loss" in line:
            assert line["loss"] == pytest.approx(expected["loss"], rel=1e-4)


def test_a_run_goes_on_in_the_middle_of_an_epoch_with_other_devices_and_processes(
    config, on_one, tmp_path
):
    folder = tmp_path / "moved"
    assert "stopped after update 7;" in watched(folder, 7, config)
    on_many = watched(folder, 11, config, count=8)
    assert "devices     8 x cpu" in on_many and "stopped after update 18;" in on_many
    assert "updates     18 of 40 done" in watched(folder, 0, config, processes=2)
    assert_same(folder, on_one)
    # Both processes read the same batches; the other one only as long as it took part.
    assert {line.split(")")[0] for line in folder.with_suffix(".1").read_text().splitlines()} <= {
        line.split(")")[0] for line in folder.with_suffix(".lines").read_text().splitlines()
    }


def test_checkpoints_go_between_states_that_are_split_and_copied(config, wide_on_one, tmp_path):
    folder = tmp_path / "split"
    watched(folder, 7, config, *SPLIT, count=4)
    watched(folder, 4, config, *WIDE, count=2)
    watched(folder, 4, config, *SPLIT, count=2)
    watched(folder, 0, config, *SPLIT, processes=2)
    assert_same(folder, wide_on_one)
