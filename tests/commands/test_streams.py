"""translate.py and generate.py as programs that another one talks to, line by line."""

import json
import re
import subprocess
from contextlib import contextmanager
from threading import Timer

import numpy as np
import pytest
from small_run import run, start

LINES = ["old cat", "", "red dog sees cat", "cat"]


@contextmanager
def talking(*words):
    """A function that sends a line to a command and gives what it answers, before any other line
    is sent. A command that does not answer is ended."""
    process = start(*words, stdin=subprocess.PIPE)
    timer = Timer(120, process.kill)
    timer.start()

    def ask(line):
        process.stdin.write(f"{line}\n")
        process.stdin.flush()
        return process.stdout.readline().removesuffix("\n")

    try:
        yield ask
        _, errors = process.communicate()
        assert process.returncode == 0, errors
    finally:
        timer.cancel()
        process.kill()
        process.wait()


def test_a_translation_comes_before_the_next_line_is_sent(undisturbed):
    expected = run("translate.py", undisturbed, stdin="".join(f"{line}\n" for line in LINES)).stdout
    with talking("translate.py", undisturbed) as ask:
        assert [ask(line) for line in LINES] == expected.split("\n")[:-1]


@pytest.mark.slow
@pytest.mark.parametrize("kind, line", [("language", "alt Hund"), ("classes", "old cat")])
def test_so_does_what_the_family_answers(family, kind, line):
    """And what is drawn for a line is that of its number."""
    words = ["generate.py", family(kind), "--input", "json", "--output", "json"]
    words += ["--max-tokens", 3] if kind == "language" else []
    asked = json.dumps({"text": line})
    expected = run(*words, stdin=f"{asked}\n" * 3).stdout
    rounded = re.compile(r"\d+\.\d+")  # batches of another size round otherwise
    with talking(*words) as ask:
        for answer, in_a_block in zip([ask(asked) for _ in range(3)], expected.splitlines()):
            assert rounded.sub("", answer) == rounded.sub("", in_a_block)
            values = (list(map(float, rounded.findall(text))) for text in (answer, in_a_block))
            np.testing.assert_allclose(*values, atol=1e-5)


MIXED = [
    (b'{"text": "old cat", "translation": "alt Katze", "id": 1}', ""),
    (b"", ""),
    (b'{"text": 3, "id": 2}', "line 3: 'text' must be a string"),
    (b"\xff", "line 4: not UTF-8"),
    (b'{"text": "cat", "translation": "Katze"}', ""),
    (b'{"text": "cat", "translation": "%s"}' % (b"Katze " * 200), "line 6: the text or its"),
    (b'{"text": "dog", "translation": "Hund", "id": 3}', ""),
    (b"", ""),
]


def test_bad_lines_cost_themselves_alone(undisturbed):
    """JSON, UTF-8, a pair that is too long; blank lines ask nothing, at the end neither."""
    form = ["translate.py", undisturbed, "--input", "json", "--output", "json", "--score"]
    lines = [line for line, _ in MIXED]
    data = b"".join(line + b"\n" for line in lines)
    skipping = run(*form, "--on-error", "skip", stdin=data)
    assert skipping.returncode == 0, skipping.stderr
    found = skipping.stdout.decode().split("\n")[:-1]
    assert len(found) == len(lines)
    for line, answer, (_, error) in zip(lines, found, MIXED):
        assert bool(answer) == bool(line)
        if answer:
            assert json.loads(answer).get("error", "").startswith(error)
            assert ("log_prob" in answer) == (not error)
            assert error.encode() in skipping.stderr and ('"id"' in answer) == (b'"id"' in line)
    assert b"3 lines were skipped" in skipping.stderr

    stopping = run(*form, stdin=data)
    assert stopping.returncode == 2 and stopping.stdout.decode().split("\n")[:-1] == found[:2]
    assert stopping.stderr.decode().splitlines()[1:] == ["error: line 3: 'text' must be a string"]
