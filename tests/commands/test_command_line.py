"""From words to settings. (What the commands say to mistakes: tests/commands/test_mistakes.py.)"""

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from transformer.commands.command_line import (
    EvalCommand,
    named_settings,
    parse_script,
    parse_train,
    parse_with_run,
)
from transformer.commands.program import carry_out
from transformer.config import Config, DecodeConfig
from transformer.config.files import from_json, load_config, to_json
from transformer.config.settings import Positive
from transformer.errors import UserError
from transformer.runs.folder import load_run_config

ROOT = Path(__file__).parents[2]
COMMANDS = ["train.py", "eval.py", "translate.py"]

CONFIG = """
from transformer.config import Config, ModelConfig

config = Config(model=ModelConfig(d_model=64, num_heads=4))
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working directory with a config and a run of it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "small.py").write_text(CONFIG)
    (tmp_path / "runs" / "first").mkdir(parents=True)
    config = to_json(load_config("configs/small.py").with_vocabularies(30, 40, "a digest"))
    (tmp_path / "runs" / "first" / "config.json").write_text(config)
    return tmp_path


def test_settings_are_named_whatever_value_they_get():
    settings = {"beam_size": 4, "alpha": 0.6, "forced_end": False, "no_repeat_ngram": 0, "stop": ""}
    words = ["run", "--decode.beam-size", "4", "--decode.alpha=0.6", "--decode.no-forced-end"]
    assert named_settings(words, "decode", settings).keys() == {"beam_size", "alpha", "forced_end"}
    words = ["--decode.no_repeat_ngram", "0", "--train.stop", "--beam-size", "4"]
    assert named_settings(words, "decode", settings) == {"no_repeat_ngram": 0}


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
    command = parse_train(["configs/small.py", "--model.dropout", "0.3"])
    assert command.run == Path("runs/small")
    model = dataclasses.replace(load_config("configs/small.py").model, dropout=0.3)
    assert command.settings == Config(model=model)
    assert parse_train(["configs/small.py", "--run", "elsewhere"]).run == Path("elsewhere")


@pytest.mark.parametrize("option", [["--from", "runs/first"], ["--from=runs/first"]])
def test_the_model_and_the_vocabulary_come_from_another_run(folder, option):
    (folder / "configs" / "other.py").write_text(CONFIG.replace("64", "128"))
    words = ["configs/other.py", *option, "--model.dropout", "0.3", "--data.source", "fr"]
    command = parse_train(words)
    earlier = load_run_config(folder / "runs" / "first")
    assert command.settings.model == dataclasses.replace(earlier.model, dropout=0.3)
    assert command.settings.data == dataclasses.replace(earlier.data, source="fr")
    assert command.run == Path("runs/other")


def test_columns_are_two_numbers_from_1(folder):
    words = ["configs/small.py", "--data.tsv-columns"]
    assert parse_train([*words, "3", "4"]).settings.data.tsv_columns == (3, 4)
    with pytest.raises(UserError, match=r"data\.tsv_columns \(\(0, 2\)\) must be at least 1"):
        parse_train([*words, "0", "2"])


@pytest.mark.parametrize("words", [["--optimizer.skip-spikes", "7"], ["--optimizer.skip_spikes=7"]])
def test_a_flag_may_have_the_former_name_of_its_setting(folder, words):
    assert parse_train(["configs/small.py", *words]).settings.optimizer.spike_threshold == 7


@pytest.mark.parametrize("flag", ["--model.classes", "--decode.length-ratio", "--train.origin"])
def test_derived_fields_have_no_flags(folder, flag):
    with pytest.raises(UserError, match=f"Unrecognized options: {flag}"):
        parse_train(["configs/small.py", flag, "2"])


def test_printed_settings_are_a_runs_config(folder):
    words = [sys.executable, ROOT / "train.py", "configs/small.py", "--print-config"]
    printed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert from_json(printed) == load_config("configs/small.py")
    assert [path.name for path in (folder / "runs").iterdir()] == ["first"]


def test_decoding_settings_change_and_the_rest_is_the_runs(folder):
    command, config = parse_with_run(
        EvalCommand, ["runs/first", "--decode.beam-size", "7", "--checkpoint", "last"], "eval.py"
    )
    assert command.checkpoint == "last" and command.run == Path("runs/first")
    assert config.decode == DecodeConfig(beam_size=7)
    earlier = load_run_config(folder / "runs" / "first")
    assert (config.model, config.data) == (earlier.model, earlier.data)


@pytest.mark.parametrize(
    "path", sorted((ROOT / "configs").glob("*.py")), ids=lambda path: path.stem
)
def test_every_config_of_the_project_is_valid(path, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert parse_train([str(path)]).run == Path("runs") / path.stem


def test_a_user_error_is_printed_and_a_bug_is_not_hidden(monkeypatch, capsys):
    def fail(error):
        def main(words):
            raise error

        return main

    monkeypatch.setattr(sys, "argv", ["train.py"])
    with pytest.raises(SystemExit) as stop:
        carry_out(fail(UserError("the remedy")))
    assert stop.value.code == 2
    assert capsys.readouterr().err == "error: the remedy\n"
    with pytest.raises(ZeroDivisionError):
        carry_out(fail(ZeroDivisionError()))


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes."),
        RuntimeError("INTERNAL: YNNPACK operation failed"),
    ],
)
def test_too_little_memory_is_a_sentence_with_settings_to_lower(error, monkeypatch, capsys):
    def main(words):
        raise error

    monkeypatch.setattr(sys, "argv", ["train.py"])
    with pytest.raises(SystemExit) as stop:
        carry_out(main)
    assert stop.value.code == 2
    reason = str(error) or "MemoryError"
    assert f"out of memory ({reason}); lower data.batch_tokens" in capsys.readouterr().err


LINGERS = """
import sys, threading, time
from transformer.errors import UserError
from transformer.commands.program import run_command

