"""The progress of long work on a corpus, logged from time to time."""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")
Log = Callable[[str], None]
"""Takes a line for the user."""

SECONDS = 10.0
"""The interval between two lines."""


def quiet(line: str) -> None:
    """A log without output."""


def with_progress(items: Iterable[Item], what: str, log: Log) -> Iterator[Item]:
    """The items; work that takes longer than ten seconds logs how many there have been so far, and
    the total at the end."""
    start = last = time.monotonic()
    count = 0
    for count, item in enumerate(items, start=1):
        yield item
        if count % 1000 == 0 and (now := time.monotonic()) - last >= SECONDS:
            log(f"{what}: {count:,} so far, {count / (now - start):,.0f} a second")
            last = now
    if last != start:
        log(f"{what}: {count:,} in all, in {time.monotonic() - start:,.0f} s")
