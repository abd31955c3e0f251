"""docs/paper_map.md: what it names is there (tests/test_links.py reads links to code as well)."""

import json
import re
from functools import cache
from pathlib import Path

import pytest

from tests.test_links import defined

FOLDER = Path(__file__).parents[1] / "docs"
MAP = (FOLDER / "paper_map.md").read_text(encoding="utf-8")
LINK = re.compile(r"\[([^\]]+)\]\(([^()\s]+)\)")


def table_rows(text):
    """The cells of the rows of all tables of a document, without the rows of headers."""
    lines = text.splitlines()
    return [
        tuple(cell.strip() for cell in line.strip("|").split("|"))
        for line, below in zip(lines, [*lines[1:], ""])
        if line.startswith("|") and not line.startswith("| ---") and not below.startswith("| ---")
    ]


def row_links(rows, kinds):
    """First cell, kind, text and target of each link, with the column of each kind of link."""
    return [
        (row[0], kind, text, target)
        for row in rows
        for kind, column in kinds.items()
        if column < len(row)
        for text, target in LINK.findall(row[column])
    ]


def is_links_or_dash(cell):
    return cell == "-" or (cell != "" and LINK.sub("", cell).strip(", ") == "")


ROWS = table_rows(MAP)
LINKS = row_links(ROWS, {"code": 1, "test": 2, "notebook": 3})


@cache
def headings(path):
    """Those of a notebook's text, without their #."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    text = "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
    return re.findall(r"^#{1,6} (.+)$", text, re.MULTILINE)


def fault(kind, text, target):
    """What is wrong with a link of a column, or None."""
    path = FOLDER / target
    if not path.is_file():
        return f"there is no {target}"
    if kind == "notebook":
        number, _, heading = text.partition(": ")
        if path.suffix != ".ipynb" or not path.name.startswith(f"{number}_"):
            return f"{target} is not notebook {number}"
        return None if heading in headings(path) else f"{path.name} has {headings(path)}"
    is_test = target.startswith("../tests/")
    if is_test != (kind == "test"):
        return f"{target} in the column of {kind}"
    [name] = re.findall(r"^`(\w+)`$", text) or [None]
    if name is None or (is_test and not name.startswith("test_")):
        return f"{text} is not a name"
    return None if name in defined(path) else f"{target} does not define {name}"


def test_every_row_has_four_cells_and_every_cell_links_or_a_dash():
    assert len(ROWS) > 50
    for row in ROWS:
        assert len(row) == 4, row
        assert all(map(is_links_or_dash, row[1:])), row
        assert set(row[1:]) != {"-"}, row


@pytest.mark.parametrize("number", ["1", "2", "3"])
def test_every_equation_with_a_number_is_in_the_first_table(number):
    first_table = MAP.partition("## Equations")[2].partition("## ")[0]
    [row] = [line for line in first_table.splitlines() if line.startswith(f"| ({number}) ")]
    code, test, notebook = row.strip("| ").split(" | ")[1:]
    assert LINK.search(code) and LINK.search(test) and LINK.search(notebook)


@pytest.mark.parametrize(
    "row, kind, text, target", LINKS, ids=[f"{row}: {text}" for row, _, text, _ in LINKS]
)
def test_what_is_named_is_there(row, kind, text, target):
    assert fault(kind, text, target) is None


@pytest.mark.parametrize(
    "kind, text, target",
    [
        ("code", "`attends`", "../transformer/model/layers.py"),
        ("code", "`attend`", "../transformer/model/layer.py"),
        ("code", "`test_a`", "../tests/model/test_layers.py"),
        ("test", "`test_a`", "../tests/model/test_layers.py"),
        ("test", "`attend`", "../transformer/model/layers.py"),
        ("notebook", "01: 7. By foot", "../notebooks/01_attention.ipynb"),
        ("notebook", "02: 7. By hand", "../notebooks/01_attention.ipynb"),
    ],
)
def test_what_is_not_there_is_found_out(kind, text, target):
    assert fault(kind, text, target) is not None
