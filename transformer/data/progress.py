"""How far long work on a corpus has come, said now and then."""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")
Log = Callable[[str], None]
"""Takes a line for the user."""

SECONDS = 10.0
"""Between two lines."""


def quiet(line: str) -> None:
    """Tells nobody."""


def with_progress(items: Iterable[Item], what: str, log: Log) -> Iterator[Item]:
    """The items; work that takes longer says every ten seconds how many there have been, and at
    the end how many there were."""
    begun = last = time.monotonic()
    count = 0
    for count, item in enumerate(items, start=1):
        yield item
        if count % 1000 == 0 and (now := time.monotonic()) - last >= SECONDS:
            log(f"{what}: {count:,} so far, {count / (now - begun):,.0f} a second")
            last = now
    if last != begun:
        log(f"{what}: {count:,} in all, in {time.monotonic() - begun:,.0f} s")
