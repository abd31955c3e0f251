"""What the benchmarks share: timing contestants in turn, and describing the machine."""

import importlib.util
import multiprocessing
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib import metadata
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from transformer.commands.command_line import parse_script
from transformer.errors import UserError
from transformer.machine.devices import compute_in_this_thread
from transformer.machine.malloc import keep_memory, return_memory
from transformer.model.batch import BOS, EOS, Batch

Command = TypeVar("Command")
Result = TypeVar("Result")

PAUSE = 0.3
"""Seconds between contestants. The idle threads of OpenMP spin for up to 0.2 s before they sleep:
without a pause the end of one contestant would slow the beginning of the next."""

STATUS, PEAK_RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")
"""Where Linux tells about a process, and forgets its peak of memory."""


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

    @property
    def needed(self) -> int:
        """What came after the imports."""
        return self.peak - self.imported


def parse_lists(command: type[Command], words: list[str], prog: str) -> Command:
    """`parse_script` for scripts whose settings are lists, all of which must have a value.

    But `contestants`: without any, ours is measured alone.
    """
    parsed = parse_script(command, words, prog)
    for name, value in vars(parsed).items():
        if value == () and name != "contestants":
            raise UserError(f"--{name.replace('_', '-')} needs a value: nothing would be measured")
    return parsed


def require(*packages: str) -> None:
    """Raises UserError when one of the peers' packages is not installed."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(f"this needs {' and '.join(missing)}: pip install -e '.[bench]'")


def run_script(*words: str, text: str | None = None) -> str:
    """Runs a script, such as train.py, with these words to its end, with a text as its input, and
    returns its output. Raises UserError with its errors if it failed."""
    result = subprocess.run([sys.executable, *words], input=text, capture_output=True, text=True)
    if result.returncode:
        raise UserError(f"{' '.join(words)} failed: {result.stderr.strip()}")
    return result.stdout


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def environment_with_cache(folder: str) -> dict[str, str]:
    """The environment of a process whose caches, of compiled programs too, are in this folder."""
    environment = {**os.environ, "XDG_CACHE_HOME": folder}
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)
    return environment


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
    contestants: dict[str, Callable[[], object]], rounds: int, warmup: int = 2
) -> dict[str, Timing]:
    """Times the contestants in turn, one repetition each a round, so that drift meets them all.

    Each must return only when its work is done. The `warmup` rounds are not counted.
    """
    turns = {name: partial(timed, run) for name, run in contestants.items()}
    return {name: timing for name, (timing, _) in take_turns(turns, rounds, warmup).items()}


def take_turns(
    turns: dict[str, Callable[[], tuple[Any, float]]], rounds: int, warmup: int
) -> dict[str, tuple[Timing, Any]]:
    """Calls what returns a result and seconds, in turn; the timing and the last result of each."""
    seconds, results = durations(turns, rounds, warmup)
    return {name: (summary(values), results[name]) for name, values in seconds.items()}


def against_the_first(
    contestants: dict[str, Callable[[], object]], rounds: int, warmup: int
) -> dict[str, tuple[float, float]]:
    """Interleaved as in `alternate`: the median seconds of each, and the median ratio to the
    first contestant in the same round."""
    turns = {name: partial(timed, run) for name, run in contestants.items()}
    seconds, _ = durations(turns, rounds, warmup)
    first = next(iter(seconds.values()))
    return {
        name: (
            statistics.median(values),
            statistics.median(value / base for value, base in zip(values, first)),
        )
        for name, values in seconds.items()
    }


def durations(
    turns: dict[str, Callable[[], tuple[Any, float]]], rounds: int, warmup: int
) -> tuple[dict[str, list[float]], dict[str, Any]]:
    """The seconds of every counted round, and the last result, of each."""
    results: dict[str, Any] = {}
    seconds: dict[str, list[float]] = {name: [] for name in turns}
    for number in range(warmup + rounds):
        for name, turn in turns.items():
            time.sleep(PAUSE)
            results[name], elapsed = turn()
            if number >= warmup:
                seconds[name].append(elapsed)
    return seconds, results


def timed(function: Callable[..., Result], *arguments: Any) -> tuple[Result, float]:
    """The result of a call, and its seconds."""
    start = time.perf_counter()
    result = function(*arguments)
    return result, time.perf_counter() - start


def quickest(contestants: dict[str, Callable[[], object]]) -> str:
    """The fastest contestant, by the better of two repetitions."""
    seconds = {name: min(timed(run)[1] for _ in range(2)) for name, run in contestants.items()}
    return min(seconds, key=seconds.get)


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


def memory_cells(memory: Memory | None) -> dict[str, str]:
    """Cells of a table: the peak, and what of it came after the imports, in MB of 10^6 bytes."""
    if memory is None:
        return {"peak MB": "-", "above the imports": "-"}
    return {
        "peak MB": f"{memory.peak / 1e6:,.0f}",
        "above the imports": f"{memory.needed / 1e6:,.0f}",
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


class Outcome(NamedTuple):
    """Seconds of a contestant's first repetition, its last result, and its memory."""

    timing: Timing
    first: float
    result: Any
    memory: Memory | None


