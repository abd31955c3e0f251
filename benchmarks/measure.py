"""What the benchmarks share: timing contestants in turn, and describing the machine."""

import gc
import multiprocessing
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from transformer.model.batch import BOS, EOS, Batch

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


class Ceilings(NamedTuple):
    """What the machine can do at most, measured: float operations and bytes moved a second."""

    flops: float
    bytes: float

    def __str__(self) -> str:
        return (
            f"ceilings: matrix product {self.flops / 1e9:,.0f} GFLOP/s, "
            f"copy {self.bytes / 1e9:,.0f} GB/s (read and written)"
        )


class Memory(NamedTuple):
    """Bytes of resident memory of a process: after its imports, and at most while at work."""

    imported: int
    peak: int


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


def ceilings(size: int = 3072, megabytes: int = 512, rounds: int = 7) -> Ceilings:
    """The best of `rounds` float32 products of large square matrices, and of large copies."""
    matrix = jnp.ones((size, size))
    product = jax.jit(jnp.matmul)
    # Into the memory that is given up: fresh pages would cost more than the copy.
    block, copy = jnp.ones(megabytes << 18), jax.jit(lambda x: x + 1, donate_argnums=0)
    products, copies = [], []
    for _ in range(rounds + 1):
        products.append(timed(lambda: product(matrix, matrix).block_until_ready())[1])
        block, seconds = timed(lambda x: copy(x).block_until_ready(), block)
        copies.append(seconds)
    return Ceilings(2 * size**3 / min(products[1:]), 2 * block.nbytes / min(copies[1:]))


def product_speed(size: int, count: int = 20) -> float:
    """Float operations a second of square bfloat16 products, at best."""
    matrix = jax.random.normal(jax.random.key(0), (size, size), jnp.bfloat16) / size**0.5
    chain = jax.jit(lambda x: jax.lax.fori_loop(0, count, lambda _, y: y @ x, x))
    seconds = [timed(lambda: chain(matrix).block_until_ready())[1] for _ in range(6)]
    return 2 * size**3 * count / min(seconds[1:])


def peak_memory(build: Callable[..., Callable[[], object]], *arguments: Any) -> Memory:
    """Memory of the work that `build(*arguments)` returns, in a process of its own (Linux).

    The peak is that of three repetitions after the first two: compiling, which happens once, and
    building are not in it. `build` is a function at the top of a module.
    """
    return in_own_process(_memory_of, build, *arguments)


def in_own_process(function: Callable[..., Result], *arguments: Any) -> Result:
    """What a function at the top of a module returns, called in a new process."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def _memory_of(build: Callable[..., Callable[[], object]], *arguments: Any) -> Memory:
    imported = memory_status("VmRSS")
    work = build(*arguments)
    for _ in range(2):
        work()
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here on
    for _ in range(3):
        work()
    return Memory(imported, memory_status("VmHWM"))


def memory_status(name: str) -> int:
    """A size that Linux tells about this process, in bytes: VmRSS is resident, VmHWM its peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(f"{name}:")).split()[1])


def full_batch(rows: int, source_length: int, target_length: int, vocabulary: int) -> Batch:
    """Random tokens without padding; every sentence ends in EOS. The same for the same shape."""
    generator = np.random.default_rng(0)
    source = generator.integers(4, vocabulary, (rows, source_length), np.int32)
    target = generator.integers(4, vocabulary, (rows, target_length), np.int32)
    source[:, -1] = target[:, -1] = EOS
    target_in = np.roll(target, 1, axis=1)
    target_in[:, 0] = BOS
    return Batch(source, target_in, target)


def table(rows: Sequence[dict[str, str]]) -> str:
    """A markdown table; the keys of the rows, the same in all, are its headings."""
    headings = list(rows[0]) if rows else ["nothing yet"]
    lines = [headings, ["---"] * len(headings), *(list(row.values()) for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
