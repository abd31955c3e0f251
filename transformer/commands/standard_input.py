"""Text from standard input: lines of a file or a pipe, or what somebody types."""

import os
import stat
import sys
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from threading import Condition, Thread
from typing import Any, NamedTuple, Protocol

from tqdm import tqdm

from transformer.errors import UserError

CHUNK = 1 << 16
"""Bytes read at once: what Linux keeps in a pipe."""


class Exchange(Protocol):
    """How lines become answers. Numbers of lines count from 0."""

    def read(self, line: str) -> Any:
        """The request of a line, or None if it asks nothing and its answer is an empty line.
        Raises UserError for a bad line."""

    def answer(self, requests: list[Any], numbers: list[int]) -> Sequence[str]:
        """What is printed for each of some requests. Raises UserError if one of them is bad."""

    def failed(self, number: int, line: str, sentence: str) -> str:
        """What is printed for a line that has no answer, where the sentence says why."""


class Line(NamedTuple):
    """A line of input: its number, its text ("" where that cannot be read), and its request, or
    why it has none."""

    number: int
    text: str
    asked: Any


def answer_lines(stream, size: int, exchange: Exchange, skip: bool) -> None:
    """Prints the answer to each line of a stream, in order, in blocks of at most `size` lines.

    A bad line costs itself alone. All lines before it are answered, then UserError names it; with
    `skip` there is a warning instead, and `exchange.failed` is printed in place of the answer.
    """
    skipped = 0
    for first, block in in_blocks(stream, size):
        lines = [_read(exchange, number, line) for number, line in enumerate(block, first)]
        if not skip:
            bad = (place for place, line in enumerate(lines) if isinstance(line.asked, UserError))
            lines = lines[: next(bad, size) + 1]
        for line, found in _outcomes(exchange, lines):
            if isinstance(found, UserError):
                sentence = f"line {line.number + 1:,}: {found}"
                if not skip:
                    raise UserError(sentence) from found
                warnings.warn(f"{sentence} (skipped)", stacklevel=2)
                skipped += 1
                found = exchange.failed(line.number, line.text, sentence)
            print(found)
        sys.stdout.flush()
    if skipped:
        warnings.warn(f"{skipped:,} lines without an answer (--on-error skip)", stacklevel=2)


def _read(exchange: Exchange, number: int, line: bytes) -> Line:
    text = ""
    try:
        text = read_line(line, is_first=number == 0)
        return Line(number, text, exchange.read(text))
    except UserError as error:
        return Line(number, text, error)


def _outcomes(exchange: Exchange, lines: list[Line]) -> Iterator[tuple[Line, str | UserError]]:
    """The answer to each line, or why it has none. All requests are answered together."""
    requests = [line for line in lines if not isinstance(line.asked, UserError | None)]
    answers = _answers(exchange, requests)
    for line in lines:
        if line.asked is None:
            yield line, ""
        else:
            yield line, line.asked if isinstance(line.asked, UserError) else next(answers)


def _answers(exchange: Exchange, lines: list[Line]) -> Iterator[str | UserError]:
    """The answer to each request. Requests that fail together are halved until the one that is to
    blame is alone."""
    if not lines:
        return
    try:
        answers = exchange.answer([line.asked for line in lines], [line.number for line in lines])
    except UserError as error:
        if len(lines) == 1:
            yield error
        else:
            half = len(lines) // 2
            yield from _answers(exchange, lines[:half])
            yield from _answers(exchange, lines[half:])
    else:
        yield from answers


def read_line(line: bytes, is_first: bool) -> str:
    """A line of UTF-8 text; the first one without a byte order mark. Raises UserError."""
    try:
        return line.decode("utf-8-sig" if is_first else "utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise UserError(
            f"this is not UTF-8 ({error.reason}): convert it, for example with iconv"
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
