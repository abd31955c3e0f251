"""Notebooks: what is stored is made of the text beside it, ran from top to bottom, and installs
itself the same way everywhere."""

import json
import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("[0-9]*.py"))
BADGE = "[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]"


def cells_of_text(path):
    """Kind and source of each cell of a text in jupytext's percent format."""
    _, *cells = re.split(r"^# %%", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    for cell in cells:
        options, _, source = cell.partition("\n")
        if "[markdown]" in options:
            lines = [line.removeprefix("#").removeprefix(" ") for line in source.splitlines()]
            yield "markdown", "\n".join(lines).strip()
        else:
            yield "code", source.strip()


def cells_of_notebook(path):
    cells = json.loads(path.with_suffix(".ipynb").read_text(encoding="utf-8"))["cells"]
    return [(cell["cell_type"], "".join(cell["source"]).strip()) for cell in cells]


def names(path):
    return path.stem


def test_there_are_notebooks():
    assert [path.stem[:2] for path in NOTEBOOKS] == [
        f"{n:02}" for n in range(1, len(NOTEBOOKS) + 1)
    ]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=names)
def test_the_notebook_is_of_the_text_beside_it(path):
    assert cells_of_notebook(path) == list(cells_of_text(path)), "make notebooks"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=names)
def test_every_cell_ran_in_order_and_none_failed(path):
    cells = json.loads(path.with_suffix(".ipynb").read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell["outputs"]]
    assert outputs
    assert not [output for output in outputs if output["output_type"] == "error"]
    warnings = [o for o in outputs if o.get("name") == "stderr" and "Warning" in "".join(o["text"])]
    assert not warnings


@pytest.mark.parametrize("path", NOTEBOOKS, ids=names)
def test_every_notebook_opens_in_colab_and_installs_itself_alike(path):
    (_, title), (kind, install), *_ = cells_of_text(path)
    assert title.startswith("# ")
    assert BADGE in title
    assert kind == "code"
    assert install == list(cells_of_text(NOTEBOOKS[0]))[1][1]
