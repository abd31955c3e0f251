"""Text as the world has it, through every command: each line keeps its place, and is but text."""

import itertools
import json

import pytest
from small_run import ROOT, run

pytestmark = pytest.mark.slow

BAIT = "touch bait"
"""Makes a file, if anybody should run it."""

HOSTILE = [
    "", " ", "\t", "\u2028", "a\u2028b\u2029c", "\x85", "a\x0bb\x0cc\x1cd\x1de\x1ef", "a\rb", "\r",
    "a\x00b", "\x00", "\x07\x1b[31mred\x1b[0m", "\ufeffold", "o\u200dl\u200bd", "\u202edog\u202c",
    "e" + "\u0301" * 500, "\ufdfa" * 50, "😀👩‍👩‍👧‍👧", "ﬁ Å ① ½", "\ufffe\uffff\ue000",
    "\U0010ffff",    "<pad> <s> </s> <unk> \u2581", "</script><b>dog</b>",
    "{{ 7 * 7 }} {0} %s %n", '{"text": "dog"}',
    f"$({BAIT})", f"`{BAIT}`", f"; {BAIT} ;", f"| {BAIT}", f"__import__('os').system('{BAIT}')",
    f"!!python/object/apply:os.system ['{BAIT}']", "../../etc/passwd", "-h", "--run x", "\\n\\t\\",
    "old dog " * 400, "x" * 5000, "__ __", "0" * 300, "nan", "\t\t", "a\tb\tc",
]  # fmt: skip
KNOWN = ["old dog", "red cat sees dog", "cat"]

KINDS = {"language": "alt Hund", "masked": "old __ sees dog", "classes": "old cat"}


@pytest.fixture(autouse=True)
def nobody_bites():
    yield
    assert not (ROOT / "bait").exists()


def mixed(known: list[str]) -> list[str]:
    """Hostile lines, each with a known one after it."""
    return [line for pair in zip(HOSTILE, itertools.cycle(known)) for line in pair]


def answers(command: str, *words: object, lines: list[str]) -> list[str]:
    """The lines that come back, split at line feeds alone."""
    answered = run(command, *words, stdin="".join(f"{line}\n" for line in lines).encode())
    assert answered.returncode == 0, answered.stderr
    *found, last = answered.stdout.decode().split("\n")
    assert last == ""
    return found


def test_translations_keep_their_places(undisturbed):
    lines = mixed(KNOWN)
    alone = answers("translate.py", undisturbed, lines=KNOWN)
    found = answers("translate.py", undisturbed, lines=lines)
    assert len(found) == len(lines)
    assert set(zip(lines[1::2], found[1::2])) == set(zip(KNOWN, alone))
    assert [found[lines.index(blank)] for blank in ("", " ", "\t", "\r")] == ["", " ", "\t", ""]


def test_objects_say_what_they_are_of(undisturbed):
    asked = [json.dumps({"text": line, "id": i}) for i, line in enumerate(HOSTILE)]
    words = ["--input", "json", "--output", "json", "--nbest", 2, "--alignments"]
    found = [json.loads(line) for line in answers("translate.py", undisturbed, *words, lines=asked)]
    assert [(one["id"], one["text"]) for one in found] == list(enumerate(HOSTILE))


@pytest.mark.parametrize("kind", KINDS)
def test_the_family_keeps_places_too(family, kind):
    lines = mixed([KINDS[kind]])
    words = ["--max-tokens", 3, "--beam-size", 1] if kind == "language" else []
    found = answers("generate.py", family(kind), *words, lines=lines)
    assert len(found) == len(lines)
    assert len(set(found[1::2])) == 1


def test_training_and_scoring_take_it_as_pairs(config, undisturbed, tmp_path):
    """With as many references as sources, in their order, and nothing that a text says is done."""
    lines = [line.replace("\t", " ") for line in mixed(KNOWN)]
    for name, text in (("a.en", lines), ("a.de", lines[2:] + lines[:2])):
        (tmp_path / name).write_bytes("".join(f"{line}\n" for line in text).encode())
    files = [tmp_path / "a.en", tmp_path / "a.de"]
    scored = run("eval.py", undisturbed, "--test-files", *files)
    assert scored.returncode == 0, scored.stderr
    assert "BLEU" in scored.stdout and f"{len(lines)} sentences" in scored.stdout

    words = [config, "--run", tmp_path / "run", "--data.train-files", *files, "--train.steps", 5]
    words += ["--data.validation-files", *files, "--data.vocab-size", 150]
    trained = run("train.py", *words)
    assert trained.returncode == 0 and "done: 5 updates" in trained.stdout, trained.stderr
    assert f"data        {len(lines)} pairs" in trained.stdout
    examined = run("train.py", *words, "--doctor")
    assert examined.returncode == 0, examined.stderr
