"""Processes that train together: start-up, consistency checks, barriers and failure detection.

Each sends the others a heartbeat every second, with its progress. One that is silent for too long,
or reports that it has failed, ends the others with a message that names it and an exit code of its
own. So does a time in which none makes progress. So no wait needs a timeout of its own.
"""

import contextlib
import ctypes
import importlib.metadata
import itertools
import json
import os
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple, NoReturn, TypeVar

import jax

from transformer.errors import UserError, is_out_of_memory, one_line
from transformer.machine.jax_internals import process

Item = TypeVar("Item")

PEER_LOST = 3
"""Exit code of a process that ends because another one is gone, silent, or has failed."""
SECOND = 1.0
START_FACTOR = 5
"""At the start the others are waited for this many times longer than later."""
TIME_TO_READ = 5
"""Seconds for which a process that fails waits until the others have read why."""
RESTART = "start the same command again in all processes to resume from the last checkpoint"
LIBRARIES = ("jax", "jaxlib", "numpy", "optax", "orbax-checkpoint", "sentencepiece")
"""Their versions must be the same in all processes."""
MOST_NAMED = 8
"""Processes that a message lists."""
STATUS = re.compile("(UNKNOWN|INTERNAL|UNAVAILABLE|ABORTED|CANCELLED|DEADLINE_EXCEEDED): ")
"""What XLA's errors begin with, whatever class Python gives them."""

_handlers = []
"""Callbacks from C, which must not be garbage-collected."""


class Heartbeat(NamedTuple):
    """What a process sends every second: how many it has sent, how often it has reported progress,
    and the last report."""

    number: int = -1
    reports: int = 0
    progress: str = "its start"


_own = Heartbeat()


def report_progress(name: str) -> None:
    """Tells the other processes, within a second, what this one has reached."""
    global _own
    _own = Heartbeat(0, _own.reports + 1, name)


def report_each(stream: Iterator[Item], name: str, done: int = 0) -> Iterator[Item]:
    """The stream; each item is reported as progress: `name` and its number, counted from `done`."""
    for number, item in enumerate(stream, done + 1):
        report_progress(f"{name} {number:,}")
        yield item


@contextmanager
def distributed_session(patience: int, stall: int) -> Iterator[None]:
    """Inside, this process is one of several that train together.

    Slurm, Open MPI, Kubernetes and TPU pods tell JAX about the others; elsewhere three variables
    do: JAX_COORDINATOR_ADDRESS (host:port of the first process), JAX_NUM_PROCESSES and
    JAX_PROCESS_ID. Raises UserError without them. Ends this process when the others do not start,
    when one of them is silent for `patience` seconds, or when none makes progress for `stall`
    seconds.
    """
    seconds = START_FACTOR * patience
    end_on_abort(
        lambda: (
            f"--distributed: not all of the {count()} processes reached "
            f"{process.coordinator_address} within {seconds} s: start the same command in each, "
            "and check that the first process can be reached"
        )
    )
    jax.config.update("jax_enable_preemption_service", False)  # train.py handles SIGTERM itself
    try:
        numbers = [os.environ.get(f"JAX_{name}") for name in ("NUM_PROCESSES", "PROCESS_ID")]
        jax.distributed.initialize(
            None,
            *(int(number) if number else None for number in numbers),
            initialization_timeout=seconds,
            heartbeat_timeout_seconds=2 * patience + 60,  # JAX's own, which explain less
            shutdown_timeout_seconds=patience,
        )
    except (ValueError, RuntimeError, LookupError, TypeError, OSError) as error:
        raise UserError(
            f"--distributed: cannot join the other processes ({one_line(error)}); set "
            "JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and JAX_PROCESS_ID for each of them"
        ) from error
    watch = Watch(patience, stall)
    end_on_abort(watch.explain_abort)
    try:
        assert_equal("versions", {name: importlib.metadata.version(name) for name in LIBRARIES})
        yield
        barrier("the end")
    except BaseException as error:
        watch.announce_failure(error)
        raise
    watch.stop()


