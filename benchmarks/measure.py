"""What the benchmarks share: timing contestants in turn, and describing the machine."""

import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

Result = TypeVar("Result")

PAUSE = 0.3
"""Seconds between contestants. The idle threads of OpenMP spin for up to 0.2 s before they sleep:
without a pause the end of one contestant would slow the beginning of the next."""


class Timing(NamedTuple):
    """Seconds of a contestant's repetitions: the least, the quartiles and the number of them."""

    least: float
    lower_quartile: float
    median: float
    upper_quartile: float
    rounds: int


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def machine() -> str:
    """The processor and the cores that this process may use."""
    model = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
        model = names[0] if names else model
    return f"{model}, {cores()} cores, {platform.system()}"


def versions(*packages: str) -> str:
    """The versions of Python and of some packages."""
    found = [f"{package} {metadata.version(package)}" for package in packages]
    return ", ".join([f"Python {platform.python_version()}", *found])


def alternate(
    contestants: dict[str, Callable[[], object]],
    rounds: int,
    warmup: int = 2,
    pause: float = PAUSE,
) -> dict[str, Timing]:
    """Times the contestants in turn, one repetition each a round, so that drift meets them all.

    Each must return only when its work is done. The `warmup` rounds are not counted.
    """
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(warmup + rounds):
        for name, run in contestants.items():
            time.sleep(pause)
            _, elapsed = timed(run)
            if number >= warmup:
                seconds[name].append(elapsed)
    return {name: summary(values) for name, values in seconds.items()}


def timed(function: Callable[..., Result], *arguments: Any) -> tuple[Result, float]:
    """What a call returns, and the seconds it takes."""
    start = time.perf_counter()
    result = function(*arguments)
    return result, time.perf_counter() - start


def summary(seconds: Sequence[float]) -> Timing:
    """The order statistics of some durations."""
    if len(seconds) == 1:
        return Timing(*[seconds[0]] * 4, rounds=1)
    lower, median, upper = statistics.quantiles(seconds, n=4, method="inclusive")
    return Timing(min(seconds), lower, median, upper, len(seconds))


def milliseconds(timing: Timing) -> dict[str, str]:
    """Cells of a table: median, least, and the quartiles, in ms."""
    return {
        "median ms": f"{1000 * timing.median:.1f}",
        "min": f"{1000 * timing.least:.1f}",
        "quartiles": f"{1000 * timing.lower_quartile:.1f} - {1000 * timing.upper_quartile:.1f}",
    }


def table(rows: Sequence[dict[str, str]]) -> str:
    """A markdown table; the keys of the rows, the same in all, are its headings."""
    headings = list(rows[0]) if rows else ["nothing yet"]
    lines = [headings, ["---"] * len(headings), *(list(row.values()) for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
