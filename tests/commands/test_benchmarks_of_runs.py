"""The scripts in benchmarks/ that want a run: that a small trial of one runs."""

import subprocess
import sys

import pytest
from small_run import ROOT

from transformer.config.files import load_config
from transformer.data.corpus import read_pairs

pytestmark = pytest.mark.slow


def test_a_test_set_translated_by_ours_and_by_ctranslate2(undisturbed):
    pytest.importorskip("ctranslate2")
    words = ["-m", "benchmarks.test_set", undisturbed, "--sentences", "3", "--rounds", "1"]
    words += ["--checkpoint", "last"]
    result = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "0 sentences of ours float32 and CTranslate2 float32 differ" in result.stdout


def test_recipes_are_trained_once_and_the_best_values_with_all_seeds(config, tmp_path):
    recipes = tmp_path / "recipes.txt"
    recipes.write_text("# one recipe\nadam --optimizer.scale {0.01,1}  # two values\n")
    words = ["-m", "benchmarks.recipes", config, recipes, "--runs", tmp_path, "--metric", "loss"]
    words += ["--seeds", "2"]
    first, again = (
        subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True)
        for _ in range(2)
    )
    assert first.returncode == 0, first.stderr
    assert first.stdout == again.stdout
    folders = {path.name for path in tmp_path.iterdir() if path.is_dir()}
    assert folders == {"adam-scale-0.01-seed0", "adam-scale-1-seed0", "adam-scale-1-seed1"}
    assert "| adam | --optimizer.scale 1 |" in first.stdout


def test_the_text_of_a_config_is_written_and_other_text_is_not_lost(config, tmp_path):
    words = ["-m", "benchmarks.text_files", config, tmp_path]
    written = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True)
    assert written.returncode == 0, written.stderr
    data = load_config(config).data
    for split in ("train", "validation", "test"):
        for side, lines in zip((data.source, data.target), zip(*read_pairs(data, split))):
            assert (tmp_path / f"{split}.{side}").read_text().splitlines() == [*lines]
    (tmp_path / f"train.{data.source}").write_text("mine\n")
    refused = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True)
    assert refused.returncode == 2 and "exists and has other text" in refused.stderr
    assert (tmp_path / f"train.{data.source}").read_text() == "mine\n"
