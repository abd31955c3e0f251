"""Arrays with a number for each pair of a large corpus, kept on disk."""

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import IO

import numpy as np

from transformer.machine.files import cache_folder, storing

SLICE = 50_000
"""Pairs processed together: memory does not grow with the corpus."""

IN_MEMORY = 250_000
"""An array of more elements is on disk."""

PARTITION = 4_000_000
"""Elements that are sorted together."""

ORDER = "the order of the corpus"
"""What messages call these arrays."""


def slices(count: int) -> list[slice]:
    """The numbers below `count`, in slices to be processed one after the other."""
    return [slice(first, min(first + SLICE, count)) for first in range(0, count, SLICE)]


def memory_mapped(arrays: Iterable[np.ndarray], kind: type, count: int) -> np.ndarray:
    """The arrays one after the other, `count` elements in all, not to be written to.

    A long one is mapped from a file without a name, which goes with it: the system may take its
    memory back. Raises UserError when there is no space for it.
    """
    if count <= IN_MEMORY:
        return np.concatenate([np.zeros(0, kind), *arrays], dtype=kind, casting="unsafe")
    with storing(ORDER), _unnamed_file() as file:
        for array in arrays:
            array.astype(kind, copy=False).tofile(file)
        file.flush()
        return np.asarray(np.memmap(file, kind, mode="r", shape=(count,)))


def hash_partitions(arrays: Iterable[np.ndarray], kind: type, count: int) -> Iterator[np.ndarray]:
    """The elements of the arrays, `count` in all, in partitions of about PARTITION elements: equal
    elements are in the same partition. Raises UserError as `memory_mapped`."""
    partitions = 1 + count // PARTITION
    with ExitStack() as stack, storing(ORDER):
        files = [stack.enter_context(_unnamed_file()) for _ in range(partitions)]
        for array in arrays:
            for number, file in enumerate(files):
                array[array % partitions == number].astype(kind, copy=False).tofile(file)
        for file in files:
            file.seek(0)
            yield np.fromfile(file, kind)


def _unnamed_file() -> IO[bytes]:
    """A file in the cache folder that is deleted when it is closed."""
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    return tempfile.TemporaryFile(dir=folder, prefix="unfinished-")
