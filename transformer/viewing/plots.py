"""Plots of what notebooks and reports show, on axes that the caller made (extra `viewing`)."""

from collections.abc import Callable, Mapping, Sequence

from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy import ndarray

from transformer.viewing.attention import AttentionMap
from transformer.viewing.beam import Beginning


def draw_weights(
    axes: Axes,
    weights: Float[ndarray, "T S"],
    rows: Sequence[str],
    columns: Sequence[str],
    title: str = "",
) -> None:
    """A table of weights as shades from 0 (white) to 1, with its rows and columns named."""
    axes.imshow(weights, cmap="Blues", vmin=0, vmax=1, aspect="equal")
    axes.set_xticks(range(len(columns)), columns, rotation=90)
    axes.set_yticks(range(len(rows)), rows)
    axes.tick_params(length=0)
    axes.set_title(title)


def draw_heads(figure: Figure, attention: AttentionMap, layer: int) -> None:
    """Every head of a layer, side by side; the layers count from 0, from the end if negative."""
    heads = attention.weights[layer]
    every = figure.subplots(1, len(heads), sharey=True, squeeze=False)[0]
    for number, (axes, weights) in enumerate(zip(every, heads), start=1):
        title = f"{attention.kind}, layer {range(len(attention.weights))[layer] + 1}, head {number}"
        draw_weights(axes, weights, attention.rows, attention.columns, title)


def draw_beam(
    axes: Axes, steps: Sequence[Sequence[Beginning]], names: Callable[[int], str], found: tuple
) -> None:
    """A beam search as a tree: a column for each step, the likeliest beginning on top, a line from
    what each goes on from; `found`, the tokens that were chosen in the end, in colour."""
    places = {(): (-1, 0.0)}
    for depth, kept in enumerate(steps):
        for rank, (tokens, _) in enumerate(kept):
            x, y = places[tokens] = depth, -float(rank)
            chosen = tokens == found[: len(tokens)]
            colour, weight = ("tab:blue", "bold") if chosen else ("grey", "normal")
            before = places[tokens[:-1]]
            axes.plot([before[0], x], [before[1], y], color=colour, linewidth=0.8, zorder=1)
            style = {"color": colour, "weight": weight, "ha": "center", "va": "center"}
            axes.text(
                x, y, names(tokens[-1]), **style, bbox={"fc": "white", "ec": "none", "pad": 1}
            )
    axes.set_xlim(-1, len(steps))
    axes.set_ylim(-max(map(len, steps), default=1), 1)
    axes.axis("off")


def draw_runs(
    axes: Axes, runs: Mapping[str, Sequence[dict]], field: str, title: str = "", unit: str = ""
) -> None:
    """A field of the metrics of one or several runs against the number of updates."""
    for name, lines in runs.items():
        found = [(line["step"], line[field]) for line in lines if line.get(field) is not None]
        shown = f" {name}" if name.startswith("_") else name  # or it has no place in the legend
        if found:
            axes.plot(*zip(*found), label=shown, marker="o" if len(found) < 20 else "")
    axes.set(xlabel="update", ylabel=unit, title=title or field)
    if len(runs) > 1:
        for text in axes.legend().get_texts():
            text.set_parse_math(False)  # a "$" is a "$"
