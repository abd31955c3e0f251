"""Two processes, as on two machines, train what one process with two devices trains, and miss each
other when one dies, freezes or fails."""

import os
import re
import signal
import socket
import subprocess
import time

import numpy as np
import pytest
from small_run import run, start, wait_until
from test_resume import assert_same_end, final_state, mid_save, mid_validation, updating

pytestmark = pytest.mark.slow


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def devices(count: int) -> dict[str, str]:
    """The environment of a process with so many; the last of two equal flags counts."""
    flag = f"--xla_force_host_platform_device_count={count}"
    return {"XLA_FLAGS": f"{os.environ['XLA_FLAGS']} {flag}"}


def start_two(*words: object) -> list[subprocess.Popen]:
    """The same command in two processes that know of each other, with one device each."""
    port = free_port()
    return [start_one(port, number, *words) for number in range(2)]


def start_one(port: int, number: int, *words: object, script: str = "train.py") -> subprocess.Popen:
    together = {
        "JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{port}",
        "JAX_NUM_PROCESSES": "2",
        "JAX_PROCESS_ID": str(number),
    }
    return start(script, *words, "--distributed", env=os.environ | together | devices(1))


def outputs(processes: list[subprocess.Popen]) -> list[tuple[str, str]]:
    """What each says, at the end of both."""
    try:
        return [process.communicate(timeout=300) for process in processes]
    finally:
        for process in processes:
            process.kill()


MOMENTS = {"updating": updating, "saving": mid_save, "validating": mid_validation}
FAULTS = [
    (signal.SIGKILL, 1, "updating"), (signal.SIGSTOP, 0, "validating"),
    (signal.SIGKILL, 0, "saving"), (signal.SIGKILL, 0, "updating"),
    (signal.SIGKILL, 0, "validating"), (signal.SIGKILL, 1, "saving"),
    (signal.SIGKILL, 1, "validating"), (signal.SIGSTOP, 0, "updating"),
    (signal.SIGSTOP, 0, "saving"), (signal.SIGSTOP, 1, "updating"),
    (signal.SIGSTOP, 1, "saving"), (signal.SIGSTOP, 1, "validating"),
][: int(os.environ.get("FAULTS", "2"))]  # fmt: skip
"""What happens to which process, and when; FAULTS=12 tries all."""


def after_a_loss(folder, words, fault, lost, moment, updating_for=0.0) -> tuple[int, str, float]:
    """Both processes make updates for at least `updating_for` seconds; then one gets the signal
    `fault`. The exit code of the other, what it says, and how many seconds it takes to end."""
    both = start_two(*words)
    try:
        assert wait_until(lambda: updating(folder), *both)
        time.sleep(updating_for)
        assert wait_until(lambda: MOMENTS[moment](folder), *both)
        both[lost].send_signal(fault)
        begin = time.monotonic()
        _, said = both[1 - lost].communicate(timeout=60)
        return both[1 - lost].returncode, said, time.monotonic() - begin
    finally:
        for process in both:
            process.kill()
            process.wait()


@pytest.mark.parametrize("fault, lost, moment", FAULTS)
def test_the_process_that_is_left_names_the_one_that_is_lost(config, tmp_path, fault, lost, moment):
    folder = tmp_path / "both"
    words = [config, "--run", folder, "--train.steps", 10**6, "--partner-timeout", 5]
    words += ["--train.validate-every", 10**6 if moment == "updating" else 5]
    # Each process knows after a heartbeat or two where the other is.
    code, said, seconds = after_a_loss(folder, words, fault, lost, moment, updating_for=3)
    assert seconds < 30
    sentence = said.splitlines()[-1]
    assert code == 3
    place = "((the checkpoint of )?update|batch of the validation) [0-9,]+"
    assert re.search(f", last at {place}: check why", sentence)
    assert sentence.startswith("error: ") and "start the same command again" in sentence
    if fault == signal.SIGKILL and lost == 0:
        assert "the first process, 0 of 2" in sentence and "has ended" in sentence
    else:
        assert f"process {lost} of 2 has sent no heartbeat for 5 s" in sentence


@pytest.fixture(scope="module")
def whole(config, tmp_path_factory):
    """The folder of a run by two processes that nothing disturbs, and its words."""
    folder = tmp_path_factory.mktemp("two") / "whole"
    words = [config, "--train.steps", 60, "--train.validate-every", 20, "--partner-timeout", 5]
    both = start_two(*words, "--run", folder)
    said = outputs(both)
    assert [process.returncode for process in both] == [0, 0], said
    return folder, words


