"""Where the program keeps what it can make again."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from transformer.errors import UserError


def cache_folder() -> Path:
    """The folder `transformer` in the user's cache folder (XDG base directory specification)."""
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "transformer"
    except RuntimeError as error:
        raise UserError("you have no home folder: set XDG_CACHE_HOME to a folder") from error


@contextmanager
def storing(what: str) -> Iterator[None]:
    """Raises UserError where something that belongs in the cache folder cannot be written there."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"cannot store {what} in {cache_folder()} ({error.strerror or error}): set the "
            "variable XDG_CACHE_HOME to a folder with space"
        ) from error
