"""Processes that wait for each other, or find out that another is at work."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None

UNSUPPORTED = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}
"""What file systems say that cannot lock, as some of clusters cannot."""


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Waits until no other process is in this context with the same folder.

    Where nothing can be locked nobody waits.
    """
    if fcntl is None:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        _lock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def is_taken(file: int) -> bool:
    """Whether another process has locked an open file; where not, it is this one's until closed.

    Where nothing can be locked no file is taken.
    """
    if fcntl is None:
        return False
    try:
        _lock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _lock(file: int, how: int) -> None:
    try:
        fcntl.flock(file, how)
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise
