"""The three commands one after the other, as the README has them."""

import json

from small_run import run


def test_training_reports_validates_and_keeps_everything_in_its_folder(undisturbed):
    lines = [json.loads(line) for line in (undisturbed / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "loss" in line] == list(range(5, 41, 5))
    assert [line["step"] for line in lines if "validation_bleu" in line] == list(range(5, 41, 5))
    assert lines[-2]["loss"] < lines[0]["loss"]
    assert (undisturbed / "config.json").exists()
    assert (undisturbed / "tokenizer" / "source.model").exists()


def test_the_same_command_on_a_finished_run_changes_nothing(config, undisturbed):
    before = (undisturbed / "metrics.jsonl").read_text()
    result = run("train.py", config, "--run", undisturbed)
    assert result.returncode == 0, result.stderr
    assert "40 of 40 done" in result.stdout
    assert (undisturbed / "metrics.jsonl").read_text() == before


def test_another_config_for_the_same_folder_is_refused_by_field(config, undisturbed):
    result = run("train.py", config, "--run", undisturbed, "--model.d-ff", 64)
    assert result.returncode == 2
    assert "model.d_ff is 32 there, 64 here" in result.stderr
    assert "Traceback" not in result.stderr


def test_eval_prints_signed_scores_and_keeps_one_line_a_sentence(undisturbed):
    result = run("eval.py", undisturbed, "--checkpoint", "average")
    assert result.returncode == 0, result.stderr
    for words in ("BLEU", "chrF2", "nrefs:1", "interval", "12 sentences", "en to de"):
        assert words in result.stdout, words
    hypotheses = (undisturbed / "eval" / "test-average-beam2-alpha0.6.de").read_text().splitlines()
    record = json.loads((undisturbed / "eval" / "test-average-beam2-alpha0.6.json").read_text())
    assert len(hypotheses) == record["sentences"] == 12


def test_translate_gives_a_line_for_every_line(undisturbed):
    source = "the old dog\n\n   \nred cat\r\n" + "cat sees dog " * 40 + "\nold\u2028dog\nno newline"
    result = run("translate.py", undisturbed, "--decode.beam-size", 1, stdin=source)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.split("\n")
    assert lines.pop() == ""
    assert len(lines) == len(source.split("\n"))
    assert lines[1] == lines[2] == ""


def test_translate_of_nothing_is_nothing(undisturbed):
    result = run("translate.py", undisturbed, stdin="")
    assert result.returncode == 0, result.stderr
    assert result.stdout == ""