def count() -> int:
    """How many processes train together."""
    return process.num_processes


def is_first() -> bool:
    """Whether this process prints, and writes the run folder."""
    return process.process_id == 0


def store():
    """The key-value store of JAX's processes, kept by the first of them."""
    return process.client


def put(topic: str, text: str = "") -> None:
    """Stores a text of this process, once per topic."""
    store().key_value_set(f"{topic}/{process.process_id}", text)


def read_all(topic: str) -> dict[int, str]:
    """The texts that processes have stored so far, by process."""
    return {int(key.rpartition("/")[2]): text for key, text in store().key_value_dir_get(topic)}


def wait_for(topic: str, number: int) -> str:
    """The text of a process, once it is there. Polls: a blocking call would not hear Ctrl-C."""
    while number not in (texts := read_all(topic)):
        time.sleep(SECOND / 10)
    return texts[number]


class Watch:
    """Sends a heartbeat every second, and ends this process when it should not wait for others."""

    def __init__(self, patience: int, stall: int):
        self.own, self.patience, self.stall = process.process_id, patience, stall
        self.latest = dict.fromkeys(range(count()), Heartbeat())
        self.silence = {other: 0.0 for other in self.latest if other != self.own}
        self.standstill = 0.0
        self.stopped = threading.Event()
        self.threads = [
            threading.Thread(target=work, daemon=True) for work in (self._exchange, self._check)
        ]
        for thread in self.threads:
            thread.start()

    def stop(self) -> None:
        """Ends the watch; a thread that hangs in a call to the first process is left alone."""
        self.stopped.set()
        for thread in self.threads:
            thread.join(2 * SECOND)

    def _exchange(self) -> None:
        """Hangs where the first process does not answer: then all are silent."""
        for number in itertools.count():
            with contextlib.suppress(RuntimeError):  # counts as silence
                text = json.dumps(_own._replace(number=number))
                store().key_value_set(f"alive/{self.own}", text, allow_overwrite=True)
                for sender, text in read_all("alive").items():
                    self._receive(sender, Heartbeat(*json.loads(text)))
                for other, reason in read_all("failed").items():
                    if other != self.own and not self.stopped.is_set():
                        put("read")
                        self._end(f"process {other} has failed: {reason}")
            if self.stopped.wait(SECOND):
                return

    def _receive(self, sender: int, heartbeat: Heartbeat) -> None:
        if heartbeat[1:] != self.latest[sender][1:]:
            self.standstill = 0.0
        if heartbeat != self.latest[sender] and sender in self.silence:
            self.silence[sender] = 0.0
        self.latest[sender] = heartbeat

    def _end(self, sentence: str) -> None:
        """The store ends with the first process: the others must read it before."""
        if self.own == 0:
            time.sleep(3 * SECOND)
        end(sentence)

    def _check(self) -> None:
        """Counts seconds itself: a clock would run on while this process is suspended."""
        while not self.stopped.wait(SECOND):
            self.standstill += SECOND
            for other in self.silence:
                self.silence[other] += SECOND
            if sentence := self._silent():
                end(sentence)
            if sentence := self._stalled():
                with contextlib.suppress(RuntimeError):  # the store may be gone
                    put("failed", sentence)
                self._end(sentence)

    def _silent(self) -> str | None:
        """Names the processes without heartbeats; the first alone, since it passes them on."""
        lost = [other for other, silence in self.silence.items() if silence >= self.patience]
        lost = [0] if 0 in lost else lost
        if not lost:
            return None
        return (
            f"{_shortened([*map(str, lost)])} of {count()} {'has' if len(lost) == 1 else 'have'} "
            f"sent no heartbeat for {self.patience} s (--partner-timeout), last at "
            f"{self.latest[lost[0]].progress}: check why, then {RESTART}"
        )

    def _stalled(self) -> str | None:
        """Names the progress of all: the others wait for the one that is behind."""
        if self.standstill < self.stall:
            return None
        at: dict[str, list[str]] = {}
        for number, heartbeat in self.latest.items():
            at.setdefault(heartbeat.progress, []).append(str(number))
        all_progress = "; ".join(f"{_shortened(some)} at {name}" for name, some in at.items())
        return (
            f"no process has made progress for {self.stall} s (--stall-timeout): {all_progress}; "
            f"check what the slowest process waits for (a disk, a device), then {RESTART}"
        )

    def explain_abort(self) -> str | None:
        """When JAX aborts this process: whether the first process no longer answers."""
        host, _, port = process.coordinator_address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=SECOND).close()
        except OSError:
            return (
                f"the first process, 0 of {count()}, at {process.coordinator_address}, has ended, "
                f"last at {self.latest[0].progress}: check why, then {RESTART}"
            )
        return None

    def announce_failure(self, error: BaseException) -> None:
        """Tells the others that this process fails.

        An error of XLA more likely comes from the end of another process: there is time to notice
        that first.
        """
        if _is_of_xla(error) and not is_out_of_memory(error):
            print(f"({one_line(error)[:300]}: has another process ended?)", file=sys.stderr)
            time.sleep(self.patience + 2 * SECOND)
        self.stop()
        with contextlib.suppress(RuntimeError):
            is_stopped = isinstance(error, (SystemExit, KeyboardInterrupt))
            put("failed", "stopped" if is_stopped else one_line(error) or type(error).__name__)
            for _ in range(10 * TIME_TO_READ):
                if len(read_all("read")) == len(self.silence):
                    break
                time.sleep(SECOND / 10)


