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

import train
from transformer.errors import UserError
from transformer.runs.checkpoints import load_params, restore
from transformer.runs.folder import load_run_config, read_launches

KILLS = int(os.environ.get("KILLS", "2"))
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


@pytest.mark.parametrize("kills", [1, pytest.param(KILLS, marks=pytest.mark.slow)])
def test_a_run_killed_at_any_moment_ends_as_if_never_killed(config, undisturbed, tmp_path, kills):
    survives(kills, [config], undisturbed, tmp_path)


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


@pytest.mark.slow
def test_a_run_and_its_data_may_move_and_its_steps_become_more(
    config, undisturbed, tmp_path, monkeypatch, capfd
):
    monkeypatch.setattr("signal.signal", lambda *_: None)  # Ctrl-C stays pytest's
    first, folder, data = tmp_path / "first", tmp_path / "moved", tmp_path / "data"

    def said_by(*words):
        train.main(list(map(str, words)))
        return capfd.readouterr().out

    said_by(config, "--run", first, "--train.steps", 10)
    shutil.copytree(first, folder, copy_function=shutil.copyfile)  # with new times of change
    data.mkdir()
    for end in ("en", "de"):
        text = (config.parent / f"train.{end}").read_bytes()
        (data / f"train.{end}.gz").write_bytes(gzip.compress(text))
        shutil.copy(config.parent / f"valid.{end}", data)
    words = ["--data.train-files", data / "train.en.gz", data / "train.de.gz"]
    words += ["--data.validation-files", data / "valid.en", data / "valid.de"]

    said = said_by(config, "--run", folder, *words, "--train.keep-last", 5)
    [told] = (line for line in said.splitlines() if line.startswith("changed "))
    assert "train.steps 10 to 20, train.keep_last 3 to 5" in told
    assert told.split(maxsplit=1)[1] == read_launches(folder)[-1].changed
    assert "another validation set" not in said
    assert load_run_config(folder).data.train_files[0] == str(data / "train.en.gz")
    assert_same_end(folder, undisturbed)

    (data / "valid.de").write_bytes(b"Katze\n" * 12)
    words += ["--train.keep-last", 5, "--train.steps", 25]
    said = said_by(config, "--run", folder, *words)
    assert "scores up to update 20 are not compared with later ones" in said
    assert "another validation set" not in said_by(config, "--run", folder, *words)
    run_config = load_run_config(folder)
    assert restore(folder, run_config)[1].since == 20
    assert load_params(folder, run_config, "best")[1] == "best: step 25"

    (data / "train.de.gz").write_bytes((data / "train.en.gz").read_bytes())
    with pytest.raises(UserError, match=r"data.train_files is .* the files have other contents"):
        said_by(config, "--run", first, *words)


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
            assert "another train.py is running" in second.stderr
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
    assert f"{folder} was moved or deleted during training" in said
