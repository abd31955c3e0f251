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
"""Updates before the profile, which compile most batch shapes, and updates in it."""


def profiled(stream: Iterator[Item], folder: Path, left: int) -> Iterator[Item]:
    """The same stream of batches; JAX's profiler runs during some of the first of the updates that
    are `left`, and prints which and where. If training ends meanwhile, the profile has the updates
    until then."""
    if left <= BEFORE:
        warnings.warn(
            f"there is no profile in {folder}: it would begin after {BEFORE} updates, and "
            f"{left} are left: raise train.steps",
            stacklevel=2,
        )
        yield from stream
        return
    print(f"profile     of updates {BEFORE + 1} to {BEFORE + PROFILED} from here on, in {folder}")
    yield from islice(stream, BEFORE)
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0  # calls of Python functions would hide everything else
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
    """Whether the profiler succeeds; if not, a warning says why, and training continues."""
    try:
        action()
    except (jax.errors.JaxRuntimeError, OSError) as error:
        warnings.warn(f"there is no profile in {folder}: {one_line(error)}", stacklevel=3)
        return False
    return True
