"""No file that somebody else has written can make the program do something: it is read, not run.

A config file of train.py is a program, which its user runs: the one exception.
"""

import ast
import contextlib
import pickle
import shutil
from functools import partial
from pathlib import Path

import jax
import pytest

from tests.test_random_bytes import READERS
from transformer.data.tokenizer import train_tokenizer
from transformer.data.vocabularies import Tokenizers, load_tokenizers, save_tokenizers
from transformer.errors import UserError
from transformer.runs.checkpoints import Checkpoints, Progress, load_params, restore
from transformer.runs.folder import create_run, load_run_config
from transformer.training.step import init_state

ROOT = Path(__file__).parent.parent
SOURCES = [*(ROOT / "transformer").rglob("*.py"), *ROOT.glob("*.py")]

MODULES = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "yaml", "runpy", "pty"}
MODULES |= {"subprocess", "ctypes"}
CALLS = {"eval", "exec", "compile", "__import__", "system", "popen", "import_module", "posix_spawn"}
CALLS |= {
    f"{verb}{how}" for verb in ("exec", "spawn") for how in ("l", "lp", "v", "vp", "ve", "vpe")
}
ARGUMENTS = {"shell", "allow_pickle", "trust_remote_code", "weights_only"}

ALLOWED = {
    ("transformer/interchange/pickled.py", "pickle"),  # calls nothing: test_weights
    ("transformer/interchange/weights.py", "pickle"),  # the name of an error
    ("transformer/interchange/marian_options.py", "yaml"),  # text alone: test_marian_npz
    ("transformer/config/files.py", "runpy"),  # the user's own config
    ("transformer/commands/verify_resume.py", "subprocess"),  # the user's own words
    ("transformer/machine/malloc.py", "ctypes"),
    ("transformer/machine/distributed.py", "ctypes"),
}


def dangers(path: Path) -> set[tuple[str, str]]:
    """What in a file could run what it reads: of builtins and modules, not of methods such as a
    compiled pattern's or program's."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names} & MODULES
        elif isinstance(node, ast.ImportFrom):
            found |= {(node.module or "").split(".")[0]} & MODULES
        elif isinstance(node, ast.Call):
            of_module = isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) in (
                "os", "builtins", "importlib",
            )  # fmt: skip
            name = node.func.id if isinstance(node.func, ast.Name) else ""
            found |= {node.func.attr if of_module else name} & CALLS
            found |= {keyword.arg for keyword in node.keywords} & ARGUMENTS
    return {(path.relative_to(ROOT).as_posix(), name) for name in found}


def test_nothing_in_the_program_runs_what_it_reads():
    assert set().union(*map(dangers, SOURCES)) == ALLOWED


def test_the_search_would_find_it(tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    text = "import os, yaml\nfrom pickle import load\neval('1')\nos.execv('x')\nf(shell=True)\n"
    (tmp_path / "bad.py").write_text(text)
    names = {name for _, name in dangers(tmp_path / "bad.py")}
    assert names == {"yaml", "pickle", "eval", "execv", "shell"}


class Bait:
    """What makes a file when it is unpickled without care."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_the_bait_is_one(tmp_path):
    pickle.loads(pickle.dumps(Bait(tmp_path / "bitten")))
    assert (tmp_path / "bitten").exists()


def contents(bitten: Path) -> dict[str, bytes]:
    """Files that do something where they are unpickled, evaluated, or run by a shell."""
    code = f"__import__('pathlib').Path({str(bitten)!r}).touch()"
    return {
        "pickle": pickle.dumps(Bait(bitten)),
        "old pickle": pickle.dumps(Bait(bitten), protocol=0),
        "array": b"\x93NUMPY\x01\x00F\x00{'descr': '|O', 'fortran_order': False, 'shape': (1,), }"
        + b" " * 12 + b"\n" + pickle.dumps(Bait(bitten)),
        "python": code.encode(),
        "yaml": f"!!python/object/apply:pathlib.Path.touch [{bitten}]".encode(),
        "shell": f"#!/bin/sh\ntouch {bitten}\n".encode(),
        "json": f'{{"model": {{"norm": "{code}"}}, "$(touch {bitten})": 1}}'.encode(),
    }  # fmt: skip


@pytest.mark.parametrize("name", [name for name in READERS if name != "config.py"])
def test_no_reader_bites(tmp_path, name):
    bitten = tmp_path / "bitten"
    for content in contents(bitten).values():
        path = tmp_path / name
        path.write_bytes(content)
        with contextlib.suppress(UserError, AssertionError):
            READERS[name](path)
        assert not bitten.exists()


@pytest.fixture
def run(tmp_path, small_config, monkeypatch):
    """The folder of a run, with a checkpoint."""
    monkeypatch.setattr("transformer.runs.checkpoint_files.A_MOMENT", 0.01)
    config = small_config(model={"encoder_layers": 1, "decoder_layers": 1, "d_ff": 8})
    folder = tmp_path / "begun"
    tokenizer = train_tokenizer(["the old cat", "sees the dog"], "char", 20)
    save_tokenizers(Tokenizers(tokenizer, tokenizer), folder / "tokenizer")
    create_run(folder, config)
    checkpoints = Checkpoints(folder, config)
    checkpoints.save(init_state(config, jax.random.key(0)), Progress())
    checkpoints.close()
    return folder


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # damage is told of
def test_no_file_of_a_run_bites(run, tmp_path):
    """Each of its files replaced, one after the other."""
    bitten, folder = tmp_path / "bitten", tmp_path / "run"
    names = [path.relative_to(run) for path in run.rglob("*") if path.is_file()]
    assert len(names) > 10
    for name in names:
        for kind in ("pickle", "python"):
            shutil.copytree(run, folder)
            (folder / name).write_bytes(contents(bitten)[kind])
            for read in (partial(load_params, checkpoint="last"), restore):
                with contextlib.suppress(UserError):
                    config = load_run_config(folder)
                    load_tokenizers(folder / "tokenizer", config.data)
                    read(folder, config)
            shutil.rmtree(folder)
            assert not bitten.exists()
