"""Text from standard input: lines of a file or a pipe, or what somebody types."""

import sys
from collections.abc import Iterator
from itertools import count, islice
from typing import TypeVar

from tqdm import tqdm

from transformer.errors import UserError

Request = TypeVar("Request")


def read_lines(stream) -> Iterator[str]:
    """Lines of UTF-8 text; only a line feed ends a line. Raises UserError naming a bad line."""
    for number, line in enumerate(stream, start=1):
        try:
            yield line.decode("utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise UserError(
                f"line {number:,} of standard input is not UTF-8 ({error.reason}): "
                "convert it, for example with iconv"
            ) from error


def in_blocks(
    stream, requests: Iterator[Request], size: int
) -> Iterator[tuple[int, list[Request]]]:
    """What is asked in the lines of a stream, so many at once, each with the number of its first.

    A bar says how many have been answered and the time left. It is shown where somebody looks on:
    standard error is a terminal, neither the stream is typed nor the answers are read there.
    """
    is_seen = sys.stderr.isatty() and not (stream.isatty() or sys.stdout.isatty())
    total = _count(stream) if is_seen else None
    with tqdm(total=total, unit=" lines", disable=not is_seen) as bar:
        for first in count(step=size):
            if not (block := list(islice(requests, size))):
                return
            yield first, block
            bar.update(len(block))


def _count(stream) -> int | None:
    """How many lines are left of a file; None of a pipe."""
    if not stream.seekable():
        return None
    start = stream.tell()
    count = sum(1 for _ in stream)
    stream.seek(start)
    return count


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
