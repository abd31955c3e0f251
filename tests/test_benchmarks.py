"""The scripts in benchmarks/: how they begin, and that a small trial of one runs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]

WITHOUT_CTRANSLATE2 = """
import runpy, sys
sys.modules["ctranslate2"] = None
name, *words = sys.argv[1:]
sys.argv = [name, *words]
runpy.run_module(f"benchmarks.{name}", run_name="__main__")
"""


def run(*words: str, **variables: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, *words],
        cwd=ROOT,
        env=os.environ | variables,
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("name", ["decoding", "test_set"])
def test_what_needs_ctranslate2_explains_itself_without(name):
    helped = run("-c", WITHOUT_CTRANSLATE2, name, "--help")
    assert helped.returncode == 0, helped.stderr
    assert f"python -m benchmarks.{name}" in helped.stdout
    refused = run("-c", WITHOUT_CTRANSLATE2, name, *["runs/none"] * (name == "test_set"))
    assert refused.returncode == 2
    assert refused.stderr.startswith("error: this needs ctranslate2")
    assert "pip install -e '.[bench]'" in refused.stderr


@pytest.mark.parametrize(
    "words",
    ["accelerator --tokens", "attention --lengths", "decoding --beams", "decoding --sentences",
     "scaling --axes", "training_step --shapes", "training_step --dropout"],
)  # fmt: skip
def test_a_list_without_a_value_is_refused(words):
    name, option = words.split()
    result = run("-m", f"benchmarks.{name}", option)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == f"error: {option} needs a value: nothing would be measured\n"


SEARCH = """
from benchmarks.shapes import SHAPES, model_config
from benchmarks.work import endless_search

print(endless_search(model_config(SHAPES["tiny"]), sentences=1, length=4)().scores.dtype)
"""


def test_jaxs_64_bits_change_nothing():
    result = run("-c", SEARCH, JAX_ENABLE_X64="1")
    assert (result.returncode, result.stdout) == (0, "float32\n"), result.stderr


UPDATES = """
from benchmarks import accelerator, training_step
from benchmarks.measure import full_batch
from benchmarks.shapes import SHAPES, model_config
from transformer.config import Config

config = Config(model=model_config(SHAPES["tiny"]))
batch = full_batch(8, 4, 4, config.model.target_vocab_size)
print(accelerator.our_updates(config, batch)(1), training_step.our_step(config, [batch])())
print(training_step.planned_bytes(config, batch))
"""


def test_updates_are_measured_as_train_py_makes_them():
    result = run("-c", UPDATES)
    assert result.returncode == 0, result.stderr
    first, again, size = map(float, result.stdout.split())
    assert first == again > 5 and size > 1e6


@pytest.mark.parametrize(
    "words, sentence",
    [
        (["--target", "v9"], "unknown target 'v9'"),
        (["--target", "h100:0"], "a topology such as '1'"),
        (["--target", "h100:2x2"], "a topology such as '1'"),
        (["--target", "v5e:2x"], "a topology such as '2x2'"),
        (["--target", "v5e:0x2"], "a topology such as '2x2'"),
        (["--length", "0"], "must be at least 1"),
    ],
)
def test_what_cannot_be_compiled_for_is_refused(words, sentence):
    refused = run("-m", "benchmarks.compiled", "configs/quickstart.py", *words)
    assert refused.returncode == 2
    assert refused.stderr.startswith("error: ") and sentence in refused.stderr


def test_a_search_without_an_encoder_is_refused():
    words = ["configs/lm_quickstart.py", "--program", "search"]
    refused = run("-m", "benchmarks.compiled", *words)
    assert refused.returncode == 2
    assert "--program search is for translators" in refused.stderr
