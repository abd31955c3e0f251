"""Ctrl-C within a command: it says nothing, at no moment. Importing this changes nothing."""

import contextlib
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer, main_thread
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
    signal.signal(signal.SIGINT, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def ended_by_interrupts() -> Iterator[None]:
    """Within a command Ctrl-C, and what `end_cleanly` hears, end the process at once: for long work
    that Python cannot stop.

    Elsewhere, in a notebook say, nothing changes: that process is not ours to end.
    """
    before = {number: signal.getsignal(number) for number in signal.valid_signals()}
    ours = [number for number, handler in before.items() if handler in (_interrupt, _end)]
    for number in ours:
        signal.signal(number, signal.SIG_DFL)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, before[number])


def end_cleanly() -> None:
    """SIGTERM, and SIGHUP of a terminal that is closed, end the command as Ctrl-C does: what is
    half made is removed on the way."""
    for name in ("SIGTERM", "SIGHUP"):
        with contextlib.suppress(AttributeError):  # there is no SIGHUP on Windows
            number = getattr(signal, name)
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, _end)


UNHEARD = ("_xla_gc_callback", "__del__")
"""Functions that Python calls by itself, and whose errors, KeyboardInterrupt too, it ignores."""


def _end(number: int, frame: FrameType | None) -> None:
    if not _is_unheard(number, frame):
        _end_imports(number, frame)
        sys.exit(128 + number)


def _is_unheard(number: int, frame: FrameType | None) -> bool:
    """Whether an error would be ignored here; then the signal comes again soon."""
    while frame:
        if frame.f_code.co_name in UNHEARD:
            Timer(0.1, signal.pthread_kill, (main_thread().ident, number)).start()
            return True
        frame = frame.f_back
    return False


def _interrupt(number: int, frame: FrameType | None) -> None:
    if not _is_unheard(number, frame):
        _end_imports(number, frame)
        raise KeyboardInterrupt


def _end_imports(number: int, frame: FrameType | None) -> None:
    """Ends the process at once where a module is imported."""
    while frame:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        frame = frame.f_back
