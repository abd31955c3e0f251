"""Every public module, function, class, method and property of the package says what it is.

What stands inside of a function, and methods such as `__str__`, need not.
"""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = sorted((ROOT / "transformer").rglob("*.py"))


def silent(node, name):
    """The names of what has no docstring, of this node and of the public ones in it."""
    found = [] if ast.get_docstring(node) else [name]
    return found + [one for inner in node.body for one in silent_inside(inner, name)]


def silent_inside(node, name):
    """The same of a statement: a definition, or one that may hold some, as `if` and `try` do."""
    if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
        return silent(node, f"{name}.{node.name}")
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        is_told = node.name.startswith("_") or ast.get_docstring(node)
        return [] if is_told else [f"{name}.{node.name}"]
    if isinstance(node, ast.ClassDef):
        return []
    return [one for inner in ast.iter_child_nodes(node) for one in silent_inside(inner, name)]


@pytest.mark.parametrize("path", PACKAGE, ids=lambda path: str(path.relative_to(ROOT)))
def test_all_that_is_public_has_a_docstring(path):
    assert silent(ast.parse(path.read_text(encoding="utf-8")), path.stem) == []


def test_whatever_lacks_a_docstring_is_found():
    told, code = (
        '"""Told."""',
        """
def run():
    def inner(): ...
async def later(): ...
def _private(): ...
def described():
    'What it returns.'
if run:
    def chosen(): ...
class Model:
    def __str__(self): ...
    @property
    def size(self): ...
    class Part: ...
class _Hidden:
    def method(self): ...
""",
    )
    lacking = ["run", "later", "chosen", "Model", "Model.size", "Model.Part"]
    assert silent(ast.parse(told + code), "a") == [f"a.{name}" for name in lacking]
    assert silent(ast.parse(code), "a") == ["a", *(f"a.{name}" for name in lacking)]
