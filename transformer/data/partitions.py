"""Arrays with a number for each pair of a corpus: on disk when there are many of them."""

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import IO

import numpy as np

from transformer.machine.files import cache_folder, storing

AT_ONCE = 50_000
"""Pairs looked at together: memory does not grow with the corpus."""

IN_MEMORY = 250_000
"""An array of more elements is on disk."""

PARTITION = 4_000_000
"""Elements that are sorted together."""

ORDER = "the order of the corpus"
"""What messages call these arrays."""


def slices(count: int) -> list[slice]:
    """The numbers below `count`, in parts to be looked at one after the other."""
    return [slice(first, min(first + AT_ONCE, count)) for first in range(0, count, AT_ONCE)]


def memory_mapped(arrays: Iterable[np.ndarray], kind: type, count: int) -> np.ndarray:
    """The arrays one after the other, `count` elements in all, not to be written to.

    A long one is mapped from a file without a name, which goes with it: the system may take its
    memory back. Raises UserError when there is no space for it.
    """
    if count <= IN_MEMORY:
        return np.concatenate([np.zeros(0, kind), *arrays], dtype=kind, casting="unsafe")
    with storing(ORDER), unnamed_file() as file:
        for array in arrays:
            array.astype(kind, copy=False).tofile(file)
        file.flush()
        return np.asarray(np.memmap(file, kind, mode="r", shape=(count,)))


def unnamed_file() -> IO[bytes]:
    """A file in the cache folder that goes when it is closed."""
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    return tempfile.TemporaryFile(dir=folder, prefix="unfinished-")


def hash_partitions(arrays: Iterable[np.ndarray], kind: type, count: int) -> Iterator[np.ndarray]:
    """The elements of the arrays, `count` in all, in shares of about SHARE at most: equal ones are
    in the same share. Raises UserError as `memory_mapped`."""
    of = 1 + count // PARTITION
    with ExitStack() as until_the_end, storing(ORDER):
        files = [until_the_end.enter_context(unnamed_file()) for _ in range(of)]
        for array in arrays:
            for which, file in enumerate(files):
                array[array % of == which].astype(kind, copy=False).tofile(file)
        for file in files:
            file.seek(0)
            yield np.fromfile(file, kind)
