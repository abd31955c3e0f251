"""The recipes of docs/reliability.md for machines that are taken away, with real signals."""

import os
import signal
import subprocess
import sys

import pytest
from small_run import ROOT, run, wait_until
from test_resume import assert_same_end, last_saved, updating

pytestmark = pytest.mark.slow


def slurm_script():
    text = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    [script] = [block for block in text.split("```sh\n")[1:] if "#SBATCH" in block.split("```")[0]]
    return script.split("```")[0]


SCRIPTS = {"slurm": slurm_script(), "exec": "exec python train.py configs/wmt14_base.py\n"}


@pytest.mark.parametrize("name", SCRIPTS if "KILLS" in os.environ else ["slurm"])
def test_a_script_that_is_told_to_end_saves_and_goes_on_when_it_is_queued_again(
    config, finished, tmp_path, name
):
    # Long enough to be stopped, wherever it is then.
    words = [config, "--train.steps", 600, "--train.validate-every", 300]
    folder, undisturbed = tmp_path / "run", finished("long", *words)
    call = " ".join(map(str, [sys.executable, "train.py", *words, "--run", folder]))
    script = tmp_path / "job.sh"
    script.write_text(SCRIPTS[name].replace("python train.py configs/wmt14_base.py", call))
    job = subprocess.Popen(["bash", script], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    wait_until(lambda: updating(folder), job)
    os.kill(job.pid, signal.SIGTERM)  # its process alone, as B: and Kubernetes do
    said, _ = job.communicate(timeout=60)
    assert job.returncode == 0
    assert "stopped after update" in said
    assert 0 < last_saved(folder) < 600
    assert subprocess.run(["bash", script], cwd=ROOT, capture_output=True).returncode == 0
    assert_same_end(folder, undisturbed)
    assert run("train.py", *words, "--run", folder).returncode == 0
