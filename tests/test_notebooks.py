"""Notebooks: what is stored is made of the text beside it, ran from top to bottom, and installs
itself the same way everywhere."""

import hashlib
import json
import re
from pathlib import Path
from runpy import run_path

import jax
import numpy as np
import pytest
from flax import linen as nn

from transformer.config.files import load_config
from transformer.runs.folder import load_run_config

FOLDER = Path(__file__).parents[1] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("[0-9]*.py"))
BADGE = "[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]"
ADDRESS = run_path(str(FOLDER / "address.py"))
EXERCISES = run_path(str(FOLDER / "exercises.py"))
PROJECT = (FOLDER.parent / "pyproject.toml").read_text(encoding="utf-8")


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


@pytest.mark.parametrize("path", NOTEBOOKS, ids=names)
def test_badge_and_first_cell_have_the_address_of_the_project(path):
    text, address = path.read_text(encoding="utf-8"), ADDRESS["address_of_project"](PROJECT)
    assert ADDRESS["addressed"](text, path.stem, address) == text, "make notebooks"
    new = "https://github.com/someone/project"
    moved = ADDRESS["addressed"](text, path.stem, new)
    page = f"github/someone/project/blob/main/notebooks/{path.name.replace('.py', '.ipynb')}"
    assert f"{BADGE}(https://colab.research.google.com/{page})" in moved
    assert f'\nREPOSITORY = "{new}"' in moved
    assert ADDRESS["addressed"](moved, path.stem, address) == text


def test_the_address_comes_from_a_remote_on_github():
    new = "https://github.com/someone/my.project"
    for remote in (f"{new}.git\n", new, "git@github.com:someone/my.project.git"):
        assert ADDRESS["address_of_remote"](remote) == new
    for remote in ("", "/somewhere/project", "https://example.org/someone/project.git"):
        assert ADDRESS["address_of_remote"](remote) == ""
    once = ADDRESS["with_address"](PROJECT, new)
    assert ADDRESS["address_of_project"](once) == new
    twice = ADDRESS["with_address"](once, f"{new}2")
    assert ADDRESS["address_of_project"](twice) == f"{new}2" and len(twice) == len(once) + 1


@pytest.mark.parametrize(
    "right, wrong",
    [(2.5, 2.6), (5000, 5001), (True, False), ([1, 2], [1, 2, 3]), ((0.5, 1), (0.5, 2)), (0, 0.1)],
)
def test_an_answer_is_right_wrong_or_open(right, wrong, capsys):
    check = EXERCISES["check"]
    check(right, right)
    check(..., right)
    check((right, ...), [right, right])
    said = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in said] == ["right", "open", "open"]
    with pytest.raises(AssertionError, match="not yet"):
        check(wrong, right)


@pytest.mark.parametrize(
    "answer, expected",
    [
        ([1, 3, 3], np.array([1.0, 3, 3])),
        (np.array([5, 3, 2]), [5, 3, 2]),
        (np.float32(0.89), 0.8929),
        ((1, 2, 3), (1.0, 2.0, 3.0)),
        ([[1, 0], [1, 1]], np.tril(np.ones((2, 2), bool))),
        (0, np.float32(1e-7)),
    ],
)
def test_an_answer_may_be_written_in_other_ways(answer, expected):
    EXERCISES["check"](answer, expected, tolerance=0.01)


@pytest.mark.parametrize(
    "answer, expected, said",
    [
        (None, 2, "is a return missing"),
        ("43", 43, "it is '43', where a number is asked for"),
        (((5, 7), (5,)), ((5, 7), (5, 32)), "where an array of shape (2, 2) is asked for"),
        (np.ones((2, 3)), np.ones(3), "an array of shape (2, 3), where an array of shape (3,)"),
        ([0, 5, 7], [0, 4, 6], "2 of 3 numbers are wrong; the first is 5, at [1]"),
        (2049, 2048, "it is 2049"),
        (False, True, "it is False"),
    ],
)
def test_a_wrong_answer_says_what_is_wrong(answer, expected, said):
    with pytest.raises(AssertionError, match=re.escape(said)):
        EXERCISES["check"](answer, expected)


