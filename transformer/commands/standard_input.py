"""Text from standard input: lines of a file or a pipe, or lines that are typed."""

import os
import stat
import sys
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from threading import Condition, Thread
from typing import Any, Protocol

from tqdm import tqdm

from transformer.errors import UserError

CHUNK = 1 << 16
"""Bytes read at once: the capacity of a pipe in Linux."""


class Exchange(Protocol):
    """How lines become answers. Numbers of lines count from 0."""

    def read(self, line: str) -> Any:
        """The request of a line, None if its answer is an empty line. Raises UserError."""

    def answer(self, requests: list[Any], numbers: list[int]) -> Sequence[str]:
        """The output for each of some requests. Raises UserError if one of them is bad."""

    def failed(self, number: int, line: str, sentence: str) -> str:
        """The output for a line that has no answer, for which the sentence gives the reason."""


@dataclass
class Line:
    """A line of input: its number, its text ("" if it cannot be decoded), its request, and its
    answer or the reason why it has none."""

    number: int
    text: str = ""
    request: Any = None
    answer: str | UserError = ""


def answer_lines(stream, size: int, exchange: Exchange, skip: bool) -> None:
    """Prints the answer to each line of a stream, in order, in blocks of at most `size` lines.

    A bad line affects no other. All lines before it are answered, then UserError names it; with
    `skip` there is a warning instead, and `exchange.failed` is printed in place of the answer.
    """
    skipped = 0
    for first, block in in_blocks(stream, size):
        lines = [_read(exchange, number, line) for number, line in enumerate(block, first)]
        if not skip:
            bad = (place for place, line in enumerate(lines) if isinstance(line.answer, UserError))
            lines = lines[: next(bad, size) + 1]
        _answer(exchange, [line for line in lines if line.request is not None])
        for line in lines:
            if isinstance(line.answer, UserError):
                sentence = f"line {line.number + 1:,}: {line.answer}"
                if not skip:
                    raise UserError(sentence) from line.answer
                warnings.warn(f"{sentence} (skipped)", stacklevel=2)
                skipped += 1
                line.answer = exchange.failed(line.number, line.text, sentence)
            print(line.answer)
        sys.stdout.flush()
    if skipped:
        warnings.warn(f"{skipped:,} lines were skipped (--on-error skip)", stacklevel=2)


def _read(exchange: Exchange, number: int, data: bytes) -> Line:
    line = Line(number)
    try:
        line.text = read_line(data, is_first=number == 0)
        line.request = exchange.read(line.text)
    except UserError as error:
        line.answer = error
    return line


def _answer(exchange: Exchange, lines: list[Line]) -> None:
    """Answers all requests together. If they fail, they are halved until the bad one is alone."""
    if not lines:
        return
    try:
        answers = exchange.answer([line.request for line in lines], [line.number for line in lines])
    except UserError as error:
        if len(lines) == 1:
            lines[0].answer = error
            return
        half = len(lines) // 2
        _answer(exchange, lines[:half])
        _answer(exchange, lines[half:])
    else:
        for line, answer in zip(lines, answers, strict=True):
            line.answer = answer


def read_line(line: bytes, is_first: bool) -> str:
    """A line of UTF-8 text; the first one without its byte order mark. Raises UserError."""
    try:
        return line.decode("utf-8-sig" if is_first else "utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise UserError(
            f"not UTF-8 ({error.reason}): convert the input, for example with iconv"
        ) from error


def in_blocks(stream, size: int) -> Iterator[tuple[int, list[bytes]]]:
    """The lines of a stream in blocks, each with the number of its first line, counted from 0.

    Only a line feed ends a line. A block of a file has `size` lines. A block of a pipe has those
    that have arrived, at most `size`, so that a program that waits for an answer gets it.

    A progress bar is shown if standard error is a terminal, and neither the stream nor standard
    output is one.
    """
    blocks = _of_file(stream, size) if _is_file(stream) else Arrivals(stream, size)
    has_bar = sys.stderr.isatty() and not (stream.isatty() or sys.stdout.isatty())
    total = _count(stream) if has_bar and _is_file(stream) else None
    first = 0
    with tqdm(total=total, unit=" lines", disable=not has_bar) as bar:
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
    """The number of lines that are left of a file."""
    start = stream.tell()
    count = sum(1 for _ in stream)
    stream.seek(start)
    return count


class Arrivals:
    """Lines of a pipe or a terminal, read by a thread while others are answered.

    The thread pauses while `size` lines are pending. It is a daemon, so that Ctrl-C in the main
    thread does not wait for a line.
    """

    def __init__(self, stream, size: int):
        self.stream, self.size = stream, size
        self.lines: deque[bytes] = deque()
        self.has_ended = False
        self.error: OSError | None = None
        self.change = Condition()
        Thread(target=self._read, daemon=True).start()

    def __iter__(self) -> Iterator[list[bytes]]:
        """Blocks of the lines that have arrived, at least one and at most `size`."""
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
        """Adds all at once: lines that arrived together are answered together."""
        with self.change:
            self.lines += lines
            self.change.notify_all()
            self.change.wait_for(lambda: len(self.lines) < self.size)


@contextmanager
def printed_errors() -> Iterator[None]:
    """Prints a UserError and goes on, as after a typed line that has no answer."""
    try:
        yield
    except UserError as error:
        print(error, file=sys.stderr)


def typed_lines(prompt: str) -> Iterator[str]:
    """Prompts for lines until the end of input (Ctrl-D) or Ctrl-C. They are UTF-8 in every locale;
    if one is not, it is prompted for again. Unless standard output is a terminal, prompts go
    to standard error."""
    is_seen = sys.stdout.isatty()
    while True:
        if not is_seen:
            print(f"{prompt}> ", end="", file=sys.stderr, flush=True)
        try:
            typed = input(f"{prompt}> " if is_seen else "")
            line = typed.encode(sys.stdin.encoding, "surrogateescape").decode("utf-8")
        except (EOFError, KeyboardInterrupt):
            print(file=sys.stdout if is_seen else sys.stderr)
            return
        except UnicodeError:
            print("this line is not UTF-8: type it again", file=sys.stderr)
        else:
            yield line