def contest(builders: dict[str, Sequence[Any]], rounds: int, warmup: int = 2) -> dict[str, Outcome]:
    """Times contestants in turn, as `alternate` does, each in a process of its own.

    A contestant is a function at the top of a module, and its arguments; it returns the work. In
    one process, what one leaves behind (threads, and memory in pieces) slows the others: by a
    factor of two, when CTranslate2 translated one sentence after it had translated many. All keep
    freed memory, and once the first two repetitions are over give back what is free, as train.py
    does when it has validated. The memory measured is what they had at most from then on (only on
    Linux).
    """
    context = multiprocessing.get_context("spawn")
    workers = {}
    for name, (build, *arguments) in builders.items():
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs, build, arguments), daemon=True)
        process.start()
        theirs.close()  # theirs alone is left, so that their death ends the waiting
        workers[name] = ours
        answer(name, ours)  # one after the other: building takes all cores

    def turn(name: str) -> tuple[Any, float]:
        workers[name].send("again")
        return answer(name, workers[name])

    turns = {name: partial(turn, name) for name in workers}
    first = {name: again()[1] for name, again in turns.items()}
    outcomes = {}
    for name, (timing, result) in take_turns(turns, rounds, warmup).items():
        workers[name].send("end")
        outcomes[name] = Outcome(timing, first[name], result, answer(name, workers[name]))
    return outcomes


def answer(name: str, worker: Connection) -> Any:
    """What a contestant's process says next. Raises UserError when it has ended."""
    try:
        return worker.recv()
    except (EOFError, ConnectionError) as error:
        raise UserError(f"{name} gave up: read what it printed above") from error


def _serve(connection: Connection, build: Callable[..., Callable[[], Any]], arguments) -> None:
    """A contestant's process: it works whenever it is asked to, and at last tells its memory."""
    keep_memory()
    compute_in_this_thread()
    imported = memory_status("VmRSS")
    work = build(*arguments)
    connection.send("ready")
    turns = 0
    while connection.recv() == "again":
        connection.send(timed(work))
        turns += 1
        if turns == 2:
            return_memory()
            forget_peak()
    peak = memory_status("VmHWM")
    connection.send(Memory(imported, peak) if imported and peak else None)


def in_own_process(function: Callable[..., Result], *arguments: Any) -> Result:
    """The result of a function at the top of a module, called in a new process."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def memory_status(name: str) -> int | None:
    """A size that Linux tells about this process, in bytes: VmRSS is resident, VmHWM its peak."""
    if not STATUS.exists():
        return None
    lines = STATUS.read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(f"{name}:")).split()[1])


def require_memory_status() -> None:
    """Raises UserError where `memory_status` knows nothing."""
    if not STATUS.exists():
        raise UserError("how much memory a process takes, only Linux tells")


def forget_peak() -> None:
    """The peak of memory counts from here on, where Linux counts it."""
    if PEAK_RESET.exists():
        PEAK_RESET.write_text("5")


def full_batch(
    rows: int, source_length: int, target_length: int, vocabulary: int, seed: int = 0
) -> Batch:
    """Random tokens without padding; every sentence ends in EOS. Arguments decide all."""
    generator = np.random.default_rng(seed)
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
