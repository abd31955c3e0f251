"""The scripts in benchmarks/ that want a run: that a small trial of one runs."""

import subprocess
import sys

import pytest
from small_run import ROOT

pytestmark = pytest.mark.slow


def test_a_test_set_translated_by_ours_and_by_ctranslate2(undisturbed):
    pytest.importorskip("ctranslate2")
    words = ["-m", "benchmarks.test_set", undisturbed, "--sentences", "3", "--rounds", "1"]
    words += ["--checkpoint", "last"]
    result = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "0 sentences of ours float32 and CTranslate2 float32 differ" in result.stdout
