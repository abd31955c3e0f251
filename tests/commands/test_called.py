"""What the documents present as the thing itself is what the commands run."""

import re
import subprocess
import sys

import pytest
from small_run import ROOT, family_words

pytestmark = pytest.mark.slow

NAME = re.compile(r"`(\w+)`")
LINK = re.compile(r"\[([^\]]*)\]\((?:\.\./)?(transformer/[\w/]+\.py)\)")


def presented(path, heading):
    """Files and names of the functions that the first table below a heading links to."""
    text = (ROOT / path).read_text(encoding="utf-8").partition(heading)[2]
    table = re.search(r"(?:^\|.*\n)+", text, re.MULTILINE)[0]
    links = [(file, name) for names, file in LINK.findall(table) for name in NAME.findall(names)]
    return {
        f"{file} {name}"
        for file, name in links
        if f"\ndef {name}(" in (ROOT / file).read_text(encoding="utf-8")
    }


def called_by(tmp_path, command, *words, stdin=""):
    """The functions that a command called."""
    found = tmp_path / "called"
    script = [sys.executable, ROOT / "tests/commands/called.py", found, command, *words]
    result = subprocess.run(
        list(map(str, script)), cwd=ROOT, input=stdin, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    return set(found.read_text().splitlines())


def test_the_functions_of_the_map_from_the_paper_are_those_that_run(config, family, tmp_path):
    run = tmp_path / "run"
    words = ["--train.steps", 6, "--train.validate-every", 3, "--model.dropout", 0.1]
    called = called_by(tmp_path, "train.py", config, "--run", run, *words)
    for function in ("training/step.py update", "model/encoder_decoder.py decode"):
        assert f"transformer/{function}" in called
    called |= called_by(tmp_path, "eval.py", run, "--checkpoint", "average")
    translated = called_by(tmp_path, "translate.py", run, stdin="old cat\n")
    assert "transformer/decoding/search.py search" in translated
    # The rest of the family, and positions of other kinds.
    language = [config, *family_words(config.parent, "language"), "--model.positions", "rotary"]
    called |= called_by(tmp_path, "train.py", *language, "--run", tmp_path / "language", *words)
    masked = [config, *family_words(config.parent, "masked"), "--model.positions", "relative"]
    called |= called_by(tmp_path, "train.py", *masked, "--run", tmp_path / "masked", *words)
    called |= called_by(tmp_path, "generate.py", tmp_path / "language", stdin="alt\n")
    called |= called_by(tmp_path, "generate.py", tmp_path / "masked", stdin="old __\n")
    shown = presented("README.md", "| Paper | Code |")
    for heading in ("## Equations", "## The paper, section by section"):
        shown |= presented("docs/paper_map.md", heading)
    shown = {name for name in shown if "/viewing/" not in name and not name.endswith("param_table")}
    assert len(shown) > 15
    assert sorted(shown - called - translated) == []
