"""Plots show what they are given."""

import numpy as np
import pytest

from transformer.viewing.attention import AttentionMap
from transformer.viewing.beam import PartialHypothesis

pytest.importorskip("matplotlib", reason="needs the extra `viewing`")

from matplotlib.figure import Figure

from transformer.viewing.plots import draw_beam, draw_heads, draw_runs, draw_weights

pytestmark = pytest.mark.slow  # needs an extra


def labels(ticks):
    return [tick.get_text() for tick in ticks]


def test_a_table_of_weights_has_its_numbers_and_names():
    axes = Figure().subplots()
    weights = np.array([[0.25, 0.75, 0], [1, 0, 0]])
    draw_weights(axes, weights, ["to", "go"], ["a", "b", "c"], "title")
    [image] = axes.get_images()
    np.testing.assert_array_equal(image.get_array(), weights)
    assert image.get_clim() == (0, 1)
    assert labels(axes.get_yticklabels()) == ["to", "go"]
    assert labels(axes.get_xticklabels()) == ["a", "b", "c"]
    assert axes.get_title() == "title"


def test_all_heads_of_the_layer_are_drawn():
    figure, generator = Figure(), np.random.default_rng(0)
    found = AttentionMap("cross", generator.random((2, 3, 2, 4)), ("x", "y"), ("a", "b", "c", "d"))
    draw_heads(figure, found, -1)
    assert len(figure.axes) == 3
    for axes, weights in zip(figure.axes, found.weights[1]):
        np.testing.assert_array_equal(axes.get_images()[0].get_array(), weights)


def test_a_beam_is_a_tree_with_what_was_found_in_colour():
    axes = Figure().subplots()
    steps = [
        [PartialHypothesis((4,), -0.1), PartialHypothesis((5,), -2.0)],
        [PartialHypothesis((5, 6), -2.1), PartialHypothesis((4, 7), -2.5)],
    ]
    draw_beam(axes, steps, {4: "a", 5: "b", 6: "c", 7: "d"}.get, (5, 6))
    texts = {text.get_text(): text for text in axes.texts}
    places = {name: text.get_position() for name, text in texts.items()}
    beginnings = {"<begin>": (-1, 0), "a": (0, 0), "b": (0, -1), "c": (1, 0), "d": (1, -1)}
    assert places == beginnings
    assert {name for name, text in texts.items() if text.get_color() == "tab:blue"} == {
        "<begin>",
        "b",
        "c",
    }
    edges = [line.get_xydata().tolist() for line in axes.get_lines()]
    assert [[0, -1], [1, 0]] in edges and [[0, 0], [1, -1]] in edges


def test_curves_leave_out_what_a_line_has_not():
    axes = Figure().subplots()
    lines = [{"step": 1, "loss": 3.0}, {"step": 2, "bleu": 1.0}, {"step": 3, "loss": 2.0}]
    draw_runs(axes, {"one": lines, "other": lines[:1], "none": []}, "loss", unit="nats")
    first, second = axes.get_lines()
    np.testing.assert_array_equal(first.get_xydata(), [[1, 3.0], [3, 2.0]])
    np.testing.assert_array_equal(second.get_xydata(), [[1, 3.0]])
    assert axes.get_ylabel() == "nats"
    assert labels(axes.get_legend().get_texts()) == ["one", "other"]
