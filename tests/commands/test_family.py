"""Language model, masked model and classifier through the real commands."""

import json
import math
import os
import re
import shutil

import jax
import numpy as np
import pytest
from small_run import family_words, run
from test_resume import survives

from transformer.runs.checkpoints import load_params
from transformer.runs.folder import load_run_config

NUMBER = re.compile(r"-?[0-9]+\.[0-9]+")
KILLS = int(os.environ.get("KILLS", "1"))
"""How often each is killed; see test_resume."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["language", "masked", "classes"] if "KILLS" in os.environ else ["language"]
)
def test_killed_at_any_moment_it_ends_as_if_never_killed(config, family, tmp_path, kind):
    survives(KILLS, [config, *family_words(config.parent, kind)], family(kind), tmp_path)


@pytest.mark.parametrize("kind, unit", [
    ("language", "token"),
    pytest.param("masked", "token", marks=pytest.mark.slow),
    pytest.param("classes", "label", marks=pytest.mark.slow),
])  # fmt: skip
def test_it_is_scored_by_what_it_predicts(family, tmp_path, kind, unit):
    folder = shutil.copytree(family(kind), tmp_path / "run")
    scored = run("eval.py", folder)
    assert scored.returncode == 0, scored.stderr
    for word in (f"nats/{unit} ", f"{unit}s predicted", "perplexity", "accuracy", "95 % interval"):
        assert word in scored.stdout
    assert ("bits/byte" in scored.stdout) == (kind == "language")
    assert "12 labels predicted in 12 texts" in scored.stdout or kind != "classes"


@pytest.mark.parametrize("windows", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_bits_a_byte_are_the_nats_of_all_tokens_over_the_bytes_of_all_lines(
    config, family, tmp_path, windows
):
    folder = tmp_path / "run"
    if windows:
        words = [config, *family_words(config.parent, "language"), "--train.steps", 5]
        words += ["--data.windows", "--data.max-length", 20, "--run", folder]
        assert run("train.py", *words).returncode == 0
    else:
        shutil.copytree(family("language"), folder, ignore=shutil.ignore_patterns("eval"))
    lines = ["alt Katze", "", "Hund", "alt rot sieht Hund mag Katze"]
    text = tmp_path / "text.de"
    text.write_text("".join(f"{line}\n" for line in lines))
    scored = run("eval.py", folder, "--test-files", text)
    assert scored.returncode == 0, scored.stderr
    [path] = (folder / "eval").glob("*.json")
    found = {score["name"]: score["value"] for score in json.loads(path.read_text())["losses"]}
    # A token a character, and one for what every line begins with and one for its end: of an empty
    # line the end alone, which only a stream of lines has.
    tokens = sum(len(line) + 2 for line in lines if line) + windows
    assert f"{tokens} tokens predicted" in scored.stdout
    num_bytes = sum(len(line) + 1 for line in lines if line) + windows
    bits = found["nats/token"] * tokens / math.log(2)
    assert found["bits/byte"] == pytest.approx(bits / num_bytes)
    assert "unknown" not in scored.stdout
    text.write_text("alt Käse\n")
    assert "1 of them are unknown tokens" in run("eval.py", folder, "--test-files", text).stdout


@pytest.mark.parametrize("kind, line", [
    ("language", "die"),
    ("masked", "old __ sees cat"),
    pytest.param("classes", "old cat", marks=pytest.mark.slow),
])  # fmt: skip
def test_every_line_gets_its_lines(family, kind, line):
    words = ["--max-tokens", 5, "--samples", 2] if kind == "language" else []
    answered = run("generate.py", family(kind), *words, stdin=f"{line}\n\n{line}\n")
    assert answered.returncode == 0, answered.stderr
    assert answered.stdout.count("\n") == 3 * (2 if kind == "language" else 1)
    if kind == "language":
        assert answered.stdout.startswith("die")


@pytest.mark.slow
@pytest.mark.parametrize("kind, line, field", [
    ("language", "die", "continuations"), ("masked", "old __ sees cat", "blanks"),
    ("classes", "old cat", "classes"),
])  # fmt: skip
def test_objects_are_answered_by_objects(family, kind, line, field):
    """With the same that lines are answered by, and the fields that came."""
    words = ["--max-tokens", 5, "--samples", 2] if kind == "language" else []
    shown = ["--log-probs"] if kind == "language" else []
    plain = run("generate.py", family(kind), *words, *shown, stdin=f"{line}\n").stdout.splitlines()
    asked = json.dumps({"text": line, "id": 7}) + "\n"
    as_json = ["--input", "json", "--output", "json"]
    answered = run("generate.py", family(kind), *words, *as_json, stdin=asked * 2)
    assert answered.returncode == 0, answered.stderr
    first, second = map(json.loads, answered.stdout.splitlines())
    assert set(first) == {"text", "id", field} and (first["text"], second["id"]) == (line, 7)
    found = first[field]
    if kind == "language":
        shown = [f"{one['log_prob']:.3f}\t{one['text']}" for one in found]
    else:
        guesses = found[0] if kind == "masked" else found
        shown = [", ".join(f"{one['word']} {one['probability']:.3f}" for one in guesses)]
    # A batch of another size gives numbers that may differ in the last digit that is printed.
    assert [NUMBER.sub("", text) for text in shown] == [NUMBER.sub("", text) for text in plain]
    np.testing.assert_allclose(*(
        [float(number) for text in texts for number in NUMBER.findall(text)]
        for texts in (shown, plain)
    ), rtol=0, atol=1.1e-3)  # fmt: skip


@pytest.mark.slow
def test_a_classifier_begins_with_a_masked_models_encoder(config, family, tmp_path):
    still = ["--optimizer.scale", "1e-12", "--train.steps", 1]
    masked, first, second = family("masked"), tmp_path / "first", tmp_path / "second"
    words = ["train.py", config, *family_words(config.parent, "classes")[:6], "--data.target="]
    words += ["--data.label-column", 2, "--train.best-by", "accuracy", *still]
    begun = run(*words, "--run", first, "--from", masked)
    assert begun.returncode == 0 and "starts from the weights of" in begun.stdout, begun.stderr

    def params(folder):
        return load_params(folder, load_run_config(folder), "best")[0]

    def assert_same(ours, theirs):
        for name in ("encoder", "embedding"):
            jax.tree.map(
                lambda a, b: np.testing.assert_allclose(a, b, atol=1e-8),
                getattr(ours, name),
                getattr(theirs, name),
            )

    assert_same(params(first), params(masked))
    assert params(first).classifier.b.shape == (3,)

    # The same classes once more take their weights along; others begin anew.
    again = tmp_path / "again"
    assert run(*words, "--run", again, "--from", first).returncode == 0
    np.testing.assert_allclose(params(again).classifier.w, params(first).classifier.w, atol=1e-8)
    table = tmp_path / "numbers.tsv"
    table.write_text("old cat\t1\nred dog\t2\nold dog sees cat\t3\n" * 20)
    words += ["--data.train-files", table, "--data.validation-files", table]
    planned = run(*words, "--run", second, "--from", first, "--plan")
    assert planned.returncode == 0, planned.stderr
    examined = run(*words, "--run", second, "--from", first, "--doctor")
    assert examined.returncode == 0, examined.stderr
    tuned = run(*words, "--run", second, "--from", first)
    assert tuned.returncode == 0, tuned.stderr
    assert_same(params(second), params(masked))
    assert params(second).classifier.b.shape == (4,)
