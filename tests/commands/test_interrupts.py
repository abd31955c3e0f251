"""Ctrl-C at any moment: not a word, the exit status that shells show as 130, nothing left over."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest
from small_run import ROOT, start, wait_until

from transformer.machine.signals import ended_by_interrupts, quiet_interrupts

ENDED = -signal.SIGINT
"""The exit status of a process that Ctrl-C has ended; a shell shows 130."""

IMPORTED = [
    ("train.py", "docstring_parser"),
    ("train.py", "jax.numpy"),
    ("train.py", "sentencepiece"),
    ("eval.py", "transformer.config"),
    ("eval.py", "optax"),
    ("eval.py", "sacrebleu.utils"),
    ("translate.py", "transformer.config.rules"),
    ("translate.py", "numpy.exceptions"),
    ("translate.py", "jaxlib._jax"),
    ("translate.py", "tensorstore"),
]
"""Commands, and the module after which Ctrl-C comes."""


@pytest.mark.parametrize("command, module", IMPORTED)
def test_among_the_imports_it_ends_without_a_word(config, undisturbed, tmp_path, command, module):
    words = [config, "--run", tmp_path / "run"] if command == "train.py" else [undisturbed]
    python = [sys.executable, "-X", "importtime", str(ROOT / command), *map(str, words)]
    process = subprocess.Popen(
        python, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    for line in process.stderr:
        if line.split("|")[-1].strip() == module:
            break
    else:
        pytest.fail(f"{command} does not import {module}")
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate()
    said = [line for line in errors.splitlines() if not line.startswith("import ")]
    assert (output, said) == ("", [])
    assert process.returncode in (ENDED, 130)


LONG_TRAINING = """
import runpy, sys
import sentencepiece

train = sentencepiece.SentencePieceTrainer.train

def announced(**settings):
    print("begun", flush=True)
    train(**settings)
    print("ended", flush=True)

sentencepiece.SentencePieceTrainer.train = announced
runpy.run_path("train.py", run_name="__main__")
"""
"""train.py, which says when SentencePiece begins."""


@pytest.fixture
def corpus(tmp_path):
    """Settings of a corpus of 60,000 pairs of made-up words."""
    chosen = random.Random(0)
    words = [
        "".join(chosen.choices("abcdefghijklmno", k=chosen.randint(2, 9))) for _ in range(9999)
    ]
    for name in ("many.en", "many.de"):
        lines = (" ".join(chosen.choices(words, k=12)) for _ in range(60_000))
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    return ["--data.train-files", tmp_path / "many.en", tmp_path / "many.de"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_while_a_vocabulary_is_trained_it_ends_at_once(config, corpus, tmp_path, number):
    settings = ["--run", tmp_path / "run", "--data.tokenizer", "unigram", "--data.vocab-size", 8000]
    process = subprocess.Popen(
        [sys.executable, "-c", LONG_TRAINING, *map(str, [config, *corpus, *settings])],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout.readline() == "begun\n"
    time.sleep(1)  # until it is in SentencePiece's own code, for long
    process.send_signal(number)
    # Had it waited for SentencePiece, it would be the command that ends, with 130 or 143.
    assert process.communicate() == ("", "")
    assert process.returncode == -number
    assert os.listdir(tmp_path / "run") == ["lock"]


def test_half_made_files_are_cleared_away(config, corpus, tmp_path):
    cache = tmp_path / "cache"
    process = start(
        "train.py", config, "--run", tmp_path / "run", *corpus,
        env=os.environ | {"XDG_CACHE_HOME": str(cache)},
    )  # fmt: skip
    wait_until(lambda: bool(list(cache.rglob(".tokens-*"))), process)
    process.send_signal(signal.SIGINT)
    assert process.communicate() == ("", "")
    assert process.returncode == 130
    assert not list(cache.rglob(".tokens-*"))


def test_in_the_middle_of_translating(undisturbed):
    process = start("translate.py", undisturbed, stdin=subprocess.PIPE)
    process.stdin.write("the old cat sees dog\n" * 2000)
    process.stdin.close()
    process.stdin = None
    process.stdout.readline()  # the first block of many is done
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate()
    assert process.returncode == 130
    assert len(errors.splitlines()) == 1 and "checkpoint" in errors


def test_outside_of_a_command_nothing_changes():
    before = signal.getsignal(signal.SIGINT)
    with ended_by_interrupts():
        assert signal.getsignal(signal.SIGINT) is before
    with quiet_interrupts():
        pass
    assert signal.getsignal(signal.SIGINT) is before


def test_who_ignores_it_goes_on_ignoring_it():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with quiet_interrupts(), ended_by_interrupts():
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


LOST_IN_PYTHON = """
import gc, signal, time
from transformer.machine.signals import quiet_interrupts

def _xla_gc_callback(phase, _):
    if phase == "stop":
        signal.raise_signal(signal.SIGINT)

with quiet_interrupts():
    gc.callbacks.append(_xla_gc_callback)
    try:
        gc.collect()
        gc.callbacks.clear()
        time.sleep(60)
    except KeyboardInterrupt:
        print("heard")
"""


def test_it_is_heard_when_it_comes_while_python_collects_garbage():
    result = subprocess.run(
        [sys.executable, "-c", LOST_IN_PYTHON], cwd=ROOT, capture_output=True, text=True, timeout=50
    )
    assert result.stdout == "heard\n" and result.stderr == ""
