"""Widgets: the numbers of the model, in a page that nothing around it can change."""

import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest

pytest.importorskip("jinja2", reason="needs the extra `viewing`")

from tests.viewing.small_report import NASTY
from transformer.data.tokenizer import train_tokenizer
from transformer.viewing.attention import AttentionMap
from transformer.viewing.beam import PartialHypothesis
from transformer.viewing.widgets import attention_widget, beam_widget

pytestmark = pytest.mark.slow  # needs an extra


class Frames(HTMLParser):
    """The pages of the iframes in an output."""

    def __init__(self, output):
        super().__init__()
        self.pages, self.others = [], []
        self.feed(output)

    def handle_starttag(self, tag, attrs):
        if tag == "iframe":
            self.pages.append(dict(attrs)["srcdoc"])
        else:
            self.others.append(tag)


def data_of(widget):
    """The data in the page that a browser displays."""
    frames = Frames(widget._repr_html_())
    assert frames.others == []
    [page] = frames.pages
    return json.loads(re.search('id="data">(.*?)</script>', page)[1])


def test_an_attention_widget_has_the_weights_of_each_model():
    weights = np.random.default_rng(0).dirichlet(np.ones(3), (2, 4, 5))
    one = AttentionMap("cross", weights, ("a", "b", "c", NASTY, "e"), ("x", NASTY, "z"))
    other = one._replace(kind="encoder", weights=weights[:1])
    found = data_of(attention_widget({"early": [one], NASTY: [other, one]}))
    assert [model["name"] for model in found] == ["early", NASTY]
    assert [[one["kind"] for one in model["maps"]] for model in found] == [
        ["cross"],
        ["encoder", "cross"],
    ]
    np.testing.assert_allclose(found[1]["maps"][1]["weights"], weights, atol=5e-4)
    assert found[0]["maps"][0]["rows"] == list(one.rows)


def test_a_beam_widget_has_every_hypothesis_and_the_one_that_it_continues():
    tokenizer = train_tokenizer(["the cat sees a dog"] * 3, "word", 12)
    [[the, cat, sees, a, dog]] = tokenizer.encode(["the cat sees a dog"])
    hypotheses = [
        [((the,), 0.6), ((a,), 0.3)],
        [((a, dog), 0.3), ((the, cat), 0.2), ((the, dog), 0.1)],
        [((the, cat, sees), 0.1), ((a, dog, sees), 0.05)],
    ]
    steps = [
        [PartialHypothesis(tokens, np.log(probability)) for tokens, probability in step]
        for step in hypotheses
    ]
    found = data_of(beam_widget(steps, tokenizer, (the, cat, sees)))
    assert [[one["from"] for one in step] for step in found] == [[None] * 2, [2, 1, 1], [2, 1]]
    assert [[one["chosen"] for one in step].index(True) for step in found] == [0, 1, 0]
    for step, given in zip(found, hypotheses):
        texts = [one["before"] + one["token"] for one in step]
        assert texts == tokenizer.decode([list(tokens) for tokens, _ in given])
        np.testing.assert_allclose([one["probability"] for one in step], [p for _, p in given])
