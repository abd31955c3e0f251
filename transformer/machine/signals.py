"""Ctrl-C and SIGTERM within a command: no output at any moment. Importing this changes nothing."""

import contextlib
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer, main_thread
from traceback import walk_stack
from types import FrameType


@contextmanager
def quiet_interrupts() -> Iterator[None]:
    """Ctrl-C is a KeyboardInterrupt, but while a module is imported it ends the process at once.

    There a library might catch it, or explain it. Where Ctrl-C is ignored, it still is.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        yield
        return
    signal.signal(signal.SIGINT, _handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def ended_by_interrupts() -> Iterator[None]:
    """Within a command Ctrl-C, and the signals of `end_cleanly`, end the process at once: for long
    work that Python cannot stop.

    Elsewhere, such as in a notebook, nothing changes: that process is not ours to end.
    """
    before = {number: signal.getsignal(number) for number in signal.valid_signals()}
    ours = [number for number, handler in before.items() if handler is _handle]
    for number in ours:
        signal.signal(number, signal.SIG_DFL)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, before[number])


def end_cleanly() -> None:
    """SIGTERM, and SIGHUP of a terminal that is closed, end the command as Ctrl-C does: unfinished
    files are removed on the way. Training replaces this (`stop_on_signals`)."""
    for name in ("SIGTERM", "SIGHUP"):
        with contextlib.suppress(AttributeError):  # there is no SIGHUP on Windows
            number = getattr(signal, name)
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, _handle)


UNHEARD = ("_xla_gc_callback", "__del__")
"""Functions that Python calls by itself, and whose errors, KeyboardInterrupt too, it ignores."""


def _handle(number: int, frame: FrameType | None) -> None:
    """Ends the process at once where a module is imported, and raises an error elsewhere."""
    codes = [caller.f_code for caller, _ in walk_stack(frame)]
    if any(code.co_name in UNHEARD for code in codes):  # the error would be ignored: again soon
        Timer(0.1, signal.pthread_kill, (main_thread().ident, number)).start()
        return
    if any(code.co_filename == "<frozen importlib._bootstrap>" for code in codes):
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    sys.exit(128 + number)
