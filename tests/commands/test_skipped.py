"""NaN and infinite values never reach parameters, optimizer or checkpoints."""

import os

import numpy as np
import pytest
from small_run import run
from test_resume import final_state, metrics

pytestmark = pytest.mark.slow


def poisoned(what, first, last, *words):
    return run("tests/commands/poisoned.py", what, first, last, *words)


def checkpoints_hold_numbers(folder):
    return all(np.isfinite(array).all() for array in final_state(folder).values())


@pytest.mark.parametrize("what", ["gradient", "data"] if "KILLS" in os.environ else ["data"])
def test_non_finite_updates_are_skipped_logged_and_counted(config, tmp_path, what):
    folder = tmp_path / "run"
    result = poisoned(what, 7, 9, config, "--run", folder)
    assert result.returncode == 0, result.stderr
    assert "update 7 was skipped: loss " in result.stdout
    assert "gradient norm nan" in result.stdout
    assert "done: 20 updates" in result.stdout
    skipped = [line["skipped"] for line in metrics(folder) if "loss" in line]
    assert skipped == [0, 3, 0, 0]
    assert int(final_state(folder)["optimizer/opt_state/count"]) == 17
    assert checkpoints_hold_numbers(folder)


def test_too_many_skipped_updates_in_a_row_end_training_and_the_last_can_be_replayed(
    config, tmp_path
):
    folder = tmp_path / "run"
    result = poisoned("gradient", 7, 99, config, "--run", folder)
    assert result.returncode == 2
    [sentence] = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert "10 updates in a row were skipped" in sentence and "--replay 16" in sentence
    kept = folder / "skipped" / "16"
    lines = (kept / "sentences.tsv").read_text().splitlines()
    assert len(lines) == len(np.load(kept / "batch.npz")["source"])
    assert any(" " in source and " " in target for source, target in (x.split("\t") for x in lines))
    assert checkpoints_hold_numbers(folder)

    replay = poisoned("gradient", 0, 0, config, "--run", folder, "--replay", 16)
    assert replay.returncode == 0, replay.stderr
    head, *rows = replay.stdout.splitlines()
    assert head.startswith(f"update 16 of {folder}: loss ")
    assert any(row.split()[0] == "encoder.layers.self_attention.w_q," for row in rows)
    [bad] = [row for row in rows if "nan" in row]
    assert bad.endswith(" nan  1 non-finite values")

    missing = run("train.py", config, "--run", folder, "--replay", 3)
    assert missing.returncode == 2
    assert "skipped/3; kept are: 16" in missing.stderr
    (kept / "batch.npz").write_bytes((kept / "batch.npz").read_bytes()[:100])
    damaged = run("train.py", config, "--run", folder, "--replay", 16)
    assert damaged.returncode == 2
    assert "batch.npz is damaged" in damaged.stderr


def test_non_finite_weights_are_never_saved_and_the_run_can_be_resumed(config, tmp_path):
    folder, undisturbed = tmp_path / "run", tmp_path / "undisturbed"
    result = poisoned("weights", 7, 7, config, "--run", folder)
    assert result.returncode == 2
    assert "the validation loss of update 10 is nan" in result.stderr
    assert checkpoints_hold_numbers(folder)
    for healthy in (folder, undisturbed):  # by the same program, whose sums have the same order
        again = poisoned("weights", 99, 99, config, "--run", healthy)
        assert again.returncode == 0, again.stderr
    ours, theirs = final_state(folder), final_state(undisturbed)
    for name, array in theirs.items():
        np.testing.assert_array_equal(ours[name], array, err_msg=name)