def main(words):
    threading.Thread(target=time.sleep, args=(600,)).start()
    print("said before")
    raise {error}

run_command(main)
"""


@pytest.mark.parametrize(
    "error, code, said",
    [
        ("UserError('the remedy')", 2, "error: the remedy\n"),
        ("ZeroDivisionError", 1, "ZeroDivisionError"),
        ("KeyboardInterrupt", 130, ""),
    ],
)
def test_a_command_that_fails_waits_for_no_thread(error, code, said):
    words = [sys.executable, "-c", LINGERS.format(error=error)]
    result = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert result.returncode == code
    assert result.stdout == "said before\n" and said in result.stderr


def test_a_system_error_without_a_file_name_blames_no_file(monkeypatch, capsys):
    def main(words):
        raise OSError(28, "No space left on device")  # by a library, with no file's name

    monkeypatch.setattr(sys, "argv", ["train.py"])
    with pytest.raises(SystemExit):
        carry_out(main)
    said = capsys.readouterr().err
    assert "No space left on device: standard output or an unknown file" in said


def test_a_full_standard_output_is_named():
    words = [sys.executable, "train.py", "configs/quickstart.py", "--print-config"]
    with Path("/dev/full").open("w") as full:
        result = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    assert result.returncode == 2
    assert "No space left on device: standard output" in result.stderr


def test_a_scripts_own_settings_are_checked_too():
    @dataclasses.dataclass(frozen=True)
    class Script:
        """A script."""

        rounds: Positive = 3
        sizes: tuple[Positive, ...] = (1, 2)

    assert parse_script(Script, ["--rounds", "4"], "script") == Script(rounds=4)
    with pytest.raises(UserError, match=r"rounds \(0\) must be at least 1"):
        parse_script(Script, ["--rounds", "0"], "script")
    with pytest.raises(UserError, match=r"sizes \(\(3, 0\)\) must be at least 1"):
        parse_script(Script, ["--sizes", "3", "0"], "script")
    with pytest.raises(UserError, match="all settings: script --help"):
        parse_script(Script, ["--sise", "3"], "script")
