"""What is used of JAX that has no public name, here alone; tried with JAX 0.10.2.

- `distributed.global_state`: the key-value store that processes share. `jax.distributed` starts its
  service and has no function that reads or writes there; jax.process_index() would start a backend.
- `compilation_cache.get_executable_and_time`: reads the cache of compiled programs. There is no
  setting that removes a damaged entry.
"""

import contextlib
from pathlib import Path

import jax
from jax._src import compilation_cache
from jax._src.distributed import global_state

process = global_state
"""`client`, `num_processes`, `process_id` and `coordinator_address` of this process."""

_read = compilation_cache.get_executable_and_time


def replace_damaged_programs() -> None:
    """Removes a damaged program from the cache when it is read, so that it is compiled and kept.

    JAX warns and compiles, but keeps the damaged file: it would do so at every start.
    """
    setattr(compilation_cache, "get_executable_and_time", _read_or_remove)  # noqa: B010


def _read_or_remove(key: str, *arguments):
    try:
        return _read(key, *arguments)
    except Exception:
        for ending in ("cache", "atime"):
            with contextlib.suppress(OSError):  # a folder that is not ours to write to
                (Path(jax.config.values["jax_compilation_cache_dir"]) / f"{key}-{ending}").unlink()
        raise
