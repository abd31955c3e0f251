"""train.py, killed at any moment and started again, ends where an undisturbed run ends."""

import json
import os
import random
import signal
import time
from pathlib import Path

import jax
import numpy as np
import orbax.checkpoint as ocp
from small_run import run, start

KILLS = int(os.environ.get("KILLS", "4"))
"""How often the run is killed; the figures in docs/benchmarks.md are for ten times."""


def final_state(folder: Path) -> dict[str, np.ndarray]:
    """Every array of the last checkpoint, by name."""
    steps = [int(path.name) for path in (folder / "checkpoints").iterdir() if path.name.isdigit()]
    arrays = {}
    for item in ("params", "optimizer"):
        path = (folder / "checkpoints" / str(max(steps)) / item).absolute()
        with ocp.PyTreeCheckpointer() as checkpointer:
            kinds = checkpointer.metadata(path).item_metadata.tree
            as_numpy = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), kinds)
            tree = checkpointer.restore(path, restore_args=as_numpy)
        flat = ocp.tree.to_flat_dict(tree, sep="/")
        arrays |= {f"{item}/{name}": np.asarray(leaf) for name, leaf in flat.items()}
    return arrays


def assert_same_end(folder: Path, undisturbed: Path) -> None:
    ours, theirs = final_state(folder), final_state(undisturbed)
    assert ours.keys() == theirs.keys()
    for name, array in theirs.items():
        np.testing.assert_array_equal(ours[name], array, err_msg=name)


def mid_save(folder: Path) -> bool:
    return any((folder / "checkpoints").glob("*.orbax-checkpoint-tmp"))


def mid_validation(folder: Path) -> bool:
    """The report of a step is written, and the checkpoint that follows its validation is not."""
    path = folder / "metrics.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    if not lines or '"loss"' not in lines[-1]:
        return False
    saved = [int(path.name) for path in folder.glob("checkpoints/[0-9]*") if path.name.isdigit()]
    return json.loads(lines[-1])["step"] > max(saved, default=0)


def test_a_run_killed_at_any_moment_ends_as_if_never_killed(config, undisturbed, tmp_path):
    folder, chosen = tmp_path / "killed", random.Random(1)
    moments = [mid_save, mid_validation]
    seen = []
    for kill in range(KILLS):
        process = start("train.py", config, "--run", folder)
        if kill % 2 == 0:
            moment = moments[kill // 2 % 2]
            while process.poll() is None and not moment(folder):
                time.sleep(0.001)
            seen.append(moment.__name__)
        else:
            while process.poll() is None and not any(folder.glob("checkpoints/*")):
                time.sleep(0.01)
            time.sleep(chosen.uniform(0, 8))
            seen.append("random")
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert process.returncode in (-signal.SIGKILL, 0)
    result = run("train.py", config, "--run", folder)
    assert result.returncode == 0, result.stderr
    print("killed at:", seen)
    assert_same_end(folder, undisturbed)


def test_metrics_tell_each_step_once_after_kills(config, undisturbed):
    lines = (undisturbed / "metrics.jsonl").read_text().splitlines()
    steps = [json.loads(line)["step"] for line in lines if '"loss"' in line]
    assert steps == sorted(set(steps))


def test_a_run_asked_to_stop_saves_and_says_how_to_continue(config, undisturbed, tmp_path):
    folder = tmp_path / "stopped"
    process = start("train.py", config, "--run", folder)
    while process.poll() is None and not any(folder.glob("checkpoints/[0-9]*")):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate()
    assert process.returncode == 0, errors
    assert "Traceback" not in errors
    assert "continue with: python" in output or "done:" in output
    run("train.py", config, "--run", folder)
    assert_same_end(folder, undisturbed)
