"""Files: written atomically and durably, locked, and kept in the user's cache folder.

A file or folder gets its name when all of it is on disk, so that neither an error nor a kill nor a
power cut leaves a part of it under that name.
"""

import errno
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from transformer.errors import UserError, naming

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None

UNSUPPORTED = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}
"""Errors of file systems that cannot lock, as some of clusters cannot."""
TRIES = 20
"""How often an unfinished folder is removed, in tenths of a second."""


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """A path to write to, which becomes `path`, or is removed after an error."""
    temporary = path.with_name(f"{path.name}.tmp")
    try:
        with naming(temporary):
            yield temporary
        publish(temporary, path)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


@contextmanager
def atomic_directory(path: Path, keep: Callable[[Path], bool] | None = None) -> Iterator[Path]:
    """A folder to write to, which becomes `path`, or is removed after an error.

    Several processes may make the same folder at once: with `keep`, one that is there already stays
    if `keep(path)`, and is replaced otherwise. Without it, it is an OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
    try:
        temporary.chmod(0o755)
        yield temporary
        if keep is None:
            publish(temporary, path)
            return
        with locked(path.parent):
            if not keep(path):
                shutil.rmtree(path, ignore_errors=True)
                publish(temporary, path)
    finally:
        for _ in range(TRIES):  # a thread of Orbax may still write there after an error
            if not temporary.exists():
                break
            shutil.rmtree(temporary, ignore_errors=True)
            time.sleep(0.1)


def publish(temporary: Path, path: Path) -> None:
    """Renames a file or folder once it is on disk; returns when its new name is, too."""
    sync_tree(temporary)
    os.replace(temporary, path)
    sync(path.parent)


def write_text(path: Path, text: str) -> None:
    """Writes a file atomically."""
    with atomic_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def append_text(path: Path, text: str) -> None:
    """Adds to a file, which need not exist; returns when the text is on disk."""
    with naming(path), path.open("a", encoding="utf-8") as file:
        is_new = file.tell() == 0
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    if is_new:
        sync(path.parent)


def sync(path: Path) -> None:
    """Returns when a file, or the names of a folder's files, are on disk.

    Some file systems cannot sync a folder, and Windows cannot open one.
    """
    with naming(path), suppress(PermissionError if path.is_dir() else ()):
        number = os.open(path, os.O_RDONLY)
        try:
            with suppress(OSError if path.is_dir() else ()):
                os.fsync(number)
        finally:
            os.close(number)


def sync_tree(path: Path) -> None:
    """`sync` of a file or folder and of everything inside it."""
    for place, folders, files in os.walk(path):
        for name in (*folders, *files):
            sync(Path(place, name))
    sync(path)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Waits until no other process is in this context with the same folder.

    Where the file system cannot lock, nobody waits.
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


def is_locked(file: int) -> bool:
    """Whether another process has locked an open file; if not, this one has until it closes it.

    Where the file system cannot lock, no file is locked.
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


def cache_folder() -> Path:
    """The folder `transformer` in the user's cache folder (XDG base directory specification)."""
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "transformer"
    except RuntimeError as error:
        raise UserError("you have no home folder: set XDG_CACHE_HOME to a folder") from error


@contextmanager
def storing(what: str) -> Iterator[None]:
    """Raises UserError where something that belongs in the cache folder cannot be written there."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"cannot store {what} in {cache_folder()} ({error.strerror or error}): set the "
            "variable XDG_CACHE_HOME to a folder with space"
        ) from error
