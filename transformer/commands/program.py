"""A command as a program: an error becomes one sentence and an exit code."""

import contextlib
import os
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from transformer.errors import UserError, is_out_of_memory, one_line
from transformer.machine.malloc import keep_memory
from transformer.machine.signals import quiet_interrupts

LONGEST_SENTENCE = 2_000
"""Characters of an error, which may quote a file of any length."""


def run_command(main: Callable[[list[str]], None]) -> None:
    """`carry_out` as a program: if it fails, it exits at once.

    Otherwise it would wait for threads of libraries and for processes that have exited, and keep
    the run locked.
    """
    sys.excepthook, sys.unraisablehook = _excepthook, lambda args: _excepthook(*args[:3])
    try:
        carry_out(main)
    except SystemExit as stop:
        if stop.code:
            _exit(stop.code)
        raise
    except BaseException:
        traceback.print_exc()
        _exit(1)


def _excepthook(kind: type[BaseException], error: BaseException | None, trace: object) -> None:
    """Python's own hook, except for an error that Orbax leaves after a save has failed."""
    if str(error) != "Event loop is closed":
        sys.__excepthook__(kind, error, trace)


def _exit(code: int) -> NoReturn:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    os._exit(code)


def carry_out(main: Callable[[list[str]], None]) -> None:
    """Runs a command's main. A UserError, an unreadable or unwritable file and too little memory
    become one sentence on stderr and SystemExit with code 2."""
    for name in ("stdin", "stdout", "stderr"):  # None where the shell has closed it
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("r" if name == "stdin" else "w"))  # noqa: SIM115
    sys.stdout.reconfigure(line_buffering=True)  # a log file shows each line at once
    library: Any = warnings
    library.formatwarning = lambda message, *_: f"warning: {message}\n"
    keep_memory()
    try:
        with quiet_interrupts():
            main(sys.argv[1:])
        sys.stdout.flush()
    except UserError as error:
        _refuse(error)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        _discard_output()
        sys.exit(1)
    except OSError as error:
        _discard_output()
        name = error.filename or "standard output or an unknown file"
        _refuse(f"{error.strerror or error}: {name}; check free space and permissions")
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        reason = one_line(error) or "MemoryError"
        _refuse(
            f"out of memory ({reason}); lower data.batch_tokens or the size of the model for "
            "training, decode.batch_sentences, decode.beam_size or decode.max_extra_length for "
            "translating, --samples, --beam-size or --max-tokens for generating"
        )


def _refuse(sentence: object) -> NoReturn:
    shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(sentence))
    if len(shown) > LONGEST_SENTENCE:
        shown = f"{shown[:LONGEST_SENTENCE]} ..."
    print(f"error: {shown}", file=sys.stderr)
    sys.exit(2)


def _discard_output() -> None:
    """Discards what is still to be printed, since its reader has exited (`| head`)."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
