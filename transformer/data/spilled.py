"""Arrays with a number for each pair of a corpus: on disk when there are millions of them."""

import tempfile
from collections.abc import Iterable, Sequence

import numpy as np

from transformer.errors import UserError
from transformer.machine.cache import cache_folder

AT_ONCE = 50_000
"""Pairs looked at together: memory does not grow with the corpus."""

IN_MEMORY = 4_000_000
"""An array of more elements is on disk."""


def parts(count: int) -> list[slice]:
    """The numbers below `count`, in parts to be looked at one after the other."""
    return [slice(first, min(first + AT_ONCE, count)) for first in range(0, count, AT_ONCE)]


def spilled(arrays: Iterable[np.ndarray], kind: type, count: int) -> np.ndarray:
    """The arrays one after the other, `count` elements in all, not to be written to.

    A long one is mapped from a file without a name, which goes with it: the system may take its
    memory back. Raises UserError when there is no space for it.
    """
    if count <= IN_MEMORY:
        return np.concatenate([np.zeros(0, kind), *arrays], dtype=kind, casting="unsafe")
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder, prefix="unfinished-") as file:
            for array in arrays:
                array.astype(kind, copy=False).tofile(file)
            file.flush()
            return np.memmap(file, kind, mode="r", shape=(count,))
    except OSError as error:
        raise UserError(
            f"cannot store the order of the corpus in {folder} ({error.strerror or error}): set "
            "the variable XDG_CACHE_HOME to a folder with space"
        ) from error


def share(array: np.ndarray, which: int, of: int) -> np.ndarray:
    """Those elements that leave `which` when divided by `of`."""
    cut: Sequence[np.ndarray] = [array[part] for part in parts(len(array))]
    return np.concatenate([array[:0], *(part[part % of == which] for part in cut)])
