"""Every command of the README is one that the program understands."""

import re
import shlex
from pathlib import Path

import pytest

from transformer.commands.command_line import (
    EvalCommand,
    TranslateCommand,
    parse_train,
    parse_with_run,
)
from transformer.config import Config
from transformer.config.files import to_json

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = sorted(set(re.findall(r"python (\w+\.py [^`#|<\n]+)", README.replace("\\\n", " "))))
TABLE = [line for line in README.splitlines() if line.startswith("|")]
SETTINGS = sorted(set(re.findall(r"`(--[^`]+)`", "\n".join(TABLE))))


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A checkout in which the runs of the README have begun."""
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    for name in ("quickstart", "multi30k", "wmt14_base"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "config.json").write_text(to_json(Config()))
    monkeypatch.chdir(tmp_path)


def parse(command: str) -> None:
    name, *words = shlex.split(command)
    if name == "train.py":
        parse_train(words)
    else:
        parse_with_run(EvalCommand if name == "eval.py" else TranslateCommand, words, name)


@pytest.mark.parametrize("command", [words for words in COMMANDS if "--help" not in words])
def test_every_command_is_understood(place, command):
    parse(command)


@pytest.mark.parametrize("settings", SETTINGS)
def test_every_setting_is_understood(place, settings):
    parse(f"train.py configs/quickstart.py {settings}")


def test_the_readme_has_commands():
    assert len(COMMANDS) > 8 and len(SETTINGS) > 8