def _shortened(numbers: list[str]) -> str:
    more = len(numbers) - MOST_NAMED
    noun = "process" if len(numbers) == 1 else "processes"
    return f"{noun} {', '.join(numbers[:MOST_NAMED])}" + f" and {more} more" * (more > 0)


def _is_of_xla(error: BaseException) -> bool:
    """Whether the first cause is an error of XLA's, such as "UNKNOWN: Gloo ... failed"."""
    while error.__cause__:
        error = error.__cause__
    return isinstance(error, jax.errors.JaxRuntimeError) or bool(STATUS.match(str(error)))


def end(sentence: str) -> NoReturn:
    """Ends this process at once, wherever its threads wait."""
    with contextlib.suppress(OSError):  # print would wait for a thread that prints
        os.write(2, f"error: {sentence}\n".encode())
    os._exit(PEER_LOST)


def end_on_abort(explain: Callable[[], str | None]) -> None:
    """Prints an explanation where JAX aborts this process, as it does when it misses another.

    Python's own signal handlers would run too late. Without an explanation the abort goes on.
    """

    @ctypes.CFUNCTYPE(None, ctypes.c_int)
    def handle(_) -> None:
        if sentence := explain():
            end(sentence)

    _handlers.append(handle)
    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).signal(signal.SIGABRT, handle)


def barrier(what: str) -> None:
    """Returns when all processes have called it."""
    report_progress(what)
    put(f"met: {what}")
    for number in range(count()):
        wait_for(f"met: {what}", number)


@contextmanager
def first_process_first(what: str) -> Iterator[None]:
    """Inside, the first process makes something that the others then find, such as files; all leave
    together. `what` names it, once in the life of a process.
    """
    if count() == 1:
        yield
        return
    if not is_first():
        wait_for(f"made: {what}", 0)
    report_progress(what)
    yield
    put(f"made: {what}")
    barrier(what)


def assert_equal(what: str, facts: Mapping[str, object]) -> None:
    """Raises UserError where facts about this process differ from those of the first one."""
    if count() == 1:
        return
    ours = {name: repr(fact) for name, fact in facts.items()}
    if is_first():
        put(f"facts: {what}", json.dumps(ours))
    theirs = json.loads(wait_for(f"facts: {what}", 0))
    for name in ours | theirs:
        if ours.get(name) != theirs.get(name):
            raise UserError(
                f"{what}: {name} is {ours.get(name)} in this process, {theirs.get(name)} in the "
                "first: it must be the same in all processes"
            )
    barrier(f"the comparison of {what}")