def test_each_of_several_answers_is_judged(capsys):
    solutions = {1: 2, 2: (3, 4), 3: ((1, 2), (3, 4)), 4: 5}
    EXERCISES["check_each"](dict(solutions), solutions)
    EXERCISES["check_each"]({1: ..., 2: (3, ...), 3: ((1, 2), (3, 4))}, solutions)
    with pytest.raises(AssertionError, match=r"^not yet: 2, 3$"):
        EXERCISES["check_each"]({1: 2, 2: (3, 5), 3: 7, 4: 5}, solutions)
    with pytest.raises(AssertionError, match="nobody asked for 5"):
        EXERCISES["check_each"]({5: 2}, solutions)
    said = [line.split()[1].strip(":") for line in capsys.readouterr().out.splitlines()]
    expected = [*["right"] * 4, "open", "open", "right", "open", "right", "not", "not", "right"]
    assert said == expected


TRAINED = json.loads((FOLDER / "weights" / "weights.json").read_text(encoding="utf-8"))


def test_the_weights_of_all_notebooks_are_small():
    files = [path for path in (FOLDER / "weights").rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 8_000_000


@pytest.mark.parametrize("name", TRAINED)
def test_weights_are_those_of_their_digest(name):
    weights = (FOLDER / "weights" / name / "model.safetensors").read_bytes()
    assert hashlib.sha256(weights).hexdigest() == TRAINED[name]["sha256"]


@pytest.mark.parametrize("name", [name for name in TRAINED if name != "recurrent"])
def test_weights_are_those_of_their_command(name):
    folder, about = FOLDER / "weights" / name, TRAINED[name]
    trained, config = load_run_config(folder), load_config(FOLDER.parent / "configs" / f"{name}.py")
    words = about["command"].split()
    assert words[:3] == ["python", "train.py", f"configs/{name}.py"]
    for setting, value in zip(words[3::2], words[4::2]):
        section, _, field = setting.removeprefix("--").replace("-", "_").partition(".")
        assert not field or str(getattr(getattr(trained, section), field)) == value
    # The sizes of the model come from its vocabulary.
    assert (trained.model.d_model, trained.model.d_ff) == (config.model.d_model, config.model.d_ff)
    assert trained.optimizer == config.optimizer


def test_the_recurrent_cell_is_that_of_flax():
    module = run_path(str(FOLDER / "recurrent.py"))
    cell = module["init_recurrent"](jax.random.key(1), 20).encoder
    x, h = jax.random.normal(jax.random.key(2), (2, 5, module["D"]))
    cell = cell._replace(b_x=cell.b_x + 0.3, b_h=cell.b_h.at[2].set(0.2))
    params = {
        **{
            f"i{gate}": {"kernel": cell.w_x[:, i], "bias": cell.b_x[i]}
            for i, gate in enumerate("rzn")
        },
        **{f"h{gate}": {"kernel": cell.w_h[:, i]} for i, gate in enumerate("rz")},
        "hn": {"kernel": cell.w_h[:, 2], "bias": cell.b_h[2]},
    }
    expected, _ = nn.GRUCell(module["D"]).apply({"params": params}, h, x)
    np.testing.assert_allclose(module["next_state"](cell, h, x), expected, atol=1e-5)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=names)
def test_exercises_are_open_and_their_solutions_folded_and_right(path):
    cells = json.loads(path.with_suffix(".ipynb").read_text(encoding="utf-8"))["cells"]
    tags = [cell["metadata"].get("tags", []) for cell in cells]
    exercises = [number for number, own in enumerate(tags) if "exercise" in own]
    assert 3 <= len(exercises) <= 6
    for number in exercises:
        title, exercise, solution = cells[number - 1 : number + 2]
        assert "".join(title["source"]).startswith("### Exercise ")
        assert "..." in "".join(exercise["source"])
        assert "open: " in "".join(text for o in exercise["outputs"] for text in o.get("text", []))
        assert {"solution", "hide-input"} <= {*tags[number + 1]}
        assert solution["metadata"]["jupyter"]["source_hidden"]
        assert solution["metadata"]["cellView"] == "form"
        said = "".join(text for o in solution["outputs"] for text in o.get("text", []))
        assert "right" in said and "open: " not in said
