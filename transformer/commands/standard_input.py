"""Text from standard input: lines of a file or a pipe, or what somebody types."""

import os
import stat
import sys
from collections import deque
from collections.abc import Iterator
from itertools import islice
from threading import Condition, Thread

from tqdm import tqdm

from transformer.errors import UserError

CHUNK = 1 << 16
"""Bytes read at once: what Linux keeps in a pipe."""


def read_line(number: int, line: bytes) -> str:
    """A line of UTF-8 text, without a byte order mark if it is the first (1). Raises UserError."""
    try:
        return line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise UserError(
            f"line {number:,} of standard input is not UTF-8 ({error.reason}): "
            "convert it, for example with iconv"
        ) from error


def in_blocks(stream, size: int) -> Iterator[tuple[int, list[bytes]]]:
    """The lines of a stream in blocks, each with the number of its first line, counted from 0.

    Only a line feed ends a line. A block of a file has `size` lines. A block of a pipe has those
    that have come, `size` at most, so that a program that waits for an answer gets it.

    A bar shows how many are answered and the time left, if standard error is a terminal, the
    stream is not typed and the answers are not read there.
    """
    blocks = _of_file(stream, size) if _is_file(stream) else Arrivals(stream, size)
    is_seen = sys.stderr.isatty() and not (stream.isatty() or sys.stdout.isatty())
    total = _count(stream) if is_seen and _is_file(stream) else None
    first = 0
    with tqdm(total=total, unit=" lines", disable=not is_seen) as bar:
        for block in blocks:
            yield first, block
            bar.update(len(block))
            first += len(block)


def _is_file(stream) -> bool:
    return stat.S_ISREG(os.fstat(stream.fileno()).st_mode)


def _of_file(stream, size: int) -> Iterator[list[bytes]]:
    while block := list(islice(stream, size)):
        yield block


def _count(stream) -> int:
    """How many lines are left of a file."""
    start = stream.tell()
    count = sum(1 for _ in stream)
    stream.seek(start)
    return count


class Arrivals:
    """Lines of a pipe or a terminal, read by a thread of their own while others are answered.

    The thread pauses while `size` lines wait. It never outlives the process: Ctrl-C in the main
    thread need not wait for a line.
    """

    def __init__(self, stream, size: int):
        self.stream, self.size = stream, size
        self.lines: deque[bytes] = deque()
        self.has_ended = False
        self.error: OSError | None = None
        self.change = Condition()
        Thread(target=self._read, daemon=True).start()

    def __iter__(self) -> Iterator[list[bytes]]:
        """Blocks of the lines that have come, at least one and at most `size`."""
        while True:
            with self.change:
                self.change.wait_for(lambda: self.lines or self.has_ended)
                block = [self.lines.popleft() for _ in range(min(self.size, len(self.lines)))]
                self.change.notify_all()
            if not block:
                if self.error:
                    raise self.error
                return
            yield block

    def _read(self) -> None:
        try:
            rest = bytearray()
            while chunk := self.stream.read1(CHUNK):
                rest += chunk
                if b"\n" in chunk:
                    *lines, rest = rest.split(b"\n")
                    self._add(lines)
            self._add([rest] if rest else [])
        except OSError as error:
            self.error = error
        with self.change:
            self.has_ended = True
            self.change.notify_all()

    def _add(self, lines: list[bytes]) -> None:
        """All at once: lines that came together are answered together."""
        with self.change:
            self.lines += lines
            self.change.notify_all()
            self.change.wait_for(lambda: len(self.lines) < self.size)


def typed_lines(prompt: str) -> Iterator[str]:
    """Asks for lines until the end of input (Ctrl-D) or Ctrl-C. They are UTF-8, whatever the
    locale says; one that is not is asked for again."""
    while True:
        try:
            typed = input(f"{prompt}> ")
            line = typed.encode(sys.stdin.encoding, "surrogateescape").decode("utf-8")
        except (EOFError, KeyboardInterrupt):
            print()
            return
        except UnicodeError:
            print("this line is not UTF-8: type it again", file=sys.stderr)
        else:
            yield line
