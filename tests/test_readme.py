"""Every command of the README is one that the program understands."""

import re
import shlex
from pathlib import Path

import pytest
import tyro

from transformer.commands.command_line import (
    EvalCommand,
    parse_generate,
    parse_train,
    parse_translate,
    parse_with_run,
)
from transformer.commands.convert_line import parse_convert
from transformer.config import Config
from transformer.config.files import load_config, to_json
from transformer.serving.server import ServerCommand

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = sorted(set(re.findall(r"python (\w+\.py [^`#|<\n]+)", README.replace("\\\n", " "))))
TABLE = [line for line in README.splitlines() if line.startswith("|")]
RUNS = ("quickstart", "multi30k", "wmt14_base", "classes", "opus", "teacher", "back")
SETTINGS = sorted(set(re.findall(r"`(--[^`]+)`", "\n".join(TABLE))))


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A checkout in which the runs of the README have begun."""
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    begun = {name: Config() for name in RUNS}
    for name in ("lm_quickstart", "mlm_quickstart"):
        begun[name] = load_config(ROOT / "configs" / f"{name}.py")
    for name, config in begun.items():
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "config.json").write_text(to_json(config))
    monkeypatch.chdir(tmp_path)


def parse(command: str) -> None:
    name, *words = shlex.split(command)
    if name == "eval.py":
        parse_with_run(EvalCommand, words, name)
    else:
        {
            "train.py": parse_train,
            "translate.py": parse_translate,
            "generate.py": parse_generate,
            "convert.py": parse_convert,
        }[name](words)


@pytest.mark.parametrize("command", [words for words in COMMANDS if "--help" not in words])
def test_every_command_is_understood(place, command):
    parse(command)


@pytest.mark.parametrize("settings", SETTINGS)
def test_every_setting_is_understood(place, settings):
    if settings.startswith(("--data", "--model")):
        config = "lm_quickstart" if "--data.windows" in settings else "quickstart"
        parse(f"train.py configs/{config}.py {settings}")
    elif settings.startswith(("--train", "--optimizer")):
        parse(f"train.py configs/quickstart.py {settings}")
    elif settings.startswith("--decode"):
        parse(f"translate.py runs/quickstart {settings}")
    elif settings.startswith(("--hosts", "--origins")):
        tyro.cli(ServerCommand, args=["runs/quickstart", *settings.split()])
    else:
        parse(f"generate.py runs/lm_quickstart {settings}")


def test_the_script_of_ci_begins_with_the_two_commands_as_they_stand_here():
    section = README.partition("## Two commands")[2].partition("```sh\n")[2].partition("```")[0]
    shown = [line.partition("#")[0].strip() for line in section.splitlines()]
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    stages = re.findall(r"^stage (.*)$", script, re.MULTILINE)
    assert stages[: len(shown)] == shown and len(shown) == 2
    before = script.partition("stage make")[0]
    assert not re.search(r"pip install|venv|EXTRAS|TESTS", before), "nothing is set up for them"


def test_the_readme_has_commands():
    assert len(COMMANDS) > 8 and len(SETTINGS) > 8
