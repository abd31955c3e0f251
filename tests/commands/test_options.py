"""What the commands can be asked beyond their main work, on a finished run."""

import json
import shutil

import numpy as np
import pytest
from small_run import run

from transformer.commands import shortlist
from transformer.decoding.shortlist import FILE, Lexicon, save_lexicon
from transformer.model.batch import EOS, PAD

SENTENCES = ["the old dog", "", "cat sees dog", "red cat likes old dog"]
TEXT = "".join(f"{line}\n" for line in SENTENCES)


def said(*words, stdin=""):
    result = run(*words, stdin=stdin)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def plain(undisturbed):
    return said("translate.py", undisturbed, stdin=TEXT).splitlines()


def test_lists_of_the_best_begin_with_the_translation(undisturbed, plain):
    words = ["translate.py", undisturbed, "--nbest", 2, "--alignments", "--on-error", "skip"]
    answers = said(*words, stdin=TEXT.encode() + b"\xff\n").decode().splitlines()
    *rows, missing = [line.split(" ||| ") for line in answers]
    assert missing == ["4", "", "-inf", ""]
    best = {int(number): text for number, text, *_ in reversed(rows)}
    assert [best[number].strip() for number in range(4)] == [line.strip() for line in plain]
    scores = [float(row[2]) for row in rows if row[0] == "3"]
    assert len(scores) == 2 and scores == sorted(scores, reverse=True)
    links = [tuple(map(int, link.split("-"))) for link in rows[-1][3].split()]
    assert links and max(source for source, _ in links) < len(SENTENCES[3].split())


@pytest.mark.slow
def test_an_ensemble_of_a_run_and_itself_is_that_run(undisturbed, plain):
    ensemble = said("translate.py", undisturbed, "--ensemble", undisturbed, stdin=TEXT)
    assert ensemble.splitlines() == plain
    alone = said("eval.py", undisturbed)
    both = said("eval.py", undisturbed, "--ensemble", undisturbed)
    assert {line for line in alone.splitlines() if line.startswith("BLEU")} <= {*both.splitlines()}
    assert "perplexity" in alone and "perplexity" not in both
    assert f"-with-{undisturbed.name}.json" in both


@pytest.mark.slow
def test_a_shortlist_is_made_and_used(undisturbed, plain, tmp_path, capsys):
    run = shutil.copytree(undisturbed, tmp_path / "run")
    shortlist.main([str(run)])
    shown = capsys.readouterr().out
    assert "shortlist.npz: translations of" in shown and "of 12 of the validation set" in shown
    assert "--decode.shortlist     32  " in shown and "target tokens occur" in shown
    # It is used: with EOS and one more token, there is nothing but this one.
    with np.load(run / FILE) as file:
        lexicon = Lexicon(**file)
    lexicon = Lexicon(np.full_like(lexicon.likely, PAD), np.array([EOS, 5, 6, 7], np.int32))
    with (run / FILE).open("wb") as file:
        save_lexicon(file, lexicon)
    found = said("translate.py", run, "--decode.shortlist", 1, stdin=TEXT).splitlines()
    assert [bool(line) for line in found] == [bool(line) for line in plain]
    assert len({piece for line in found for piece in line.replace(" ", "")}) == 1
    assert "BLEU" in said("eval.py", run, "--decode.frequent", 2)


def test_what_is_translated_is_scored_alike(undisturbed, plain):
    asked = "".join(json.dumps({"text": line, "id": n}) + "\n" for n, line in enumerate(SENTENCES))
    said("eval.py", undisturbed, "--split", "validation", "--confidence", "--decode.beam-size", 1)
    assert 0 < json.loads((undisturbed / "confidence.json").read_text())["temperature"] < 10
    form = ["--input", "json", "--output", "json"]
    answers = said("translate.py", undisturbed, *form, stdin=asked)
    found = [json.loads(line) for line in answers.splitlines()]
    assert [one["translation"] for one in found] == plain
    assert [one["id"] for one in found] == [0, 1, 2, 3]
    sure = said("translate.py", undisturbed, *form, "--confidence", stdin=asked)
    for line, words in zip(plain, (json.loads(one)["words"] for one in sure.splitlines())):
        assert [word for word, _ in words] == line.split()
        assert all(0 <= confidence <= 1 for _, confidence in words)
    scored = said("translate.py", undisturbed, *form, "--score", stdin=answers)
    for line, again in zip(SENTENCES, map(json.loads, scored.splitlines())):
        assert "score" not in again  # of the search
        if line:
            assert sum(again["log_probs"]) == pytest.approx(again["log_prob"], abs=1e-4)
    assert json.loads(scored.splitlines()[1])["log_prob"] is None  # a blank source
    pairs = "\tKatze\ncat\tKatze\n"
    lines = said("translate.py", undisturbed, "--score", "--input", "tsv", stdin=pairs).splitlines()
    assert lines[0] == "-inf\t-inf" and float(lines[1].split("\t")[0]) < 0


@pytest.mark.slow
def test_eval_compares_looks_closer_and_shows_what_it_kept(config, undisturbed):
    valid = [str(config.parent / f"valid.{side}") for side in ("en", "de")]
    train = [str(config.parent / f"train.{side}") for side in ("en", "de")]
    shown = said(
        "eval.py", undisturbed, "--test-files", *valid, *train, "--details", 1, "--lowercased",
        "--compare", f"{undisturbed}:20", "--checkpoint", 20, "--decode.beam-size", 1,
        "--confidence",
    )  # fmt: skip
    assert "12 sentences" in shown and "300 sentences" in shown
    for words in ("BLEU of lower-cased text", "worst, chrF2++", "best, chrF2++", "length of the"):
        assert shown.count(words) == 2, words
    assert shown.count("no significant difference on this test set") == 10
    assert "step 20, beam 1, alpha 0.6" in shown
    assert shown.count("expected calibration error") == 2
    several = said(
        "eval.py", undisturbed, "--references", valid[1], valid[1], "--checkpoint", 20,
        "--bleu-tokenizer", "char", "--decode.beam-size", 1, "--compare", undisturbed,
        "--perturb", "upper_case", "typos",
    )  # fmt: skip
    assert several.count("nrefs:2") == 30 and several.count("tok:char") == 6
    *_, head, plain, upper, typos = several.splitlines()
    assert head.split()[:2] == ["BLEU", "chrF2"] and ", upper_case " in upper
    assert ", typos " in typos and len(plain) == len(upper) == len(typos) == len(head)
    assert "references have 4 words" in shown and "references have 4 words" not in several
    scores = said("eval.py", undisturbed, "--scores")
    for words in ("| valid-20-beam1", "| train-20-beam1", "chrF2++", "perplexity"):
        assert words in scores, words
    kept = json.loads(next((undisturbed / "eval").glob("train-20-beam1*.json")).read_text())
    assert {one["verdict"] for one in kept["compared"]["metrics"]} == {
        "no significant difference on this test set"
    }


def test_the_doctor_reads_the_corpus_and_changes_nothing(config, tmp_path):
    folder = tmp_path / "run"
    shown = said("train.py", config, "--run", folder, "--doctor")
    assert "300 pairs read" in shown and "the same pair again" in shown
    assert "target: " in shown and "padding: " in shown
    assert not folder.exists()
