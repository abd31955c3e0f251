"""The training loop: step, report, evaluate, save, stop. Takes functions, knows no model."""

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from transformer.config import TrainConfig
from transformer.model.batch import Batch
from transformer.training.loss import LossSums
from transformer.training.step import TrainState

Position = TypeVar("Position")

MAX_IN_FLIGHT = 8
"""Updates dispatched before waiting for the oldest: the device is never idle, nor is the queue long
(XLA aborts when hundreds of steps wait on few cores)."""


class Clock:
    """Seconds spent on updates; stands still while `paused`."""

    def __init__(self, seconds: float = 0.0):
        self._before = seconds
        self._started: float | None = time.perf_counter()

    @property
    def seconds(self) -> float:
        running = 0.0 if self._started is None else time.perf_counter() - self._started
        return self._before + running

    @contextmanager
    def paused(self) -> Iterator[None]:
        self._before, self._started = self.seconds, None
        try:
            yield
        finally:
            self._started = time.perf_counter()


def train(
    settings: TrainConfig,
    state: TrainState,
    stream: Iterator[tuple[Batch, Position]],
    update: Callable[[TrainState, Batch], tuple[TrainState, LossSums]],
    report: Callable[[int, LossSums], None],
    checkpoint: Callable[[TrainState, Position, bool], None],
    clock: Clock,
    should_stop: Callable[[], bool],
) -> TrainState:
    """Updates until `settings.steps`, or until `should_stop()`.

    report(step, sums) is called for every update, a few updates late.
    checkpoint(state, position, validate) is called every `validate_every` updates and at the end;
    `validate` is false when the loop was asked to stop, since then time is short. `position` is
    the stream's after the last batch used.
    """
    waiting: deque[tuple[int, LossSums]] = deque()
    step = int(state.step)
    while step < settings.steps:
        batch, position = next(stream)
        state, sums = update(state, batch)
        step += 1
        waiting.append((step, sums))
        stopping = should_stop()
        pausing = stopping or step % settings.validate_every == 0 or step == settings.steps
        while len(waiting) > (0 if pausing else MAX_IN_FLIGHT):
            report(*waiting.popleft())
        if pausing:
            with clock.paused():
                checkpoint(state, position, not stopping)
        if stopping:
            break
    return state
