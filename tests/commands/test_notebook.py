"""The notebook's cells that read test pairs, translate and score, with numbers of 64 bits."""

import os
import subprocess
import sys

import pytest
from small_run import ROOT

pytestmark = pytest.mark.slow


def test_it_translates_and_scores_whatever_jax_is_told_about_64_bits():
    text = (ROOT / "notebooks" / "03_train_a_translator.py").read_text(encoding="utf-8")
    code = [cell for cell in text.split("# %%")[1:] if not cell.startswith(" [markdown]")]
    needed = ("tests = list(", "load_plain(", "evaluation.scores import")
    cells = [cell for cell in code if any(part in cell for part in needed)]
    assert len(cells) == len(needed)
    beginning = """
from pathlib import Path
weights = Path("notebooks/weights/quickstart")
"""
    result = subprocess.run(
        [sys.executable, "-c", "".join([beginning, *cells])],
        cwd=ROOT, env=os.environ | {"JAX_ENABLE_X64": "1"}, capture_output=True, text=True,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "Tomorrow I want to visit my friend" in result.stdout
    assert "chrF2" in result.stdout
