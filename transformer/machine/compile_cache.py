"""JAX's cache of compiled programs, in which a damaged one is replaced."""

import contextlib
from pathlib import Path

import jax
from jax._src import compilation_cache  # what reads the cache has no public name

_read = compilation_cache.get_executable_and_time


def replace_damaged_programs() -> None:
    """What cannot be read leaves the cache, so that what is compiled in its place is kept.

    JAX warns, compiles and keeps the damaged file: it would do so at every start.
    """
    compilation_cache.get_executable_and_time = _read_or_remove


def _read_or_remove(key: str, *arguments):
    try:
        return _read(key, *arguments)
    except Exception:
        for ending in ("cache", "atime"):
            with contextlib.suppress(OSError):  # a folder that is not ours to write to
                (Path(jax.config.jax_compilation_cache_dir) / f"{key}-{ending}").unlink()
        raise
