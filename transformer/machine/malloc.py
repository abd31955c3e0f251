"""How the C library manages XLA's memory."""

import ctypes

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""Numbers of glibc's settings (malloc.h)."""

LARGE = 2**30
"""Bytes of a block that is returned when it is freed. glibc often finds no room for it where the
one before it was, and a process would hold several."""


SMALLEST_RETURNED = 2**23
"""Bytes of a block that is returned where memory is tight (`return_blocks`)."""


def keep_memory() -> None:
    """Freed memory stays with the process, except for large blocks, where the C library is glibc.

    On a CPU XLA takes memory anew for every update, hundreds of MB. glibc would return it to the
    system each time, and get it back as pages that must be zeroed: 0.1 s of 0.4 s for an update.
    Where an accelerator does the work, it changes little.

    It holds for the main thread, which computes (`devices.compute_in_this_thread`). Others have
    heaps of their own, so that those that compile do not wait for each other.
    """
    for option, value in ((MMAP_THRESHOLD, LARGE), (TRIM_THRESHOLD, -1)):
        _call("mallopt", option, value)


def return_blocks() -> None:
    """From now on smaller blocks are returned when they are freed, too: slower, for tight memory.

    Otherwise a process may hold three times the temporaries of an update, since glibc often finds
    no room for a block of less than LARGE either where the one before it was."""
    _call("mallopt", MMAP_THRESHOLD, SMALLEST_RETURNED)


def return_memory() -> None:
    """Returns free memory to the system, after work that needs more than what follows."""
    _call("malloc_trim", 0)


def _call(function: str, *arguments: int) -> None:
    """A function of the C library, where it has it."""
    try:
        found = getattr(ctypes.CDLL(None), function)
    except (AttributeError, OSError, TypeError):
        return
    found(*arguments)
