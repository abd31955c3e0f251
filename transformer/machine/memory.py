"""How much memory is free: of an accelerator, or on a CPU for this process."""

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import jax

from transformer.machine.malloc import return_memory

try:
    import resource
except ImportError:  # not on Windows
    resource = None

TABLES, GROUPS = Path("/proc"), Path("/sys/fs/cgroup")


class GroupFiles(NamedTuple):
    """In which files a version of Linux's control groups has the limit of a group.

    limit    the file with the bytes that a group may use, or "max"
    used     the file with the bytes that it uses, cached files among them
    cached   the line of its table (STATISTICS) with the bytes that the system can take back
    """

    limit: str
    used: str
    cached: str


CGROUPS = {
    "": GroupFiles("memory.max", "memory.current", "inactive_file"),
    "memory": GroupFiles("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}
"""By the controllers in a line of /proc/self/cgroup, which also name the folder of the groups: of
version 2, and of 1."""

STATISTICS = "memory.stat"


def free_memory() -> int | None:
    """Bytes that are free on a device of this process, the least of several; None where unknown.

    On a CPU its devices share the system's memory, within the limit of a container or a job, and
    `ulimit -v`; unused memory of the process is returned first.
    """
    if jax.default_backend() == "cpu":
        return_memory()
        found = [_table("meminfo", "MemAvailable"), *_of_groups(), _of_addresses()]
        found = [free // jax.local_device_count() for free in found if free is not None]
    else:
        stats = [device.memory_stats() or {} for device in jax.local_devices()]
        found = [s["bytes_limit"] - s["bytes_in_use"] for s in stats if "bytes_limit" in s]
    return min(found, default=None)


def peak_memory() -> int | None:
    """The most bytes of memory that this process has held."""
    return _table("self/status", "VmHWM")


def _of_addresses() -> int | None:
    """Half of what `ulimit -v` leaves: the next update takes its addresses before those of the one
    under way are given back."""
    used = _table("self/status", "VmSize")
    limit = resource.getrlimit(resource.RLIMIT_AS)[0] if resource and used else None
    return None if not used or limit in (None, -1) else (limit - used) // 2


def _of_groups() -> Iterator[int]:
    """What the groups of this process leave: its own, and those that hold that one. In a container
    its own may be outside of what can be seen, where the outermost is the container's."""
    for line in _lines(TABLES / "self/cgroup"):
        _, controllers, own = line.split(":", 2)
        if files := CGROUPS.get(controllers):
            path = PurePosixPath(own.strip("/"))
            for group in (path, *path.parents):
                yield from _of_group(GROUPS / controllers / group, files)


def _of_group(folder: Path, files: GroupFiles) -> Iterator[int]:
    try:
        limit, used = (int((folder / name).read_text()) for name in (files.limit, files.used))
    except (OSError, ValueError):  # none, or "max"
        return
    words = map(str.split, _lines(folder / STATISTICS))
    cached = sum(int(number) for name, number in words if name == files.cached)
    yield limit - max(used - cached, 0)


def _table(file: str, name: str) -> int | None:
    """A line of one of Linux's tables, such as "VmRSS:  1024 kB", in bytes."""
    for line in _lines(TABLES / file):
        if line.startswith(f"{name}:"):
            return 1024 * int(line.split()[1])
    return None


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []
