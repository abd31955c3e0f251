"""How much memory is free: of an accelerator, or on a CPU for this process."""

from collections.abc import Iterator
from pathlib import Path

import jax

from transformer.machine.malloc import return_memory

try:
    import resource
except ImportError:  # not on Windows
    resource = None

TABLES, GROUPS = Path("/proc"), Path("/sys/fs/cgroup")
CGROUPS = (
    ("memory.max", "memory.current"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
)
"""Files with the limit of a container and its use: version 2, and 1."""


def free_memory() -> int | None:
    """Bytes that are free on a device of this process, the least of several; None where unknown.

    On a CPU its devices share the system's memory, within a container's limit and `ulimit -v`;
    unused memory of the process is returned first.
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
    for names in CGROUPS:
        try:
            limit, used = (int((GROUPS / name).read_text()) for name in names)
        except (OSError, ValueError):  # none, or "max"
            continue
        yield limit - used


def _table(file: str, name: str) -> int | None:
    """A line of one of Linux's tables, such as "VmRSS:  1024 kB", in bytes."""
    path = TABLES / file
    for line in path.read_text().splitlines() if path.exists() else []:
        if line.startswith(f"{name}:"):
            return 1024 * int(line.split()[1])
    return None