@pytest.mark.parametrize("fault, lost, moment", FAULTS if "FAULTS" in os.environ else FAULTS[1:2])
def test_the_same_command_goes_on_as_if_nothing_had_been_lost(whole, tmp_path, fault, lost, moment):
    (undisturbed, words), folder = whole, tmp_path / "both"
    words = [*words, "--run", folder]
    after_a_loss(folder, words, fault, lost, moment)
    both = start_two(*words)
    said = outputs(both)
    assert [process.returncode for process in both] == [0, 0], said
    assert_same_end(folder, undisturbed)


STUCK = """
import itertools, runpy, time
from transformer.data import batching

batches = batching.batches

def stuck(*words):
    yield from itertools.islice(batches(*words), 7)
    time.sleep(1000)

batching.batches = stuck
runpy.run_path("train.py", run_name="__main__")
"""
"""train.py, which lives and waits for ever after seven updates."""


def test_a_process_that_lives_and_does_not_go_on_is_named(config, tmp_path):
    port, words = free_port(), [config, "--run", tmp_path / "both", "--train.steps", 1000]
    words += ["--stall-timeout", 40]
    (tmp_path / "stuck.py").write_text(STUCK)
    both = [
        start_one(port, 0, *words),
        start_one(port, 1, *words, script=str(tmp_path / "stuck.py")),
    ]
    said = outputs(both)
    for (_, errors), process in zip(said, both):
        sentence = errors.splitlines()[-1]
        assert process.returncode == 3
        assert "no process has made progress for 40 s (--stall-timeout)" in sentence
        assert re.search(
            r"process 0 at update (8|9|1[0-9]); process 1 at update 7; check", sentence
        )
        assert "start the same command again" in sentence


def test_what_trains_together_must_be_the_same(config, tmp_path):
    folder, port = tmp_path / "both", free_port()
    both = [start_one(port, number, config, "--run", folder, "--train.seed", number)
            for number in range(2)]  # fmt: skip
    said = outputs(both)
    assert "settings: train.seed is 1 in this process, 0 in the first" in said[1][1]
    assert "process 1 has failed: settings: train.seed is 1" in said[0][1]
    assert [process.returncode for process in both] == [3, 2]
    assert not folder.exists() or os.listdir(folder) == ["lock"]


@pytest.mark.skipif("FAULTS" not in os.environ, reason="takes half a minute; FAULTS=12 tries it")
@pytest.mark.parametrize("number", [0, 1])
def test_a_process_whose_partner_never_comes_says_so(config, tmp_path, number):
    words = [config, "--run", tmp_path / "alone", "--partner-timeout", 5]
    alone = start_one(free_port(), number, *words)
    _, said = alone.communicate(timeout=90)
    assert alone.returncode == 3
    assert "error: --distributed: not all of the 2 processes reached" in said.splitlines()[-1]


def test_two_processes_train_what_two_devices_train(config, tmp_path):
    steps = ["--train.steps", 10]
    both = start_two(config, "--run", tmp_path / "both", *steps)
    said = outputs(both)
    assert [process.returncode for process in both] == [0, 0], said
    assert "2 x cpu in 2 processes" in said[0][0]
    assert "update" not in said[1][0] and "run folder" not in said[1][0]

    one = start(
        "train.py", config, "--run", tmp_path / "one", *steps,
        env=os.environ | devices(2),
    )  # fmt: skip
    outputs([one])
    assert one.returncode == 0
    ours, theirs = final_state(tmp_path / "both"), final_state(tmp_path / "one")
    for name, array in theirs.items():
        np.testing.assert_allclose(ours[name], array, atol=1e-5, err_msg=name)
    assert (tmp_path / "both" / "metrics.jsonl").read_text().count('"loss"') == 2


def test_when_the_first_process_fails_the_others_say_so(config, tmp_path):
    both = start_two(config, "--run", tmp_path / "both", "--data.max-length", 1)
    said = outputs(both)
    assert "none of the 300 training pairs" in said[0][1]
    assert "error: process 0 has failed: none of the 300 training pairs" in said[1][1]
    assert [process.returncode for process in both] == [2, 3]


def test_a_process_that_nobody_tells_of_the_others_says_what_is_missing(config, tmp_path):
    result = run("train.py", config, "--run", tmp_path / "alone", "--distributed")
    assert result.returncode == 2
    assert "error: --distributed" in result.stderr
    assert "JAX_COORDINATOR_ADDRESS" in result.stderr
