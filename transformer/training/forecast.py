"""A forecast of training: memory, compile time and time, for each batch shape."""

import math
import statistics
import time
from collections.abc import Iterator, Sequence

import jax
import numpy as np
from jax.sharding import Mesh

from transformer.config import Config
from transformer.machine.memory import free_memory, peak_memory
from transformer.machine.targets import Target
from transformer.model.batch import Batch
from transformer.training.programs import USABLE, Program, compile_update, new_state, operations

RUNS = 3
"""Timed updates of each shape, after one that is not timed."""

HEADER = (
    "sentences  source  target  an epoch  compiled in  GB a device  T operations  GB moved  seconds"
)


def forecast(
    config: Config, mesh: Mesh, target: Target | None, samples: Sequence[tuple[Batch, int]]
) -> Iterator[str]:
    """Lines of a table and a summary, each as soon as it is known.

    `samples`: a batch of each shape, and the number of them in an epoch. `target`: specifications
    of the devices of the mesh, if these are not there; otherwise updates are made and timed."""
    free = free_memory() if target is None else target.memory
    state = new_state(mesh, config) if target is None else None
    programs, epoch = [], 0.0
    yield HEADER
    for batch, count in sorted(samples, key=lambda s: operations(config, s[0]), reverse=True):
        program = compile_update(mesh, config, batch, target and target.platform)
        programs.append(program)
        if target is not None:
            seconds = _floor(config, mesh, target, program, batch)
        elif free is None or _needed(program) <= USABLE * free:
            seconds, state = _timed(program, state, batch)
        else:
            seconds = math.inf
        epoch += count * seconds
        yield _row(config, batch, count, program, seconds)
    yield _memory(programs, free, target)
    if math.isinf(epoch):
        return
    updates = sum(count for _, count in samples)
    yield _time(config, programs, updates, epoch, target)


def _needed(program: Program) -> int:
    """Bytes on a device; a CPU keeps a copy of the state while it is saved in the background."""
    return program.memory + (program.arguments if jax.default_backend() == "cpu" else 0)


def _timed(program, state, batch):
    seconds = []
    for _ in range(RUNS + 1):
        start = time.perf_counter()
        state, metrics = program.run(state, batch, np.float32(0))
        jax.block_until_ready((state.step, metrics))
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[1:]), state


def _floor(config: Config, mesh: Mesh, target: Target, program: Program, batch: Batch) -> float:
    """A lower bound: products at the peak rate of the device, or bytes at its bandwidth."""
    rate = target.bfloat16 if config.model.dtype == "bfloat16" else target.float32
    products = operations(config, batch) / mesh.size / rate
    return max(products, (program.moved or 0) / target.bandwidth)


def _row(config: Config, batch: Batch, count: int, program: Program, seconds: float) -> str:
    source, target = (
        "-" if ids is None else ids.shape[1] for ids in (batch.source, batch.target_in)
    )
    moved = "-" if program.moved is None else f"{program.moved / 1e9:.2f}"
    return (
        f"{len(batch.target_out):>9,}  {source:>6}  {target:>6}  {count:>8,}  "
        f"{program.seconds:>9.1f} s  {program.memory / 1e9:>11.3f}  "
        f"{operations(config, batch) / 1e12:>12.3f}  {moved:>8}  {seconds:>7.3g}"
    )


def _memory(programs: Sequence[Program], free: int | None, target: Target | None) -> str:
    largest = max(programs, key=lambda program: program.memory)
    needed = largest.memory if target else _needed(largest)
    held, peak = "", peak_memory()
    if target is None and peak and jax.default_backend() == "cpu":
        total = peak + largest.arguments
        held = f", {total / 1e9:.2f} GB in all with the program and its compilation"
    verdict = ""
    if free is not None:
        whose = "are free" if target is None else "on each"
        fits = "fits" if needed <= USABLE * free else "DOES NOT FIT"
        verdict = f"; {free / 1e9:.2f} GB {whose}: {fits}"
    return (
        f"memory   {largest.arguments / 1e9:.3f} GB of state and batch, up to "
        f"{largest.additional / 1e9:.3f} GB of temporaries{held}{verdict}"
    )


def _time(
    config: Config, programs: Sequence[Program], updates: int, epoch: float, target: Target | None
) -> str:
    steps, compiling = config.train.steps, sum(program.seconds for program in programs)
    how = f"{RUNS} updates of each shape were timed"
    if target is not None:
        how = "at least, by the device's specifications; an H100 took 1.3 to 1.5 times as long"
    return (
        f"time     {compiling:.0f} s for compilation; {steps:,} updates in "
        f"{_duration(steps * epoch / updates)}, an epoch of {updates:,} in {_duration(epoch)} "
        f"({how}); validations take extra time"
    )


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{seconds / 3600:.1f} h" if seconds > 2 * 3600 else f"{seconds / 60:.1f} min"
