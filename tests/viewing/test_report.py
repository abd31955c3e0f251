"""The report: what it marks and shows is what was found, and no text in it becomes markup."""

import json
import re
from html.parser import HTMLParser

import pytest

pytest.importorskip("matplotlib", reason="needs the extra `viewing`")
pytest.importorskip("jinja2", reason="needs the extra `viewing`")

from tests.viewing.small_report import METRICS, NASTY, PAIRS
from transformer.data.test_sets import TestSet
from transformer.errors import UserError
from transformer.runs.folder import Launch
from transformer.viewing.plots import INK, curves
from transformer.viewing.report import (
    ReportData,
    attention_examples,
    check_sentences,
    costs,
    differences,
    unit_hours,
)

pytestmark = pytest.mark.slow  # needs an extra

LONG = "cat " * 61


class Texts(HTMLParser):
    """The texts of a page, and its elements."""

    def __init__(self, page):
        super().__init__()
        self.texts, self.elements, self.attributes = [], [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.elements.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.texts.append(data)


@pytest.fixture(scope="module")
def page(report):
    return report.read_text(encoding="utf-8")


def test_nothing_that_was_read_becomes_markup(page):
    read = Texts(page)
    assert "b" not in read.elements
    assert read.elements.count("script") == 2
    assert NASTY in read.texts  # the heading
    assert not [text for text in read.texts if "49 <end>" in text]


def test_it_needs_nothing_from_elsewhere(page):
    links = [value for name, value in Texts(page).attributes if name in ("src", "href")]
    assert all(value.startswith(("data:", "#")) for value in links)
    namespaces = {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    addresses = set(re.findall(r"https?://[^\s\"'<)]+", page))
    assert {one for one in addresses if "w3.org" not in one} == set(), addresses - namespaces


def test_scores_and_costs_are_shown(page):
    shown = " ".join(" ".join(Texts(page).texts).split())
    for part in ("BLEU", "chrF2++", "nrefs:1|bs:1000|seed:12345|case:mixed", "1.5", "12,345"):
        assert part in shown, part
    assert "20 in 0.1 minutes" in shown and "about 700" in shown
    assert "core-hours 0.005 (a processor)" in shown  # 9 seconds of 2 cores
    assert "5e-05 kWh, assuming 10 W for a core; not measured" in shown
    assert "11 of 12 translations are the reference word for word" in shown
    assert "0.50 to 0.80" in shown and "1,234" in shown and "25.6 %" in shown


def test_the_maps_are_those_of_the_sentences(page, models):
    config, params, tokenizers = models["translator"]
    text = page.partition('id="examples">')[2].partition("</script>")[0]
    found = json.loads(text)
    assert [one["source"] for one in found] == ["the cat", NASTY]
    [expected] = attention_examples(
        config, params, tokenizers, (TestSet("x", "x", PAIRS), {}, []), ["the cat"]
    )
    assert found[0]["target"] == expected.target
    for one, of in zip(found[0]["maps"], expected.maps):
        assert one["kind"] == of.kind and one["rows"] == list(of.rows)
        assert one["weights"] == of.weights.round(3).tolist()


def test_without_a_choice_typical_sentences_are_shown(models):
    for kind in ("translator", "language model", "masked model", "classifier"):
        config, params, tokenizers = models[kind]
        pairs = {
            "translator": [("the cat", "a dog"), ("the", "a"), ("", ""), (LONG, "a")],
            "language model": [("", "the cat"), ("", "a dog sees"), ("", ""), ("", LONG)],
            "masked model": [("the cat", ""), ("a dog sees", ""), ("", ""), (LONG, "")],
            "classifier": [("the cat", "one"), ("a dog sees", "two"), (LONG, "two")],
        }[kind]
        outputs = ["a dog", "a", "", "a"] if kind == "translator" else None
        examples = attention_examples(
            config, params, tokenizers, (TestSet("x", "x", pairs), {}, outputs), []
        )
        texts = [source or target for source, target in pairs[:2]]
        assert {one.source for one in examples} == {*texts}
        assert [one.kind for one in examples[0].maps] == {
            "translator": ["encoder", "masked", "cross"],
            "language model": ["masked"],
            "masked model": ["encoder"],
            "classifier": ["encoder"],
        }[kind]


@pytest.mark.parametrize("sentences", [["the cat"] * 21, ["cat " * 61], ["the", ""]])
def test_sentences_whose_maps_nobody_could_see_are_refused(models, sentences):
    with pytest.raises(UserError, match="--sentences"):
        check_sentences(models["translator"][2], sentences)


def test_differences_lead_from_the_reference_to_the_output():
    found = list(differences("a b c d", "a x c d e"))
    assert found == [
        ("same", "a"), ("missing", "b"), ("added", "x"), ("same", "c d"), ("added", "e"),
    ]  # fmt: skip
    for reference, output in (("", "a"), ("a", ""), ("a b", "b a"), ("a", "a")):
        parts = list(differences(reference, output))
        assert " ".join(w for k, w in parts if k != "missing") == output
        assert " ".join(w for k, w in parts if k != "added") == reference


def test_a_curve_for_each_field_that_a_run_has():
    drawn = curves({"one": METRICS, "two": METRICS[:1]})
    labels = [re.search('aria-label="([^"]*)"', one)[1].partition(",")[0] for one in drawn]
    assert labels == [
        "Training loss",
        "Validation loss",
        "Validation BLEU",
        "Learning rate",
        "Speed",
    ]
    assert all(one.endswith("</svg>\n") and INK not in one for one in drawn)
    assert "currentColor" in drawn[0] and ">two<" in drawn[0] and ">two<" not in drawn[1]
    assert curves({"one": []}) == []


def test_runs_have_any_names():
    drawn = curves(dict.fromkeys(("_a", "$\\frac$", "$x^2$", "日本"), METRICS))
    for name in ("_a<", "$\\frac$<", "$x^2$<", "\u65e5\u672c<"):
        assert name in drawn[0], name


def test_costs_without_training_or_without_launches(models):
    config = models["translator"][0]
    data = ReportData("a", "last", config, 5, {"a": []}, [], [], [], [])
    assert list(costs(data)) == [("parameters", "5")]
    data = ReportData("a", "last", config, 5, {"a": METRICS}, [], [], [], [])
    assert "energy" not in dict(costs(data)) and "speed" in dict(costs(data))


def test_hours_are_those_of_each_launch_until_the_next():
    launches = [Launch(0, 0, "core", 2, "a"), Launch(9, 3600, "device", 4, "b")]
    assert unit_hours(launches, 5400) == {"core": 2.0, "device": 2.0}
    assert unit_hours([], 100) == {}
