"""A profile of a few updates: what the device does, and for how long."""

import warnings
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TypeVar

import jax

from transformer.errors import one_line

Item = TypeVar("Item")

BEFORE, PROFILED = 50, 10
"""Updates that only warm up (most batch shapes are compiled by then), and those in the profile."""


def profiled(stream: Iterator[Item], folder: Path) -> Iterator[Item]:
    """The same stream of batches; while some of the first are worked on, JAX's profiler watches.

    Says of which and where; if training ends meanwhile, the profile has what there was.
    """
    print(f"profile     of updates {BEFORE + 1} to {BEFORE + PROFILED} from here on, in {folder}")
    yield from islice(stream, BEFORE)
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0  # every call of a Python function would hide what counts
    begin = partial(
        jax.profiler.start_trace, folder, create_perfetto_trace=True, profiler_options=options
    )
    if _works(begin, folder):
        try:
            yield from islice(stream, PROFILED)
        finally:
            is_written = _works(jax.profiler.stop_trace, folder)
        if is_written:
            print(
                f"profile of {PROFILED} updates: {folder}; show its perfetto_trace.json.gz on "
                f"https://ui.perfetto.dev, or all of it with: tensorboard --logdir {folder}"
            )
    yield from stream


def _works(action: Callable[[], None], folder: Path) -> bool:
    """Whether the profiler does as it is told; if not it is said why, and training goes on."""
    try:
        action()
    except (jax.errors.JaxRuntimeError, OSError) as error:
        warnings.warn(f"there is no profile in {folder}: {one_line(error)}", stacklevel=3)
        return False
    return True
