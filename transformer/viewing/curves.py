"""Curves of runs as SVG, in whatever colours the page around them has."""

import io
import re
import warnings
from collections.abc import Mapping, Sequence

import matplotlib
from matplotlib.figure import Figure

from transformer.evaluation.scores import METRICS
from transformer.viewing.plots import draw_runs

CURVES = {
    "loss": ("Loss of training", "nats a token"),
    "validation_loss": ("Loss of validation", "nats a token"),
    **{
        f"validation_{name}": (f"{metric.label} of validation, greedy", metric.label)
        for name, metric in METRICS.items()
    },
    "validation_accuracy": ("Accuracy of validation", "share of the tokens"),
    "learning_rate": ("Learning rate", ""),
    "gradient_norm": ("Norm of the gradient", ""),
    "tokens_per_second": ("Speed", "tokens a second"),
}
"""Fields of metrics.jsonl that are drawn, each with title and unit."""

INK = "#0a0b0c"
"""A colour that nothing else has: in its place comes that of the text around."""

STYLE = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.framealpha": 0,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def curves(runs: Mapping[str, Sequence[dict]]) -> list[str]:
    """An SVG element for each field of the metrics that any of the runs has."""
    drawn = []
    for field, (title, unit) in CURVES.items():
        if any(field in line for lines in runs.values() for line in lines):
            with matplotlib.rc_context(STYLE | {"svg.hashsalt": field}):
                figure = Figure(figsize=(5.2, 3), layout="constrained")
                draw_runs(figure.subplots(), runs, field, title, unit)
                drawn.append(as_svg(figure, f"{title}, by the number of updates"))
    return drawn


def as_svg(figure: Figure, label: str) -> str:
    """The figure as an element for an HTML page, with a text for those who do not see it."""
    file = io.StringIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # the browser has them
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    element = file.getvalue().partition("<svg")[2].replace(INK, "currentColor")
    element = re.sub(r"<metadata>.*?</metadata>", "", element, flags=re.DOTALL)
    return f'<svg role="img" aria-label="{label}"{element}'
