"""Links in the documents: every relative one leads to a file, every anchor to a heading, and every
name that a link gives to a file of Python is defined there. Every file that is named without a link
exists, and so does every test. CITATION.cff has the version."""

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parents[1]
NAMES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "tests/README.md", "benchmarks/README.md")
DOCUMENTS = [ROOT / name for name in NAMES] + sorted((ROOT / "docs").glob("*.md"))

FENCE = re.compile(r"^(```|~~~).*?^\1[ \t]*$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^()\s]+)\)")


def links(document):
    """Text and target of every link."""
    return LINK.findall(FENCE.sub("", document.read_text(encoding="utf-8")))


def anchors(document):
    """What GitHub makes of the headings: small letters, blanks as hyphens, no punctuation."""
    found, times = [], Counter()
    text = FENCE.sub("", document.read_text(encoding="utf-8"))
    for heading in re.findall(r"^#{1,6}[ \t]+(.+?)[ \t#]*$", text, re.MULTILINE):
        shown = LINK.sub(r"\1", heading).strip().lower()
        anchor = re.sub(r"[^\w\- ]", "", shown).replace(" ", "-")
        found.append(f"{anchor}-{times[anchor]}" if times[anchor] else anchor)
        times[anchor] += 1
    return found


@cache
def defined(path):
    """Functions, classes and constants of a file of Python, those outside of any other."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found


def names(text):
    """Those that a link's text has in backticks, such as `encode`, `decode`, or `update(state)`."""
    spans = re.findall(r"`([^`]+)`", text)
    return [m[1] for m in (re.match(r"(\w+)(?:\(|, |$)", span) for span in spans) if m]


def fault(document, text, target):
    """What is wrong with a link, or None."""
    name, _, anchor = unquote(target).partition("#")
    path = (document.parent / name).resolve() if name else document
    if not path.exists():
        return f"there is no {name}"
    if anchor and path.suffix == ".md" and anchor not in anchors(path):
        return f"{path.name} has no heading #{anchor}, but {', '.join(anchors(path))}"
    if path.suffix == ".py" and (missing := set(names(text)) - defined(path)):
        return f"{name} does not define {', '.join(sorted(missing))}"
    return None


FILE = re.compile(
    r"\b((?:benchmarks|configs|docs|notebooks|tests|transformer)/[a-z0-9_/]+\.[a-z]+)\b"
)
TEST = re.compile(r"`(?:tests/)?((?:[a-z]+/)?test_[a-z_]+\.py)(?:::(\w+))?")
TEXTS = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in DOCUMENTS}
NAMED = sorted(
    {
        (name, file)
        for name, text in TEXTS.items()
        for file in FILE.findall(text)
        if not file.startswith("docs/_build/")  # which `make docs` writes
    }
)
TESTS = sorted({test for text in TEXTS.values() for test in TEST.findall(text)})
LINKS = sorted(
    {
        (str(document.relative_to(ROOT)), text, target)
        for document in DOCUMENTS
        for text, target in links(document)
        if not re.match(r"[a-z]+:", target)
    }
)


@pytest.mark.parametrize(
    "document, text, target", LINKS, ids=[f"{name}: {text} {to}" for name, text, to in LINKS]
)
def test_a_link_leads_where_it_says(document, text, target):
    assert fault(ROOT / document, text, target) is None


@pytest.mark.parametrize("document, file", NAMED)
def test_a_file_that_is_named_exists(document, file):
    assert (ROOT / file).is_file()


@pytest.mark.parametrize("file, name", TESTS)
def test_a_test_that_is_named_exists(file, name):
    assert (ROOT / "tests" / file).is_file()
    assert not name or name in defined(ROOT / "tests" / file)


def test_every_kind_of_broken_link_is_found(tmp_path):
    page, code = tmp_path / "page.md", tmp_path / "code.py"
    page.write_text(
        "# A `b`, c_d: [e](f.md)\n```\n# no heading\n[none](none.md)\n```\n## Two\n## Two\n"
    )
    code.write_text("LIMIT = 1\n\n\ndef run():\n    def inner(): ...\n")
    assert links(page) == [("e", "f.md")]
    assert anchors(page) == ["a-b-c_d-e", "two", "two-1"]
    for text, target in [("", "#two-1"), ("", "page.md"), ("`LIMIT`, `run(x)`", "code.py")]:
        assert fault(page, text, target) is None
    for text, target in [
        ("", "none.md"), ("", "#three"), ("", "page.md#no-heading"), ("`inner`", "code.py"),
        ("`run`, `walk`", "code.py"),
    ]:  # fmt: skip
        assert fault(page, text, target) is not None


def test_the_citation_has_the_version_of_the_package():
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    package = (ROOT / "transformer" / "__init__.py").read_text(encoding="utf-8")
    [cited] = re.findall(r'^version: "?([^"\n]+)"?$', citation, re.MULTILINE)
    assert cited == re.search(r'__version__ = "(.+)"', package)[1]
