"""train.py --plan: what it says is what training then does; and what cannot fit is not begun."""

import importlib.util
import os
import re
import subprocess
import sys

import pytest
from small_run import ROOT, family_words, run

pytestmark = pytest.mark.slow

ROW = re.compile(
    r" *([\d,]+) +(-|\d+) +(-|\d+) +([\d,]+) +[\d.]+ s +([\d.]+) +[\d.]+ +(?:-|[\d.]+) +\S+"
)


@pytest.mark.parametrize("kind", ["", "language"])
def test_every_shape_of_batches_is_there_with_what_it_takes(config, tmp_path, kind):
    words = [
        config,
        "--run",
        tmp_path / "run",
        *(family_words(config.parent, kind) if kind else []),
    ]
    planned = run("train.py", *words, "--plan")
    assert planned.returncode == 0, planned.stderr
    rows = [
        found.groups() for line in planned.stdout.splitlines() if (found := ROW.fullmatch(line))
    ]
    trained = run("train.py", *words, "--train.steps", 1)
    batches, shapes = re.search(
        r"([\d,]+) updates an epoch, (\d+) batch shapes", trained.stdout
    ).groups()
    assert len(rows) == int(shapes)
    assert sum(int(row[3].replace(",", "")) for row in rows) == int(batches.replace(",", ""))
    if kind:
        assert {row[1] for row in rows} == {"-"}
    assert re.search(r"memory .* GB of state and batch, .* GB are free: fits", planned.stdout)
    assert re.search(r"time .*; 20 updates in [\d.]+ s, an epoch of \d+", planned.stdout)


def test_a_plan_leaves_nothing_behind(config, tmp_path):
    run("train.py", config, "--run", tmp_path / "run", "--plan")
    assert not list(tmp_path.iterdir())


def limited(words, gigabytes):
    """train.py as users have it, with so many addresses."""
    command = ["sh", "-c", f'ulimit -v {int(gigabytes * 2**20)} && exec "$0" "$@"', sys.executable]
    words = [*command, ROOT / "train.py", *words]
    environment = os.environ | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "0"}
    words = list(map(str, words))
    return subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True)


def test_what_does_not_fit_is_refused_with_what_would_help(config, tmp_path):
    words = [config, "--run", tmp_path / "run", "--model.d-ff", 40_000, "--train.steps", 1]
    large = [*words, "--data.batch-tokens", 20_000, "--data.num-buckets", 1]
    result = limited(large, 8)
    assert result.returncode == 2
    assert re.search(
        r"error: an update takes [\d.]+ GB beside the state, but a device has [\d.]+ GB left: "
        r"lower data.batch_tokens",
        result.stderr,
    )
    result = limited(words, 8)
    assert result.returncode == 0, result.stderr


@pytest.mark.skipif(not importlib.util.find_spec("libtpu"), reason="needs the extra `plan`")
def test_a_device_that_is_not_there_is_planned_for(config, tmp_path):
    result = run("train.py", config, "--run", tmp_path / "run", "--plan", "v5e:2x2")
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("v5e:2x2, float32, 4 devices\n")
    assert "17.18 GB on each: fits" in result.stdout
