"""train.py, killed at any moment and started again, ends where an undisturbed run ends."""

import gzip
import json
import os
import random
import resource
import shutil
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest
from small_run import family_words, regularised_words, run, start, wait_until

from transformer.runs.checkpoints import load_params, restore
from transformer.runs.folder import load_run_config
from transformer.runs.starts import read_starts

KILLS = int(os.environ.get("KILLS", "4"))
"""How often the run is killed; the figures in docs/benchmarks.md are for ten times."""


def final_state(folder: Path) -> dict[str, np.ndarray]:
    """Every array of the last checkpoint, by name."""
    arrays = {}
    for item in ("params", "optimizer"):
        path = (folder / "checkpoints" / str(last_saved(folder)) / item).absolute()
        with ocp.PyTreeCheckpointer() as checkpointer:
            kinds = checkpointer.metadata(path).item_metadata.tree
            as_numpy = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), kinds)
            tree = checkpointer.restore(path, restore_args=as_numpy)
        flat = ocp.tree.to_flat_dict(tree, sep="/")
        arrays |= {f"{item}/{name}": np.asarray(leaf) for name, leaf in flat.items()}
    return arrays


def metrics(folder: Path) -> list[dict[str, float]]:
    """What metrics.jsonl says, but for how long it took."""
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [
        {name: n for name, n in line.items() if name not in ("seconds", "tokens_per_second")}
        for line in lines
    ]


def assert_same_end(folder: Path, undisturbed: Path) -> None:
    """Parameters, optimizer state and metrics are the same, bit for bit."""
    ours, theirs = final_state(folder), final_state(undisturbed)
    assert ours.keys() == theirs.keys()
    for name, array in theirs.items():
        np.testing.assert_array_equal(ours[name], array, err_msg=name)
    assert metrics(folder) == metrics(undisturbed)


def last_saved(folder: Path) -> int:
    """The last update that has a checkpoint."""
    saved = [int(path.name) for path in folder.glob("checkpoints/[0-9]*") if path.name.isdigit()]
    return max(saved, default=0)


def updating(folder: Path) -> bool:
    """Some updates are done."""
    path = folder / "metrics.jsonl"
    return path.exists() and '"loss"' in path.read_text()


def mid_save(folder: Path) -> bool:
    return any((folder / "checkpoints").glob("*.orbax-checkpoint-tmp"))


def mid_validation(folder: Path) -> bool:
    """The report of a step is written, and the checkpoint that follows its validation is not."""
    path = folder / "metrics.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    if not lines or '"loss"' not in lines[-1]:
        return False
    return json.loads(lines[-1])["step"] > last_saved(folder)


def kill(words: list[object], folder: Path, number: int, chosen: random.Random) -> str:
    """Starts train.py and kills it: in a save, in a validation or at a random moment, every second
    time when it has come two checkpoints further. Tells when, and the last update saved."""
    already = last_saved(folder)
    process = start("train.py", *words, "--run", folder)

    if further := number % 2 == 0:
        wait_until(lambda: last_saved(folder) > already, process)
        between = last_saved(folder)
        wait_until(lambda: last_saved(folder) > between, process)
    if moment := chosen.choice([mid_save, mid_validation, None]):
        wait_until(partial(moment, folder), process)
    else:
        time.sleep(chosen.uniform(0, 1) if further else chosen.uniform(1, 8))
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode in (-signal.SIGKILL, 0)
    return f"{moment.__name__ if moment else 'random'}, {already} to {last_saved(folder)}"


def survives(
    kills: int,
    words: list[object],
    undisturbed: Path,
    tmp_path: Path,
    then: Callable[[int, Path], None] = lambda number, folder: None,
) -> None:
    """Kills a run so many times, each time with what comes then, and lets it end: as undisturbed.
    When it ended before all kills are done another run takes the rest."""
    chosen, folder = random.Random(1), tmp_path / "killed"
    for number in range(kills):
        if last_saved(folder) == last_saved(undisturbed):
            assert_same_end(folder, undisturbed)
            folder = tmp_path / f"killed-{number}"
        print(f"{folder.name}, kill {number}:", kill(words, folder, number, chosen))
        then(number, folder)
    result = run("train.py", *words, "--run", folder)
    assert result.returncode == 0, result.stderr
    assert_same_end(folder, undisturbed)


def test_a_run_killed_at_any_moment_ends_as_if_never_killed(config, undisturbed, tmp_path):
    survives(KILLS, [config], undisturbed, tmp_path)


@pytest.mark.slow
def test_so_does_one_that_draws_what_it_reads_and_ends_early(config, finished, tmp_path):
    words = [config, *regularised_words(config.parent)]
    undisturbed = finished("regularised", *words)
    assert last_saved(undisturbed) < 1000
    survives(KILLS, words, undisturbed, tmp_path)
    folder = shutil.copytree(undisturbed, tmp_path / "again")
    again = run("train.py", *words, "--run", folder)
    assert again.returncode == 0, again.stderr
    assert "ended early" in again.stdout
    assert_same_end(folder, undisturbed)


def test_metrics_tell_each_step_once_after_kills(config, undisturbed):
    lines = (undisturbed / "metrics.jsonl").read_text().splitlines()
    steps = [json.loads(line)["step"] for line in lines if '"loss"' in line]
    assert steps == sorted(set(steps))


def test_a_run_asked_to_stop_saves_and_says_how_to_continue(config, undisturbed, tmp_path):
    folder = tmp_path / "stopped"
    process = start("train.py", config, "--run", folder)
    wait_until(lambda: any(folder.glob("checkpoints/[0-9]*")), process)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate()
    assert process.returncode == 0, errors
    assert "Traceback" not in errors
    assert "continue with: python" in output or "done:" in output
    run("train.py", config, "--run", folder)
    assert_same_end(folder, undisturbed)


