"""Every command of README and the guide is one that the program understands."""

import gzip
import lzma
import re
import shlex
from importlib.util import find_spec
from pathlib import Path

import pytest
import tyro

from tests.test_links import DOCUMENTS
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
GUIDE = (
    "data", "training", "translating", "documents", "evaluation", "models_in_and_out",
    "language_models", "serving", "several_machines",
)  # fmt: skip
PAGES = {"README": ROOT / "README.md"} | {name: ROOT / "docs" / f"{name}.md" for name in GUIDE}
TEXTS = {
    name: path.read_text(encoding="utf-8").replace("\\\n", " ") for name, path in PAGES.items()
}
SERVER = "-m transformer.serving.server"
COMMANDS = sorted(
    {
        (name, command.strip())
        for name, text in TEXTS.items()
        for command in re.findall(rf"python ((?:\w+\.py|{SERVER}) [^`#|<\n]+)", text)
        if "--help" not in command
    }
)
SETTINGS = sorted(
    {
        (name, settings)
        for name, text in TEXTS.items()
        for line in text.splitlines()
        for settings in re.findall(r"`(--[^`]+)`", line)
        if line.startswith("|")
    }
)
RUNS = (
    "quickstart",
    "multi30k",
    "wmt14_base",
    "classes",
    "opus",
    "teacher",
    "first",
    "second",
    "back",
    "mine",
    "many",
)
MODULES = sorted(
    {
        (str(path.relative_to(ROOT)), module)
        for path in DOCUMENTS
        for module in re.findall(r"-m ((?:benchmarks|transformer)[\w.]+\w)", path.read_text())
    }
)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A checkout in which the runs of the documents have begun, with the text files that they train
    on without a config."""
    for name in ("train.en", "train.fr", "book.txt"):
        (tmp_path / name).write_text("a line\n")
    (tmp_path / "questions.tsv").write_text("a line\ta class\n")
    for name in ("news.en.gz", "news.fr.gz"):
        (tmp_path / name).write_bytes(gzip.compress(b"a line\n"))
    (tmp_path / "talks.tsv.xz").write_bytes(lzma.compress(b"a line\tune ligne\n"))
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    begun = {name: Config() for name in RUNS}
    for name in ("lm_quickstart", "mlm_quickstart"):
        begun[name] = load_config(ROOT / "configs" / f"{name}.py")
    for name, config in begun.items():
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "config.json").write_text(to_json(config))
    monkeypatch.chdir(tmp_path)


def parse(command: str) -> None:
    name, *words = shlex.split(command.removeprefix("-m "))
    if name == "eval.py":
        parse_with_run(EvalCommand, words, name)
    elif name == "transformer.serving.server":
        tyro.cli(ServerCommand, args=words)
    else:
        {
            "train.py": parse_train,
            "translate.py": parse_translate,
            "generate.py": parse_generate,
            "convert.py": parse_convert,
        }[name](words)


def with_command(page: str, settings: str) -> str:
    """A command that takes the settings which a table of the page names."""
    if settings.startswith(("--data", "--model", "--train", "--optimizer")):
        config = "lm_quickstart" if page == "language_models" else "quickstart"
        if "-files" in settings:
            settings += " --data.dataset '' --data.train-files a.tsv --data.validation-files b.tsv"
        return f"train.py configs/{config}.py {settings}"
    commands = {
        "serving": f"{SERVER} runs/quickstart",
        "language_models": "generate.py runs/lm_quickstart",
    }
    return f"{commands.get(page, 'translate.py runs/quickstart')} {settings}"


@pytest.mark.parametrize("page, command", COMMANDS)
def test_every_command_is_understood(place, page, command):
    parse(command)


@pytest.mark.parametrize("page, settings", SETTINGS)
def test_every_setting_is_understood(place, page, settings):
    parse(with_command(page, settings))


@pytest.mark.parametrize("document, module", MODULES)
def test_every_module_that_is_run_exists(document, module):
    assert find_spec(module)


def test_the_script_of_ci_begins_with_the_two_commands_as_they_stand_here():
    section = TEXTS["README"].partition("## Two commands")[2].partition("```sh\n")[2]
    shown = [line.partition("#")[0].strip() for line in section.partition("```")[0].splitlines()]
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    stages = re.findall(r"^stage (.*)$", script, re.MULTILINE)
    assert stages[: len(shown)] == shown and len(shown) == 2
    before = script.partition("stage make")[0]
    assert not re.search(r"pip install|venv|EXTRAS|TESTS", before), "nothing is set up for them"


def test_every_page_has_commands_or_settings():
    assert {page for page, _ in COMMANDS + SETTINGS} == set(PAGES)
    assert len(COMMANDS) > 40 and len(SETTINGS) > 40 and len(MODULES) > 20


def test_the_example_of_pmap_runs():
    [code] = re.findall(r"```python\n(.*?)```", TEXTS["several_machines"], flags=re.DOTALL)
    names: dict = {}
    exec(code, names)
    assert names["grads"].embedding.source.shape == (names["devices"], 100, 64)
