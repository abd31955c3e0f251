"""`eval.py RUN --report` for each kind of run, and what is wrong with it said at once."""

import shutil

import pytest
from small_run import run

pytestmark = pytest.mark.slow

pytest.importorskip("matplotlib", reason="needs the extra `viewing`")
pytest.importorskip("jinja2", reason="needs the extra `viewing`")


def test_a_translators_report_shows_two_runs_and_the_wanted_sentence(undisturbed, family):
    beside = family("language")
    result = run("eval.py", undisturbed, "--report", "--beside", beside, "--sentences", "old <cat>")
    assert result.returncode == 0, result.stderr
    assert f"report in {undisturbed / 'report.html'}" in result.stdout
    page = (undisturbed / "report.html").read_text(encoding="utf-8")
    for shown in ("chrF2++", "core-hours", f">{beside}<", "pairs read", "old \\u003ccat\\u003e"):
        assert shown in page, shown


@pytest.mark.parametrize("kind", ["language", "masked", "classes"])
def test_the_others_have_one_too(family, kind):
    result = run("eval.py", family(kind), "--report")
    assert result.returncode == 0, result.stderr
    page = (family(kind) / "report.html").read_text(encoding="utf-8")
    assert "perplexity" in page and 'id="examples"' in page and "chrF" not in page


def test_where_the_data_are_gone_the_rest_is_shown(undisturbed, tmp_path):
    config, copied = (undisturbed / "config.json").read_text(), tmp_path / "copied"
    shutil.copytree(undisturbed, copied)
    (copied / "config.json").write_text(config.replace("train.en", "gone.en"))
    (copied / "metrics.jsonl").write_text('{"step": 1, "seconds": 1, "loss": [1]}\n[[[\n')
    (copied / "starts.jsonl").unlink()
    result = run("eval.py", copied, "--report")
    assert result.returncode == 0, result.stderr
    page = (copied / "report.html").read_text(encoding="utf-8")
    assert "the data cannot be read" in page and "gone.en" in page


@pytest.mark.parametrize(
    "words, said",
    [
        (["--beside", "runs/other"], "--beside has no effect without --report"),
        (["--sentences", "a"], "--sentences has no effect without --report"),
        (["--report", "--beside", "runs/none"], "runs/none"),
        (["--report", "--scores"], "remove one of them"),
        (["--report", "--sentences", ""], "--sentences: '' has 0 tokens"),
    ],
)
def test_mistakes_are_told(undisturbed, words, said):
    result = run("eval.py", undisturbed, *words)
    assert result.returncode == 2 and said in result.stderr
    assert "Traceback" not in result.stderr
