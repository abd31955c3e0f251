"""How far long work on a corpus has come, said now and then."""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")
Tell = Callable[[str], None]
"""Takes a line for the user."""

SECONDS = 10.0
"""Between two lines."""


def in_silence(line: str) -> None:
    """Tells nobody."""


def told_of(items: Iterable[Item], what: str, tell: Tell) -> Iterator[Item]:
    """The items; work that takes longer says every ten seconds how many there have been, and at
    the end how many there were."""
    begun = last = time.monotonic()
    count = 0
    for count, item in enumerate(items, start=1):
        yield item
        if count % 1000 == 0 and (now := time.monotonic()) - last >= SECONDS:
            tell(f"{what}: {count:,} so far, {count / (now - begun):,.0f} a second")
            last = now
    if last != begun:
        tell(f"{what}: {count:,} in all, in {time.monotonic() - begun:,.0f} s")
