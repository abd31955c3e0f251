"""Files that survive a power cut: what the system still holds in memory is gone after one."""

import os
from contextlib import suppress
from pathlib import Path

from transformer.errors import naming


def write_text(path: Path, text: str) -> None:
    """Writes a file whole or not at all."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        with naming(temporary):
            temporary.write_text(text, encoding="utf-8")
        sync(temporary)
        os.replace(temporary, path)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
    sync(path.parent)


def append_text(path: Path, text: str) -> None:
    """Adds to a file, which need not be there yet."""
    with naming(path), path.open("a", encoding="utf-8") as file:
        is_new = file.tell() == 0
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    if is_new:
        sync(path.parent)


def sync(path: Path) -> None:
    """Returns when a file, or the names of a folder's files, are on disk.

    Some file systems cannot say so of a folder, and Windows opens none.
    """
    with naming(path), suppress(PermissionError if path.is_dir() else ()):
        number = os.open(path, os.O_RDONLY)
        try:
            with suppress(OSError if path.is_dir() else ()):
                os.fsync(number)
        finally:
            os.close(number)


def sync_tree(folder: Path) -> None:
    """`sync` of everything in a folder, and of the folder."""
    for place, _, names in os.walk(folder):
        for name in names:
            sync(Path(place, name))
        sync(Path(place))
