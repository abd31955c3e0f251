"""A model of two target languages, in all commands: its tags are never lost."""

import json
import re

import pytest
from small_run import run

pytestmark = pytest.mark.slow

SENTENCES = ["old dog", "cat sees dog"]


@pytest.fixture(scope="module")
def many(config, finished):
    """A run that translates into German and English."""
    folder = config.parent

    def both(name):
        english, german = folder / f"{name}.en", folder / f"{name}.de"
        return [english, german, german, english]

    words = [config, "--data.targets", "de", "en", "--data.corpus-temperature", 5]
    for split, name in (("train", "train"), ("validation", "valid"), ("test", "valid")):
        words += [f"--data.{split}-files", *both(name)]
    return finished("many", *words)


def said(*words, stdin=""):
    result = run(*words, stdin=stdin)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_the_target_is_chosen_by_option_by_tag_and_by_json(many):
    text = "".join(f"{line}\n" for line in SENTENCES)
    tagged = "".join(f">>en<<{line}\n" for line in SENTENCES)
    asked = "".join(json.dumps({"text": one, "target": "eng"}) + "\n" for one in SENTENCES)
    english = said("translate.py", many, "--target", "en", stdin=text)
    assert english == said("translate.py", many, stdin=tagged)
    answers = said("translate.py", many, "--input", "json", "--output", "json", stdin=asked)
    found = [json.loads(line)["translation"] for line in answers.splitlines()]
    assert found == english.splitlines()
    said("translate.py", many, "--target", "de", stdin=text)
    refused = run("translate.py", many, "--target", "fr", stdin=text)
    assert refused.returncode == 2 and ">>de<< >>en<<" in refused.stderr
    untold = run("translate.py", many, stdin=text)
    assert untold.returncode == 0 and "a text has no target tag" in untold.stderr


@pytest.mark.parametrize("options", [[], ["--score"]], ids=["translated", "scored"])
def test_words_are_counted_without_the_tag_that_an_option_adds(many, options):
    """The translation is given, at least its beginning: such a small model finds none."""

    def links(*words, stdin):
        words = ["--alignments", "--input", "tsv", *options, *words]
        line = said("translate.py", many, *words, stdin=stdin).strip()
        found = re.findall(r"\b(\d+)-(\d+)\b", line)
        return {(int(source), int(target)) for source, target in found}

    typed = links(stdin=">>en<<alter Hund\told dog\n")
    own = {(source - 1, target) for source, target in typed if source > 0}
    assert own
    assert links("--target", "en", stdin="alter Hund\told dog\n") == own


def test_a_paragraph_keeps_its_target_in_each_sentence(many):
    pytest.importorskip("sentencex", reason="it is in the extra `documents`")
    both = said("translate.py", many, "--target", "en", stdin="Old dog.\nCat sees dog.\n")
    text = "Old dog.  Cat sees dog.\n"
    whole = said("translate.py", many, "--target", "en", "--input", "paragraphs", stdin=text)
    assert whole.split() == both.split()


def test_each_language_is_scored_by_itself(many):
    shown = said("eval.py", many, "--decode.beam-size", 1)
    assert "files test, de, en to de, 12 sentences" in shown
    assert "files test, en, en to en, 12 sentences" in shown
    names = {path.name for path in (many / "eval").iterdir()}
    assert {name for name in names if not name.endswith("json")} == {
        "test-de-best-beam1-alpha0.6-extra10.de", "test-en-best-beam1-alpha0.6-extra10.en",
    }  # fmt: skip


def test_exports_keep_all_targets_or_have_one(many, tmp_path):
    pytest.importorskip("ctranslate2", reason="it is in the extra `convert`")
    to_ctranslate2 = "convert.py", "to-ctranslate2", many
    for name, words in (("all", ()), ("en", ("--target", "en"))):
        shown = said(*to_ctranslate2, tmp_path / name, "--quantization", "none", *words)
        assert "translations are the same (100.0%)" in shown
        assert ("must begin with a target tag" in shown) == (name == "all")
    said("convert.py", "to-safetensors", many, tmp_path / "plain")
    said("convert.py", "from-safetensors", tmp_path / "plain", tmp_path / "again")
    again = said("translate.py", tmp_path / "again", "--target", "en", stdin="old dog\n")
    assert again == said("translate.py", many, "--target", "en", stdin="old dog\n")
