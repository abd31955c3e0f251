"""Two processes, as on two machines, train what one process with two devices trains."""

import os
import socket
import subprocess

import numpy as np
from small_run import run, start
from test_resume import final_state


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
    together = {"JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{free_port()}", "JAX_NUM_PROCESSES": "2"}
    return [
        start(
            "train.py",
            *words,
            "--distributed",
            env=os.environ | together | {"JAX_PROCESS_ID": str(number)} | devices(1),
        )
        for number in range(2)
    ]


def outputs(processes: list[subprocess.Popen]) -> list[tuple[str, str]]:
    """What each says, at the end of both."""
    try:
        return [process.communicate(timeout=300) for process in processes]
    finally:
        for process in processes:
            process.kill()


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
    assert "error: the first process could not begin" in said[1][1]
    assert [process.returncode for process in both] == [2, 2]


def test_a_process_that_nobody_tells_of_the_others_says_what_is_missing(config, tmp_path):
    result = run("train.py", config, "--run", tmp_path / "alone", "--distributed")
    assert result.returncode == 2
    assert "error: --distributed" in result.stderr
    assert "JAX_COORDINATOR_ADDRESS" in result.stderr
