"""What the doctor finds in a corpus that has every illness once, or as often as is said here."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from sentences import SENTENCES

from transformer.config import DataConfig
from transformer.data.buckets import make_plan
from transformer.data.doctor import examine, histogram, token_lines
from transformer.data.token_store import encoded
from transformer.data.tokenizer import train_tokenizer
from transformer.data.vocabularies import Tokenizers

HEALTHY = [(f"{line} ({n})", f"ja, {line} {n}") for n, line in enumerate(SENTENCES)]
ILL = [
    ("", "nothing"),
    ("something", "   "),
    HEALTHY[3],
    (HEALTHY[4][0] + "  ", HEALTHY[4][1]),  # blanks are no difference
    ("a name", "a name"),
    ("a sentence that is much longer than the other", "short"),
    ("bad \x07 sign", "schlecht"),
    ("lost \ufffd sign", "verloren"),
    ("\ufeffmark of another file", "Zeichen einer anderen Datei"),
    ("\u043f\u0440\u0438\u0432\u0435\u0442", "guten Tag"),
]
EXPECTED = {
    "one side empty": 2,
    "the same pair again": 2,
    "source equal to target": 1,
    "unusual length ratio (factor 3)": 1,
    "cut into subwords": 0,
    "tokenised or escaped": 0,
    "control or unassigned characters": 3,
    "another script than most": 1,
    "pair also in validation": 2,
    "source also in validation": 1,
    "pair also in test": 0,
    "source also in test": 0,
}


@pytest.fixture(scope="module")
def report():
    others = {
        "validation": [HEALTHY[0], ILL[4], (HEALTHY[7][0], "another translation")],
        "test": [("unseen", "ungesehen")],
    }
    return examine(DataConfig(), HEALTHY + ILL, others)


@pytest.mark.parametrize("name", EXPECTED)
def test_every_illness_is_counted(report, name):
    found = report.findings[name]
    assert found.count == EXPECTED[name]
    assert len(found.examples) == min(3, found.count)


def test_nothing_else_is_found_and_lines_are_named(report):
    assert report.findings.keys() == set(EXPECTED)
    assert report.pairs == len(HEALTHY + ILL)
    text = "\n".join(report.lines())
    assert f"pair {len(HEALTHY) + 5}: 'a name | a name'" in text
    assert "U+0007" in text and "source: " in text and "target: " in text


def test_lengths_are_compared_with_what_is_usual_in_the_corpus():
    """Half of the good pairs of Chinese and English were found to differ."""
    chinese = ["\u732b" * n for n in range(8, 40)]
    english = ["a" * round(n * 3.6) for n in range(8, 40)]
    english[9], chinese[20] = "b" * 200, "\u72d7" * 5
    for pairs in (zip(chinese, english), zip(english, chinese)):
        found = examine(DataConfig(), pairs, {}).findings["unusual length ratio (factor 3)"]
        assert found.count == 2 and found.examples[0].startswith("pair 10: ")


def test_lines_that_do_not_belong_together_are_reported():
    lines = [" ".join(SENTENCES[: n % 7 + 1]) for n in range(400)]
    assert "seem" not in "\n".join(examine(DataConfig(), zip(lines, lines), {}).lines())
    shifted = examine(DataConfig(), itertools.pairwise(lines), {})
    assert "seem to be 1 line further up" in "\n".join(shifted.lines())


def test_text_of_one_side_has_no_other_side(report):
    data = DataConfig(source="")
    found = examine(data, [("", "a dog"), ("", ""), ("", "a dog")], {"test": [("", "a dog")]})
    counts = {name: finding.count for name, finding in found.findings.items()}
    assert counts["one side empty"] == 1 and counts["the same pair again"] == 1
    assert counts["pair also in test"] == 2
    assert not any(name.startswith("source ") for name in counts)


def test_tokens_are_counted_and_tried_in_both_directions():
    tokenizer = train_tokenizer(SENTENCES, "char", 30)
    data = DataConfig(max_length=40, batch_tokens=400)
    pairs = [*HEALTHY[:20], ("the \u732b", "the cat"), ("a " * 60, "long")]
    tokens = encoded(data, Tokenizers(tokenizer, tokenizer), pairs)
    plan = make_plan(tokens, data)
    lines = list(token_lines(data, Tokenizers(tokenizer, tokenizer), tokens, plan, pairs))
    assert lines[0].startswith(f"{plan.left_out} of 22 pairs are left out")
    [source] = [line for line in lines if line.startswith("source: ")]
    unknown = sum(row.count(3) for row in tokenizer.encode([text for text, _ in pairs]))
    assert f" {unknown:,} unknown tokens" in source and unknown > 0
    assert "change when they are encoded and decoded, such as" in source
    texts = [*SENTENCES, "(0123456789)"]
    lower = train_tokenizer(texts, "char", 60, replace(data, lowercase=True))
    both = Tokenizers(lower, lower)
    capitals = [(source.upper(), target) for source, target in HEALTHY[:20]]
    lines = list(token_lines(replace(data, lowercase=True), both, tokens, plan, capitals))
    assert "; 0 of 20 sentences change" in next(line for line in lines if "source: " in line)
    padding = f"padding: {plan.padding():.1%} of all positions"
    assert lines[-1] == f"{padding}, in {len(plan.buckets)} batch shapes"


def test_the_histogram_has_all_sentences():
    lines = list(histogram("source", np.array([1, 1, 5, 6, 7, 900])))
    assert [int(line.split("#")[0].split()[-1]) for line in lines[1:]] == [2, 3, 1]
    assert lines[2].count("#") == 40
