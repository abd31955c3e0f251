"""Widgets for notebooks: interactive also in stored outputs, where no Python runs.

A widget is a page in an iframe of its own, which shares no style or script with the notebook. Sites
that remove scripts from notebooks (GitHub) show the text instead.
"""

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from transformer.data.tokenizer import Tokenizer
from transformer.viewing.attention import AttentionMap, maps_with_lists
from transformer.viewing.beam import PartialHypothesis
from transformer.viewing.pages import as_json, render


@dataclass(frozen=True)
class Widget:
    """A page and the height in pixels at which it is displayed."""

    page: str
    height: int

    def _repr_html_(self) -> str:
        """Jupyter calls it."""
        return (
            f'<iframe srcdoc="{html.escape(self.page)}" width="100%" height="{self.height}" '
            'frameborder="0"></iframe>'
        )

    def __repr__(self) -> str:
        return "an interactive page: run the notebook, or read it in the documents' site"


def attention_widget(models: Mapping[str, Sequence[AttentionMap]]) -> Widget:
    """The attention maps of one sentence, two heads side by side: of any kinds, layers and models
    (or checkpoints of one model), which have names."""
    data = [{"name": name, "maps": maps_with_lists(maps)} for name, maps in models.items()]
    rows = max(len(one.rows) for maps in models.values() for one in maps)
    page = render("widget.html", {"script": "heads.js", "data": as_json(data)})
    return Widget(page, height=250 + 18 * rows)


def beam_widget(
    steps: Sequence[Sequence[PartialHypothesis]], tokenizer: Tokenizer, found: Sequence[int]
) -> Widget:
    """A beam search (`beam_steps`), one token at a time: the unfinished hypotheses, and which of
    the step before each continues; those that lead to the tokens `found` are marked."""
    ranks: dict[tuple[int, ...], int | None] = {(): None}
    data = []
    for step in steps:
        data.append([_row(tokenizer, one, ranks[one.tokens[:-1]], found) for one in step])
        ranks = {one.tokens: rank for rank, one in enumerate(step, start=1)}
    page = render("widget.html", {"script": "beam.js", "data": as_json(data)})
    return Widget(page, height=120 + 30 * max(map(len, steps), default=0))


def _row(
    tokenizer: Tokenizer, one: PartialHypothesis, rank: int | None, found: Sequence[int]
) -> dict:
    before, text = tokenizer.decode([list(one.tokens[:-1]), list(one.tokens)])
    return {
        "from": rank,
        "before": before,
        "token": text.removeprefix(before),
        "probability": float(np.exp(one.log_prob)),
        "chosen": tuple(found[: len(one.tokens)]) == one.tokens,
    }
