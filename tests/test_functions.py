"""Functions are short and take few parameters. The exceptions are listed here by name."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILES = [*sorted((ROOT / "transformer").rglob("*.py")), *sorted(ROOT.glob("*.py"))]
MOST_LINES, MOST_PARAMETERS = 60, 6

TABLES = {"config/rules.py _problems"}
"""Lists of rules, however many there are."""

EQUATIONS = {
    "model/layers.py attend",
    "model/layers.py multi_head_attention",
    "training/loss.py loss_sums",
    "training/loss.py _sums",
    "training/loss.py _sums_forward",
}
"""What a formula depends on is as much as it is."""


def functions(path):
    """Name and node of every function of a file, also of those inside of others."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{path.relative_to(ROOT)} {node.name}".removeprefix("transformer/"), node


def lines(node):
    return node.end_lineno - node.lineno + 1


def parameters(node):
    arguments = node.args.posonlyargs + node.args.args + node.args.kwonlyargs
    return len([one for one in arguments if one.arg not in ("self", "cls")])


FUNCTIONS = [found for path in FILES for found in functions(path)]
LONG = {name for name, node in FUNCTIONS if lines(node) > MOST_LINES}
WIDE = {name for name, node in FUNCTIONS if parameters(node) > MOST_PARAMETERS}


def test_a_function_has_at_most_60_lines():
    assert sorted(LONG - TABLES) == []


def test_a_function_has_at_most_six_parameters():
    assert sorted(WIDE - EQUATIONS) == []


def test_every_exception_is_one():
    assert LONG >= TABLES and WIDE >= EQUATIONS


def test_lines_and_parameters_are_counted():
    [node] = ast.parse("def f(self, a, /, b, *rest, c=1, **others):\n    return a\n").body
    assert (lines(node), parameters(node)) == (2, 3)