def test_a_run_and_its_data_may_move_and_its_steps_become_more(config, undisturbed, tmp_path):
    first, data, folder = tmp_path / "first", tmp_path / "data", tmp_path / "moved"
    shorter = run("train.py", config, "--run", first, "--train.steps", 10)
    assert shorter.returncode == 0, shorter.stderr
    shutil.copytree(first, folder)  # without times of change
    data.mkdir()
    for name in ("train.en", "train.de"):
        (data / f"{name}.gz").write_bytes(gzip.compress((config.parent / name).read_bytes()))
        shutil.copy(config.parent / name.replace("train", "valid"), data)
    words = ["train.py", config, "--run", folder, "--train.keep-last", 5]
    words += ["--data.train-files", data / "train.en.gz", data / "train.de.gz"]
    words += ["--data.validation-files", data / "valid.en", data / "valid.de"]
    refused = run(*words, "--model.d-ff", 64, "--train.seed", 3)
    assert refused.returncode == 2
    assert "model.d_ff is 32 there, 64 here; train.seed is 0 there, 3 here" in refused.stderr
    result = run(*words)
    assert result.returncode == 0, result.stderr
    changed = next(line for line in result.stdout.splitlines() if line.startswith("changed "))
    assert "train.steps 10 to 20, train.keep_last 3 to 5" in changed
    assert "of another validation set" not in result.stdout
    assert changed.split(maxsplit=1)[1] == read_starts(folder)[-1].changed
    assert load_run_config(folder).data.train_files[0] == str(data / "train.en.gz")
    assert_same_end(folder, undisturbed)

    (data / "train.de.gz").write_bytes(gzip.compress((config.parent / "train.en").read_bytes()))
    for steps, said in ((10, "data.train_files is"), (9, "and 10 updates are done")):
        refused = run("train.py", config, "--run", first, *words[6:], "--train.steps", steps)
        assert refused.returncode == 2 and said in refused.stderr


def test_scores_of_another_validation_set_are_told_and_not_compared(config, undisturbed, tmp_path):
    folder = shutil.copytree(undisturbed, tmp_path / "run")
    other = [shutil.copy(config.parent / f"valid.{end}", tmp_path) for end in ("en", "de")]
    words = [config, "--run", folder, "--train.steps", 25, "--data.validation-files", *other]
    Path(other[1]).write_text("Katze\n" * len(Path(other[1]).read_text().splitlines()))
    result = run("train.py", *words)
    assert result.returncode == 0, result.stderr
    assert "scores up to update 20 are of another validation set" in result.stdout
    assert "another validation set" not in run("train.py", *words).stdout
    assert restore(folder, load_run_config(folder))[1].since == 20
    assert load_params(folder, load_run_config(folder), "best")[1] == "best: step 25"


FILE_SIZE = 20_000
"""Bytes that a file may have, as on a disk that is nearly full."""


@pytest.mark.slow
def test_a_disk_that_is_full_gives_one_sentence_and_what_was_saved_stays(
    config, undisturbed, tmp_path
):
    folder = shutil.copytree(undisturbed, tmp_path / "run")
    shutil.rmtree(folder / "checkpoints" / "20")
    process = start("train.py", config, "--run", folder)
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (FILE_SIZE, FILE_SIZE))
    _, said = process.communicate(timeout=120)
    assert process.returncode == 2
    lines = [line for line in said.splitlines() if "compilation cache" not in line]  # JAX's own
    assert len(lines) == 1 and lines[0].startswith("error: cannot save to"), said
    result = run("train.py", config, "--run", folder)
    assert result.returncode == 0, result.stderr
    assert_same_end(folder, undisturbed)


@pytest.mark.slow
def test_a_second_command_on_a_run_at_work_changes_nothing_in_it(config, tmp_path):
    folder = tmp_path / "run"
    first = start("train.py", config, "--run", folder, "--train.steps", 10**6)
    try:
        assert wait_until((folder / "metrics.jsonl").exists, first)
        files = [folder / "config.json", folder / "tokenizer" / "source.model"]
        before = [path.read_bytes() for path in files]
        for change in (["--decode.beam-size", 7], ["--model.d-ff", 64], ["--data.vocab-size", 30]):
            second = run("train.py", config, "--run", folder, "--train.steps", 10**6, *change)
            assert second.returncode == 2
            assert "another train.py is at work" in second.stderr
            assert [path.read_bytes() for path in files] == before
    finally:
        first.kill()
        first.communicate()


@pytest.mark.slow
def test_a_run_without_a_checkpoint_may_be_begun_anew_with_other_settings(config, tmp_path):
    folder = tmp_path / "run"
    words = ["train.py", config, "--run", folder, "--train.validate-every", 10**6]
    masked = family_words(config.parent, "masked")
    process = start(*words, *masked, "--train.steps", 10**6)
    assert wait_until(lambda: updating(folder), process)
    process.kill()
    process.communicate()
    result = run(*words, "--train.steps", 5)
    assert result.returncode == 0, result.stderr
    assert load_run_config(folder).model.decoder_layers == 1
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [5, 5]


@pytest.mark.slow
def test_a_run_that_is_deleted_while_it_trains_is_not_trained_for_nothing(config, tmp_path):
    folder = tmp_path / "run"
    process = start("train.py", config, "--run", folder, "--train.steps", 10**6)
    assert wait_until(lambda: updating(folder), process)
    shutil.rmtree(folder, ignore_errors=True)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 2
    assert f"{folder} has been deleted" in said or "No such file" in said
