"""The three commands one after the other, as the README has them."""

import json
import shutil
from pathlib import Path

import pytest
from small_run import run

from transformer.config import DecodeConfig
from transformer.config.settings import DERIVED_FROM_PAIRS
from transformer.evaluation.records import search_name


def test_training_reports_validates_and_keeps_everything_in_its_folder(undisturbed):
    lines = [json.loads(line) for line in (undisturbed / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "loss" in line] == [5, 10, 15, 20]
    for name in ("validation_bleu", "validation_chrf"):
        assert [line["step"] for line in lines if name in line] == [5, 10, 15, 20]
    assert lines[-2]["loss"] < lines[0]["loss"]
    decode = json.loads((undisturbed / "config.json").read_text())["decode"]
    assert decode["copy_without_letters"] is True  # which no pair contradicts
    assert (undisturbed / "config.json").exists()
    assert (undisturbed / "tokenizer" / "source.model").exists()


def test_the_same_command_on_a_finished_run_changes_nothing(config, undisturbed, tmp_path):
    folder = shutil.copytree(undisturbed, tmp_path / "run", ignore=shutil.ignore_patterns("*.tmp"))
    before = (folder / "metrics.jsonl").read_text()
    result = run("train.py", config, "--run", folder)
    assert result.returncode == 0, result.stderr
    assert "20 of 20 done" in result.stdout
    assert "scores      chrF selects the best checkpoint" in result.stdout  # one or two words
    assert (folder / "metrics.jsonl").read_text() == before


def test_another_config_for_the_same_folder_is_refused_by_field(config, undisturbed):
    result = run("train.py", config, "--run", undisturbed, "--model.d-ff", 64)
    assert result.returncode == 2
    assert "model.d_ff is 32 in the run, 64 in this command" in result.stderr
    assert "Traceback" not in result.stderr


def test_eval_prints_signed_scores_and_keeps_one_line_a_sentence(undisturbed):
    result = run("eval.py", undisturbed, "--checkpoint", "average")
    assert result.returncode == 0, result.stderr
    for words in ("BLEU", "chrF2", "nrefs:1", "interval", "12 sentences", "en to de"):
        assert words in result.stdout, words
    stem = undisturbed / "eval" / "test-average-beam2-alpha0.6-extra10"
    record = json.loads(Path(f"{stem}.json").read_text())
    assert len(Path(f"{stem}.de").read_text().splitlines()) == record["sentences"] == 12


@pytest.mark.slow
def test_a_run_that_may_not_be_written_to_is_scored_all_the_same(undisturbed, tmp_path):
    shutil.copytree(undisturbed, tmp_path / "run", ignore=shutil.ignore_patterns("eval"))
    (tmp_path / "run" / "eval").symlink_to("/sys")
    result = run("eval.py", tmp_path / "run", "--decode.beam-size", 1)
    assert result.returncode == 0, result.stderr
    assert "BLEU" in result.stdout and "chrF2" in result.stdout
    [warning] = result.stderr.splitlines()
    assert warning.startswith("warning: translations and scores were not kept: cannot write to")
    assert f"{tmp_path / 'run' / 'eval'} (" in warning


def test_other_settings_of_the_search_go_to_other_files():
    """Those of speed alone do not; what is as by default is left out, but beam and alpha."""
    others = {
        "beam_size": 5, "alpha": 1.0, "normalisation": "length", "stop": "full",
        "max_extra_length": 9, "max_length": 9, "forced_end": True, "forbidden": (9, 12),
        "renormalise": True, "min_length": 3, "no_repeat_ngram": 2, "repetition_penalty": 1.2,
        "max_source_length": 99, "term_bonus": 2.0, "shortlist": 8, "frequent": 9,
        "dtype": "bfloat16",
    }  # fmt: skip
    assert {*others, "batch_sentences", *DERIVED_FROM_PAIRS} == set(vars(DecodeConfig()))
    changed = [DecodeConfig(**{name: value}) for name, value in others.items()]
    names = [search_name(settings) for settings in [DecodeConfig(), *changed]]
    assert len(set(names)) == len(names)
    assert names[0] == search_name(DecodeConfig(batch_sentences=7)) == "beam4-alpha0.6"
    assert names[-1] == "beam4-alpha0.6-bfloat16"
    for name in names:
        assert Path(name).name == name and len(name) < 30


def test_translate_gives_a_line_for_every_line(undisturbed):
    source = "the old dog\n\n   \nred cat\r\n" + "cat sees dog " * 40 + "\nold\u2028dog\nno newline"
    result = run("translate.py", undisturbed, "--decode.beam-size", 1, stdin=source)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.split("\n")
    assert lines.pop() == ""
    assert len(lines) == len(source.split("\n"))
    assert lines[1:3] == ["", "   "] and lines[5].count("\u2028") == 1


@pytest.mark.slow
def test_translate_of_nothing_is_nothing(undisturbed):
    result = run("translate.py", undisturbed, stdin="")
    assert result.returncode == 0, result.stderr
    assert result.stdout == ""
