"""translate.py and generate.py as programs that another one talks to, line by line."""

import json
import subprocess
from contextlib import contextmanager
from threading import Timer

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


@pytest.mark.parametrize("kind, line", [("language", "alt Hund"), ("classes", "old cat")])
def test_so_does_what_the_family_answers(family, kind, line):
    """And what is drawn for a line is that of its number."""
    words = ["generate.py", family(kind), "--input", "json", "--output", "json"]
    words += ["--max-tokens", 3] if kind == "language" else []
    asked = json.dumps({"text": line})
    expected = run(*words, stdin=f"{asked}\n" * 3).stdout
    with talking(*words) as ask:
        assert [json.loads(ask(asked)) for _ in range(3)] == [
            json.loads(answer) for answer in expected.splitlines()
        ]
