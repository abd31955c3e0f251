"""Language model, masked model and classifier through the real commands, killed and resumed."""

import os
import shutil

import pytest
from small_run import run
from test_resume import assert_same_end, killed

KILLS = int(os.environ.get("KILLS", "1"))
"""How often each is killed; see test_resume."""


def lines_to_labels(source, table):
    """A table of sentences and whether they have an old cat in them."""
    lines = source.read_text().splitlines()
    table.write_text("".join(f"{line}\t{'cat' if 'cat' in line else 'none'}\n" for line in lines))
    return table


@pytest.fixture(params=["language model", "masked model", "classifier"])
def settings(request, config, shared, tmp_path):
    """The words that make the small run one of the family."""
    names = {"train": "train", "validation": "valid", "test": "valid"}
    if request.param == "language model":
        words = ["--model.encoder-layers", 0, "--data.source="]
        files = {split: shared / f"{name}.de" for split, name in names.items()}
        words += ["--train.best-by", "loss"]
    else:
        words = ["--model.decoder-layers", 0, "--data.target=", "--train.best-by", "accuracy"]
        files = {split: shared / f"{name}.en" for split, name in names.items()}
    if request.param == "classifier":
        words += ["--data.label-column", 2]
        files = {
            split: lines_to_labels(path, tmp_path / f"{split}.tsv") for split, path in files.items()
        }
    for split, path in files.items():
        words += [f"--data.{split}-files", path]
    return request.param, ["train.py", config, *words, "--data.vocab-size", 30]


def test_killed_at_any_moment_it_ends_as_if_never_killed(settings, tmp_path):
    kind, words = settings
    undisturbed, folder = tmp_path / "undisturbed", tmp_path / "killed"
    result = run(*words, "--run", undisturbed)
    assert result.returncode == 0, result.stderr
    print(kind, "killed at:", killed(words[1:], folder, KILLS))
    assert run(*words, "--run", folder).returncode == 0
    assert_same_end(folder, undisturbed)
    check_scores_and_answers(kind, folder)


def check_scores_and_answers(kind, folder):
    scored = run("eval.py", folder)
    assert scored.returncode == 0, scored.stderr
    for word in ("nats/token", "perplexity", "accuracy", "95 % interval"):
        assert word in scored.stdout
    assert ("bits/byte" in scored.stdout) == (kind == "language model")
    line = "old __ sees cat" if kind == "masked model" else "die"
    answered = run("generate.py", folder, "--max-tokens", 5, stdin=f"{line}\n\n{line}\n")
    assert answered.returncode == 0, answered.stderr
    assert answered.stdout.count("\n") == 3
    if kind == "language model":
        assert answered.stdout.startswith("die")
    refused = run("translate.py", folder, stdin="a\n")
    assert refused.returncode == 2 and "is no translator" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
    shutil.rmtree(folder)
