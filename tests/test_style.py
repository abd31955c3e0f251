"""Names are the field's terms, and sentences are plain."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

PHRASES = {
    "(is|are|was|were) told": "is logged, printed, reported",
    "(is|are|was|were|be) no numbers?": "is NaN or infinite, non-finite",
    "held against": "compared with",
    "(goes|gone|going) on with": "resume, continue",
    "[Ss]o many(?! that)": "`count` rows, this number of, or the number itself",
    "([Aa]n?|[Oo]ne) (sentence|line|text|object|number|row) a (line|report|row)": "one per line",
    "[Bb]ut for": "except, apart from",
    "(?<!there )(is|are|was|were) none": "is missing, is malformed, is not a ...",
    "[Ww]ho (waits?|is done|are done|asks?|leaves?|left|connects?)": "pending, finished, a client",
    "whole or not at all": "atomically",
    "without a word": "quietly",
    "first look": "data summary",
    "comes? (any )?further": "makes progress",
    "[Ii]n turns(?! |.items|})": "interleaved, alternately",
    "(would|could|must|will|might) else": "otherwise",
    "(?<=[;,.] )else": "otherwise",
    "mend(ed|s)?": "fix",
    "look(s|ed|ing)? at whom": "attention, with queries and keys",
}
"""Phrases of documents, docstrings, comments and messages."""

NAMES = {
    "Past": "a layer cache",
    "Told|told|told_of|Tell|tell|in_silence": "metrics, progress, log, quiet",
    "Looked|looked|LOOK": "AttentionExample, attention",
    "Seen|Tested|tested": "ReportData, TestResult",
    "Together|together|TOGETHER": "RequestBatcher, batcher, batch sizes",
    "Served|served|make_served": "ModelService, service",
    "life": "lifespan",
    "boards?|Board": "metric writers",
    "Start": "Launch, StartingPoint",
    "merit|Patience|is_out": "model-selection score, EarlyStopping.should_stop",
    "usual_norm": "gradient-norm average",
    "Mixture|mixture": "averaged probabilities",
    "begun|throughout": "force_prefix, has_constraints",
    "seats?|seated": "slot, admit",
    "lengthened|halved": "grow, shrink",
    "search_on|search_in_turn|proceed": "decode, decode_continuous, run",
    "Guess|fill_in|sentences_of": "Prediction, fill_mask, split_sentences",
    "spilled": "memory-mapped",
    "demand|agree|meet|beat": "configure_devices, assert_equal, barrier, heartbeat",
    "Correspondence|in_turns": "parameter mapping, interleave",
    "Fact": "Derived",
}
"""Identifiers that are defined."""

EXCEPTIONS: dict[str, set[str]] = {"Looked|looked|LOOK": {"runs"}}
"""Rules, and where they do not hold: starts.jsonl has a field `looked`."""


def areas():
    """Packages, scripts and documents, each with its files."""
    found = {}
    for folder in sorted((ROOT / "transformer").iterdir()):
        if folder.is_dir() and folder.name != "__pycache__":
            files = sorted(folder.rglob("*"))
            found[folder.name] = [one for one in files if one.suffix in (".py", ".js", ".html")]
    found["transformer"] = sorted((ROOT / "transformer").glob("*.py"))
    for name in ("configs", "benchmarks"):
        found[name] = sorted((ROOT / name).glob("*.py"))
    documents = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/*.md")]
    for path in sorted([*ROOT.glob("*.py"), *documents]):
        found[path.name] = [path]
    return found


AREAS = areas()


@cache
def source(path):
    return path.read_text(encoding="utf-8")


@cache
def prose(path):
    """A file in one line: strings that follow each other are one; documents without code."""
    text = source(path)
    if path.suffix == ".md":
        text = re.sub(r"^```.*?^```|`[^`\n]*`", "`code`", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r'"\s*\n\s*f?"', "", text)
    return re.sub(r"[\s#]+", " ", text)


@cache
def identifiers(path):
    """What a file of Python defines, each name with its line."""
    found = []
    for node in ast.walk(ast.parse(source(path))) if path.suffix == ".py" else ():
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                found.append((node.name, node.lineno))
            case ast.Name(ctx=ast.Store()):
                found.append((node.id, node.lineno))
            case ast.arg():
                found.append((node.arg, node.lineno))
            case ast.Attribute(ctx=ast.Store()):
                found.append((node.attr, node.lineno))
    return found


def faults(rule, files):
    """The places at which a rule does not hold."""
    if rule in NAMES:
        name = re.compile(rule)
        return [
            f"{path.name}:{line}: {found}"
            for path in files
            for found, line in identifiers(path)
            if name.fullmatch(found.strip("_"))
        ]
    pattern = re.compile(rf"\b(?:{rule})\b")
    return [
        f"{path.name}: ... {prose(path)[max(0, match.start() - 30) : match.end() + 30]} ..."
        for path in files
        for match in pattern.finditer(prose(path))
    ]


@pytest.mark.parametrize("rule", [*PHRASES, *NAMES])
def test_words_are_plain(rule):
    instead = PHRASES.get(rule) or NAMES[rule]
    for area, files in AREAS.items():
        if area not in EXCEPTIONS.get(rule, ()):
            assert faults(rule, files) == [], f"{area}: write instead: {instead}"


def test_a_rule_that_holds_everywhere_has_no_exceptions():
    kept = [
        (rule, area)
        for rule, exceptions in EXCEPTIONS.items()
        for area in exceptions
        if area not in AREAS or not faults(rule, AREAS[area])
    ]
    assert kept == []


def test_faults_are_found(tmp_path):
    path = tmp_path / "a.py"
    code = '"""It is told\nof so many."""\n# held\n# against\ntold = ("is no "\n f"number")\n'
    path.write_text(code)
    for rule in [*PHRASES][:3] + [*PHRASES][4:5]:
        assert len(faults(rule, [path])) == 1
    for rule in [*PHRASES][5:]:
        assert faults(rule, [path]) == []
    assert faults("Told|told|told_of|Tell|tell|in_silence", [path]) == ["a.py:5: told"]
