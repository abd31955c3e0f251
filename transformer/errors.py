"""Errors as sentences, and the messages of libraries inside them."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

OUT_OF_MEMORY = re.compile(
    "RESOURCE_EXHAUSTED(?!: Error writing)|out.of.memory|YNNPACK operation failed", re.IGNORECASE
)
"""What XLA says then; the last where a product on a CPU finds no room to work."""


class UserError(Exception):
    """An error that the user can fix: one sentence, what is wrong and what to do about it."""


def one_line(error: BaseException) -> str:
    """The message of a library without its line breaks, for a sentence of ours."""
    return " ".join(str(error).split())


def is_out_of_memory(error: BaseException) -> bool:
    """Whether there was too little memory, in the words of Python or of XLA."""
    return isinstance(error, MemoryError) or bool(OUT_OF_MEMORY.search(str(error)))


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Errors of reading and writing name no file, as those of opening do: here they name `path`."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise
