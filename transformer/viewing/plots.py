"""Plots for notebooks and the report, on axes that the caller made (extra `viewing`)."""

import io
import re
import warnings
from collections.abc import Callable, Mapping, Sequence

import matplotlib
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy import ndarray

from transformer.evaluation.scores import METRICS
from transformer.viewing.attention import BEGIN, AttentionMap
from transformer.viewing.beam import PartialHypothesis

CURVES = {
    "loss": ("Training loss", "nats per token"),
    "validation_loss": ("Validation loss", "nats per token"),
    **{
        f"validation_{name}": (f"Validation {metric.label}", metric.label)
        for name, metric in METRICS.items()
    },
    "validation_accuracy": ("Validation accuracy", "share of the tokens"),
    "learning_rate": ("Learning rate", ""),
    "gradient_norm": ("Gradient norm", ""),
    "tokens_per_second": ("Speed", "tokens per second"),
}
"""Fields of metrics.jsonl that are plotted, each with title and unit."""

INK = "#0a0b0c"
"""A colour that occurs nowhere else: the page replaces it with the colour of its text."""

STYLE = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    **dict.fromkeys(
        ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK
    ),
    "legend.framealpha": 0,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def draw_weights(
    axes: Axes,
    weights: Float[ndarray, "T S"],
    rows: Sequence[str],
    columns: Sequence[str],
    title: str = "",
) -> None:
    """A table of weights as shades from 0 (white) to 1, with its rows and columns named."""
    axes.imshow(weights, cmap="Blues", vmin=0, vmax=1, aspect="equal")
    rotation = 90 if any(len(str(name)) > 2 for name in columns) else 0
    axes.set_xticks(range(len(columns)), columns, rotation=rotation)
    axes.set_yticks(range(len(rows)), rows)
    axes.tick_params(length=0)
    axes.set_title(title)


def draw_heads(figure: Figure, attention: AttentionMap, layer: int) -> None:
    """Every head of a layer, side by side; layers count from 0, from the last one if negative."""
    heads = attention.weights[layer]
    subplots = figure.subplots(1, len(heads), sharey=True, squeeze=False)[0]
    for number, (axes, weights) in enumerate(zip(subplots, heads), start=1):
        title = f"{attention.kind}, layer {range(len(attention.weights))[layer] + 1}, head {number}"
        draw_weights(axes, weights, attention.rows, attention.columns, title)


def draw_beam(
    axes: Axes,
    steps: Sequence[Sequence[PartialHypothesis]],
    names: Callable[[int], str],
    found: tuple,
) -> None:
    """A beam search as a tree: a column for each step, the likeliest hypothesis on top, lines to
    its continuations; `found`, the tokens of the translation, in colour."""
    places: dict[tuple[int, ...], tuple[int, float]] = {(): (-1, 0.0)}
    box = {"fc": "white", "ec": "none", "pad": 1}
    axes.text(-1, 0, BEGIN, color="tab:blue", ha="center", va="center", bbox=box)
    for depth, hypotheses in enumerate(steps):
        for rank, (tokens, _) in enumerate(hypotheses):
            x, y = places[tokens] = depth, -float(rank)
            chosen = tokens == found[: len(tokens)]
            colour, weight = ("tab:blue", "bold") if chosen else ("dimgrey", "normal")
            before = places[tokens[:-1]]
            axes.plot([before[0], x], [before[1], y], color=colour, linewidth=0.8, zorder=1)
            style = {"color": colour, "weight": weight, "ha": "center", "va": "center"}
            axes.text(x, y, names(tokens[-1]), **style, bbox=box)
    axes.set_xlim(-1.5, len(steps))
    axes.set_ylim(-max(map(len, steps), default=1), 1)
    axes.axis("off")


def draw_runs(
    axes: Axes, runs: Mapping[str, Sequence[dict]], field: str, title: str = "", unit: str = ""
) -> None:
    """A field of the metrics of one or several runs against the number of updates."""
    for name, lines in runs.items():
        points = [(line["step"], line[field]) for line in lines if line.get(field) is not None]
        label = f" {name}" if name.startswith("_") else name  # matplotlib hides labels with "_"
        if points:
            axes.plot(*zip(*points), label=label, marker="o" if len(points) < 20 else "")
    axes.set(xlabel="update", ylabel=unit, title=title or field)
    if len(runs) > 1:
        for text in axes.legend().get_texts():
            text.set_parse_math(False)  # a "$" is a "$"


def curves(runs: Mapping[str, Sequence[dict]]) -> list[str]:
    """An SVG element for each field of the metrics that any of the runs has."""
    found = []
    for field, (title, unit) in CURVES.items():
        if any(field in line for lines in runs.values() for line in lines):
            with matplotlib.rc_context(STYLE | {"svg.hashsalt": field}):
                figure = Figure(figsize=(5.2, 3), layout="constrained")
                draw_runs(figure.subplots(), runs, field, title, unit)
                found.append(as_svg(figure, f"{title}, by the number of updates"))
    return found


def as_svg(figure: Figure, label: str) -> str:
    """The figure as an element of an HTML page, with a label for screen readers."""
    file = io.StringIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # browsers have them
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    element = file.getvalue().partition("<svg")[2].replace(INK, "currentColor")
    element = re.sub(r"<metadata>.*?</metadata>", "", element, flags=re.DOTALL)
    return f'<svg role="img" aria-label="{label}"{element}'
