"""The training loop: update, report, validate, save, stop. It knows no model."""

import os
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NoReturn, Protocol, TypeVar, runtime_checkable

from transformer.config import TrainConfig
from transformer.model.batch import Batch
from transformer.training.step import StepMetrics, TrainState

Position = TypeVar("Position", contravariant=True)

MOST_SKIPPED = 10
"""Training gives up after this many skipped updates in a row: more than are in flight, so that the
state is still the one that the last of them had."""

MAX_IN_FLIGHT = 8
"""Updates dispatched before waiting for the oldest: enough to keep the device busy, and not too
many (XLA aborts when hundreds of steps wait on few cores)."""

HANGUP = getattr(signal, "SIGHUP", None)
"""Windows does not have this signal."""


def stop_on_signals() -> Callable[[], bool]:
    """A function that says whether Ctrl-C, SIGTERM, or SIGHUP of a terminal that is closed came
    since. A second one ends the process. Those that are ignored, as under nohup, still are."""
    received, terminals = [], [output for output in (1, 2) if os.isatty(output)]

    def remember(number, frame):
        received.append(number)
        signal.signal(number, signal.default_int_handler)
        if number == HANGUP:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            for output in terminals:  # which would fail from now on
                os.dup2(nowhere, output)
        print("\nstopping after this update, which is saved; interrupt again to quit at once")

    for number in (signal.SIGINT, signal.SIGTERM, HANGUP):
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, remember)
    return lambda: bool(received)


class Clock:
    """Seconds spent on updates; it stops while `paused`."""

    def __init__(self, seconds: float = 0.0):
        self._before = seconds
        self._started: float | None = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Seconds so far, including those that the clock began with."""
        running = 0.0 if self._started is None else time.perf_counter() - self._started
        return self._before + running

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stops the clock until the `with` ends."""
        self._before, self._started = self.seconds, None
        try:
            yield
        finally:
            self._started = time.perf_counter()


@dataclass
class EarlyStopping:
    """Ends training after some validations in a row without a better score, on any schedule.

    patience  `train.patience`; 0: never
    best      the highest model-selection score so far, None before the first validation
    waited    validations since then
    """

    patience: int
    best: float | None = None
    waited: int = 0

    def validated(self, score: float) -> None:
        """Takes the score of one more validation; higher is better."""
        if self.best is None or score > self.best:
            self.best, self.waited = score, 0
        else:
            self.waited += 1

    @property
    def should_stop(self) -> bool:
        """Whether `patience` validations in a row have brought no better score."""
        return 0 < self.patience <= self.waited


@runtime_checkable
class Hooks(Protocol[Position]):
    """What the loop calls; `clock` is paused at checkpoints."""

    clock: Clock

    def report(self, step: int, metrics: StepMetrics) -> None:
        """Called for every update, a few updates late; without delay after a skipped one."""

    def give_up(self, state: TrainState, batch: Batch) -> NoReturn:
        """Called when MOST_SKIPPED updates in a row were skipped, with the last batch and the
        state, of which it changed nothing but the step."""

    def checkpoint(self, state: TrainState, position: Position, validate: bool) -> None:
        """Called every `validate_every` updates and at the end, and with `validate` false if
        training stops in between. `position` is that of the stream after the last batch used."""

    def should_stop(self) -> bool:
        """Whether to save and stop after this update."""

    def is_over(self) -> bool:
        """Whether training ends early."""


def train(
    settings: TrainConfig,
    state: TrainState,
    stream: Iterator[tuple[Batch, Position]],
    update: Callable[[TrainState, Batch, int], tuple[TrainState, StepMetrics]],
    hooks: Hooks[Position],
) -> TrainState:
    """Trains until `settings.steps`, or until a hook ends training; update(state, batch, step)
    makes update number `step`, counted from 1."""
    pending: deque[tuple[int, StepMetrics, Batch]] = deque()
    step, skipped = int(state.step), 0
    while step < settings.steps and not hooks.is_over():
        batch, position = next(stream)
        step += 1
        state, metrics = update(state, batch, step)
        pending.append((step, metrics, batch))
        stopping = hooks.should_stop()
        validating = step % settings.validate_every == 0 or step == settings.steps
        pausing = stopping or validating
        while len(pending) > (0 if pausing or skipped else MAX_IN_FLIGHT):
            number, metrics, batch = pending.popleft()
            hooks.report(number, metrics)
            skipped = skipped + 1 if metrics.skipped else 0
            if skipped == MOST_SKIPPED:
                hooks.give_up(state, batch)
        if pausing:
            with hooks.clock.paused():
                hooks.checkpoint(state, position, validating)
        if stopping:
            break
    return state
