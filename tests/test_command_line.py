"""What the commands say to mistakes: one sentence with the remedy, exit code 2, no traceback."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

import eval as eval_command
import train
import translate
from transformer.command_line import (
    EvalCommand,
    load_config,
    parse_train,
    parse_with_run,
    run_command,
)
from transformer.config import Config, DecodeConfig, UserError, to_json
from transformer.data.tokenizer import Tokenizers, save_tokenizers, train_tokenizer

ROOT = Path(__file__).parents[1]
COMMANDS = {"train.py": train.main, "eval.py": eval_command.main, "translate.py": translate.main}

CONFIG = """
from transformer.config import Config, ModelConfig

config = Config(model=ModelConfig(d_model=64, num_heads=4))
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working directory with a config, broken ones, and a run that has no checkpoint."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "small.py").write_text(CONFIG)
    (tmp_path / "configs" / "large.py").write_text(CONFIG)
    (tmp_path / "configs" / "broken.py").write_text("config = Konfig()")
    (tmp_path / "configs" / "empty.py").write_text("")
    (tmp_path / "thesis.txt").write_text("precious")
    tokenizer = train_tokenizer(["a small sentence"], "char", 30, False)
    for name in ("first", "second"):
        run = tmp_path / "runs" / name
        save_tokenizers(Tokenizers(tokenizer, tokenizer), run / "tokenizer")
        (run / "config.json").write_text(to_json(load_config("configs/small.py")))
    (tmp_path / "runs" / "damaged").mkdir()
    (tmp_path / "runs" / "damaged" / "config.json").write_text('{"model": {"d_mo')
    for name, text in (("test.en", "a\nb\n"), ("test.de", "a\n")):
        (tmp_path / name).write_text(text)
    return tmp_path


SMALL = "train.py configs/small.py"
MISTAKES = [
    ("train.py --train.steps 5 configs/small.py", ["--train.steps comes too early", "train.py"]),
    ("train.py configs/smal.py", ["no config file configs/smal.py", "large.py", "small.py"]),
    ("train.py nowhere/small.py", ["no config file nowhere/small.py", "configs/small.py"]),
    ("train.py configs/broken.py", ["does not run", "Konfig"]),
    ("train.py configs/empty.py", ["must define `config = Config(...)`"]),
    (f"{SMALL} --model.num-heads 7", ["model.d_model (64)", "multiple of model.num_heads (7)"]),
    (f"{SMALL} --model.dropout 1.5", ["model.dropout (1.5)", "below 1"]),
    (f"{SMALL} --train.steps 0", ["train.steps (0)", "at least 1"]),
    (f"{SMALL} --run thesis.txt", ["thesis.txt", "is not a run", "--run"]),
    (f"{SMALL} --run .", ["is not a run", "--run"]),
    ("eval.py runs/frist", ["runs/frist is not a run", "runs/first", "runs/second"]),
    ("eval.py elsewhere/run", ["elsewhere/run is not a run", "train.py makes runs"]),
    ("eval.py runs/damaged", ["config.json is damaged"]),
    ("eval.py runs/first --decode.beam-size 0", ["decode.beam_size (0)", "at least 1"]),
    ("eval.py runs/first --test-files test.en missing.de", ["missing.de"]),
    ("eval.py runs/first --test-files test.en test.de", ["test.en", "test.de"]),
    ("translate.py runs/frist", ["runs/frist is not a run", "runs/first"]),
    ("translate.py runs/first", ["runs/first has no checkpoint yet", "train.py"]),
]

# These are found by tyro, which draws a box around them.
UNKNOWN_WORDS = [
    ("train.py", ["config"]),
    (f"{SMALL} --model.d-modle 32", ["d-modle", "d-model"]),
    (f"{SMALL} --train.steps many", ["steps", "many"]),
    (f"{SMALL} --model.norm both", ["norm", "both", "post", "pre"]),
    ("eval.py runs/first --split training", ["split", "test", "validation"]),
    ("translate.py runs/first --beam 3", ["--beam"]),
]


def run_in_process(monkeypatch, capsys, line):
    """What a command that fails leaves on stderr."""
    name, *arguments = line.split()
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    with pytest.raises(SystemExit) as stop:
        run_command(COMMANDS[name])
    assert stop.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize("line, words", MISTAKES, ids=[line for line, _ in MISTAKES])
def test_a_mistake_gets_one_sentence_with_the_remedy(folder, monkeypatch, capsys, line, words):
    message = run_in_process(monkeypatch, capsys, line)
    assert "Traceback" not in message
    assert message.startswith("error: ") and len(message.splitlines()) == 1
    for word in words:
        assert word in message


@pytest.mark.parametrize("line, words", UNKNOWN_WORDS, ids=[line for line, _ in UNKNOWN_WORDS])
def test_a_word_that_is_no_setting_is_named_with_what_was_meant(
    folder, monkeypatch, capsys, line, words
):
    message = run_in_process(monkeypatch, capsys, line)
    assert "Traceback" not in message
    for word in words:
        assert word in message


def test_a_mistake_is_the_same_outside_of_the_tests(folder):
    command = [sys.executable, ROOT / "train.py", "configs/small.py", "--model.num-heads", "7"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 2
    assert result.stderr == (
        "error: model.d_model (64) must be a multiple of model.num_heads (7)\n"
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_help_imports_neither_jax_nor_flax(name):
    program = (
        "import runpy, sys\n"
        f"sys.argv = [{name!r}, '--help']\n"
        "try:\n"
        f"    runpy.run_path({name!r}, run_name='__main__')\n"
        "except SystemExit as stop:\n"
        "    assert stop.code == 0, stop.code\n"
        "print('LOADED', *sorted({'jax', 'flax', 'optax', 'orbax', 'numpy'} & set(sys.modules)))\n"
    )
    command = [sys.executable, "-c", program]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert "checkpoint" in result.stdout or "--model.d-model" in result.stdout, result.stderr
    assert result.stdout.splitlines()[-1] == "LOADED"


def test_settings_of_the_config_file_are_defaults_that_the_command_line_changes(folder):
    run, config = parse_train(["configs/small.py", "--model.dropout", "0.3"])
    assert run == Path("runs/small")
    model = dataclasses.replace(load_config("configs/small.py").model, dropout=0.3)
    assert config == Config(model=model)
    assert parse_train(["configs/small.py", "--run", "elsewhere"])[0] == Path("elsewhere")


def test_decoding_settings_change_and_the_rest_is_the_runs(folder):
    command, config = parse_with_run(
        EvalCommand, ["runs/first", "--decode.beam-size", "7", "--checkpoint", "last"], "eval.py"
    )
    assert command.checkpoint == "last" and command.run == Path("runs/first")
    assert config.decode == DecodeConfig(beam_size=7)
    assert config.model == load_config("configs/small.py").model


@pytest.mark.parametrize(
    "path", sorted((ROOT / "configs").glob("*.py")), ids=lambda path: path.stem
)
def test_every_config_of_the_project_is_valid(path, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert parse_train([str(path)])[0] == Path("runs") / path.stem


def test_a_user_error_is_printed_and_a_bug_is_not_hidden(monkeypatch, capsys):
    def fail(error):
        def main(words):
            raise error

        return main

    monkeypatch.setattr(sys, "argv", ["train.py"])
    with pytest.raises(SystemExit) as stop:
        run_command(fail(UserError("the remedy")))
    assert stop.value.code == 2
    assert capsys.readouterr().err == "error: the remedy\n"
    with pytest.raises(ZeroDivisionError):
        run_command(fail(ZeroDivisionError()))
