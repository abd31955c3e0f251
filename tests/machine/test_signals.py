"""Signals that end a command: what is half made is removed, also where Python ignores errors."""

import signal
import subprocess
import sys

import pytest

PROGRAM = """
import os, signal, time
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored, and stays so
from transformer.machine.signals import end_cleanly, quiet_interrupts

def send():
    os.kill(os.getpid(), signal.{name})
    time.sleep(0.01)

def _xla_gc_callback():  # by this name JAX calls one whose errors Python ignores
    try:
        send()
    except BaseException:
        print("ignored")

end_cleanly()
with quiet_interrupts():
    try:
        {call}()
        time.sleep(20)
    finally:
        print("removed")
"""


@pytest.mark.parametrize("call", ["send", "_xla_gc_callback"])
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGINT"])
def test_the_command_ends_and_cleans_up(name, call):
    program = PROGRAM.format(name=name, call=call)
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert ended.stdout == "removed\n"
    expected = 1 if name == "SIGINT" else 128 + getattr(signal, name)
    assert ended.returncode in (expected, -signal.SIGINT), ended.stderr
