"""Processes that train together: they join, agree, wait for each other, and are missed.

Each tells the others every second that it is alive, and how far it has come. One that is silent for
too long, or says that it has failed, ends the others: with a sentence that names it, and an exit
code of its own. So do all when none has come further for long. So no wait needs an end of its own.
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
from jax._src import distributed  # the service of jax.distributed has no public name

from transformer.errors import UserError, is_out_of_memory, one_line

Item = TypeVar("Item")

PEER_LOST = 3
"""Exit code of a process that ends because another one is gone, silent, or has failed."""

SECOND = 1.0
TIMES_TO_COME = 5
"""At first the others are waited for so many times as long as later."""

TIME_TO_READ = 5
"""Seconds that a process which fails leaves to the others to hear of it."""

AGAIN = "start the same command again in all processes to go on from the last checkpoint"

LIBRARIES = ("jax", "jaxlib", "numpy", "optax", "orbax-checkpoint", "sentencepiece")
"""What must be the same in all processes."""

MOST_NAMED = 8
"""So many processes are named where more are meant."""

STATUS = re.compile("(UNKNOWN|INTERNAL|UNAVAILABLE|ABORTED|CANCELLED|DEADLINE_EXCEEDED): ")
"""What XLA's errors begin with, whatever Python makes of them."""

_handlers = []
"""What C calls must not be garbage."""


class Place(NamedTuple):
    """How far a process has come: how often it said so, and what it said."""

    number: int = 0
    name: str = "its start"


_here = Place()


def heartbeat_of(number: int, place: Place) -> str:
    """What a process tells the others: that it lives, by a number, and where it is."""
    return json.dumps([number, *place])


def place_of(beat: str) -> Place:
    """The place that a process told."""
    return Place(*json.loads(beat)[1:])


def report_progress(name: str) -> None:
    """Tells the other processes, within a second, how far this one has come."""
    global _here
    _here = Place(_here.number + 1, name)


def marked(stream: Iterator[Item], name: str, before: int = 0) -> Iterator[Item]:
    """The stream; taking the next of it says that `name` and its number are reached, the first
    being the one after `before`."""
    for number, item in enumerate(stream, before + 1):
        report_progress(f"{name} {number:,}")
        yield item


@contextmanager
def distributed_session(patience: int, stall: int) -> Iterator[None]:
    """Inside, this process is one of several that train together.

    Slurm, Open MPI, Kubernetes and TPU pods say themselves who the others are; elsewhere three
    variables do: JAX_COORDINATOR_ADDRESS (host:port of the first process), JAX_NUM_PROCESSES and
    JAX_PROCESS_ID. Raises UserError when nobody says it. Ends this process when the others do not
    come, when one of them is silent for `patience` seconds, or when none has reached anything for
    `stall` seconds.
    """
    end_on_abort(lambda: _who_did_not_come(TIMES_TO_COME * patience))
    jax.config.update("jax_enable_preemption_service", False)  # train.py hears SIGTERM itself
    try:
        numbers = [os.environ.get(f"JAX_{name}") for name in ("NUM_PROCESSES", "PROCESS_ID")]
        jax.distributed.initialize(
            None,
            *(int(number) if number else None for number in numbers),
            initialization_timeout=TIMES_TO_COME * patience,
            heartbeat_timeout_seconds=2 * patience + 60,  # JAX's own watch, which says less
            shutdown_timeout_seconds=patience,
        )
    except (ValueError, RuntimeError, LookupError, TypeError, OSError) as error:
        raise UserError(
            f"--distributed: cannot join the other processes ({one_line(error)}); set "
            "JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and JAX_PROCESS_ID for each of them"
        ) from error
    watch = Watch(patience, stall)
    end_on_abort(watch.who_is_gone)
    try:
        assert_equal("versions", {name: importlib.metadata.version(name) for name in LIBRARIES})
        yield
        barrier("the end")
    except BaseException as error:
        watch.tell(error)
        raise
    watch.stop()


def service():
    """What JAX's processes share: a table of words, and barriers. Kept by the first process."""
    return distributed.global_state.client


def count() -> int:
    """How many processes train together."""
    return distributed.global_state.num_processes


def is_first() -> bool:
    """Whether this process prints, and writes the run folder."""
    return distributed.global_state.process_id == 0


def _who_did_not_come(seconds: int) -> str:
    return (
        f"--distributed: not all of the {count()} processes came to "
        f"{distributed.global_state.coordinator_address} within {seconds} s: start the same "
        "command in each, and see that the first can be reached"
    )


class Watch:
    """Tells the others every second that this process is alive, and listens to them."""

    def __init__(self, patience: int, stall: int):
        self.own, self.patience, self.stall = distributed.global_state.process_id, patience, stall
        self.heard = dict.fromkeys(range(count()), heartbeat_of(-1, Place()))
        self.silence = {other: 0.0 for other in self.heard if other != self.own}
        self.standstill = 0.0
        self.stopped = threading.Event()
        self.threads = [
            threading.Thread(target=work, daemon=True)
            for work in (self._speak_and_listen, self._judge)
        ]
        for thread in self.threads:
            thread.start()

    def stop(self) -> None:
        """Ends the watch; a thread that hangs in a question to the first process is left to it."""
        self.stopped.set()
        for thread in self.threads:
            thread.join(2 * SECOND)

    def _speak_and_listen(self) -> None:
        """Hangs where the first process no longer answers: then all are silent."""
        for beat in itertools.count():
            with contextlib.suppress(RuntimeError):  # that counts as silence
                word = heartbeat_of(beat, _here)
                service().key_value_set(f"alive/{self.own}", word, allow_overwrite=True)
                for process, word in words("alive").items():
                    if self.heard[process] != word:
                        self._hear(process, word)
                for other, sentence in words("failed").items():
                    self._answer(other, sentence)
            if self.stopped.wait(SECOND):
                return

    def _hear(self, process: int, word: str) -> None:
        """What the table says of a process, of this one too, if it is news."""
        if place_of(word) != place_of(self.heard[process]):
            self.standstill = 0.0
        if process in self.silence:
            self.silence[process] = 0.0
        self.heard[process] = word

    def _answer(self, other: int, sentence: str) -> None:
        if other != self.own and not self.stopped.is_set():
            say("read")
            self._let_others_leave()
            end(f"process {other} has failed: {sentence}")

    def _let_others_leave(self) -> None:
        """The table goes with the first process: the others have still to read it."""
        if self.own == 0:
            time.sleep(3 * SECOND)

    def _judge(self) -> None:
        """Counts seconds of its own, which stand still while this process is frozen itself."""
        while not self.stopped.wait(SECOND):
            self.standstill += SECOND
            for other in self.silence:
                self.silence[other] += SECOND
            if sentence := self._missing():
                end(sentence)
            if sentence := self._stuck():
                with contextlib.suppress(RuntimeError):  # another has said it already
                    say("failed", sentence)
                self._let_others_leave()
                end(sentence)

    def _missing(self) -> str | None:
        """Who has been silent for too long; where the first is, nobody knows of the others."""
        lost = [other for other, silence in self.silence.items() if silence >= self.patience]
        lost = [0] if 0 in lost else lost
        if not lost:
            return None
        one = len(lost) == 1
        names = f"{_shortened([*map(str, lost)])} of {count()}"
        place = place_of(self.heard[lost[0]]).name
        return (
            f"{names} {'has' if one else 'have'} not been heard of for {self.patience} s "
            f"(--partner-timeout), last at {place}: see what became of it, then {AGAIN}"
        )

    def _stuck(self) -> str | None:
        """Where they all stand: the one behind the others is the one that they wait for."""
        if self.standstill < self.stall:
            return None
        at: dict[str, list[str]] = {}
        for process, word in self.heard.items():
            at.setdefault(place_of(word).name, []).append(str(process))
        stand = "; ".join(f"{_shortened(processes)} at {name}" for name, processes in at.items())
        return (
            f"no process has come further for {self.stall} s (--stall-timeout): {stand}; see what "
            f"the one that is behind waits for (a disk, a device), then {AGAIN}"
        )

    def who_is_gone(self) -> str | None:
        """When JAX aborts this process: the first process, if it no longer answers."""
        address = distributed.global_state.coordinator_address
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=SECOND).close()
        except OSError:
            return (
                f"the first process, 0 of {count()}, at {address}, is gone, last at "
                f"{place_of(self.heard[0]).name}: see what became of it, then {AGAIN}"
            )
        return None

    def tell(self, error: BaseException) -> None:
        """Lets the others know that this process fails.

        What fails in XLA is likelier another process's end than this one's own: that is given the
        time to be noticed.
        """
        if _is_of_xla(error) and not is_out_of_memory(error):
            print(f"({one_line(error)[:300]}: is another process gone?)", file=sys.stderr)
            time.sleep(self.patience + 2 * SECOND)
        self.stop()
        with contextlib.suppress(RuntimeError):
            told_to = isinstance(error, (SystemExit, KeyboardInterrupt))
            say("failed", "told to end" if told_to else one_line(error) or type(error).__name__)
            for _ in range(10 * TIME_TO_READ):
                if len(words("read")) == len(self.silence):
                    break
                time.sleep(SECOND / 10)


def _shortened(numbers: list[str]) -> str:
    more = len(numbers) - MOST_NAMED
    noun = "process" if len(numbers) == 1 else "processes"
    return f"{noun} {', '.join(numbers[:MOST_NAMED])}" + f" and {more} more" * (more > 0)


def _is_of_xla(error: BaseException) -> bool:
    """Whether XLA's words stand at the beginning of it all, such as "UNKNOWN: Gloo ... failed"."""
    while error.__cause__:
        error = error.__cause__
    return isinstance(error, jax.errors.JaxRuntimeError) or bool(STATUS.match(str(error)))


def end(sentence: str) -> NoReturn:
    """Ends this process at once, wherever its threads wait."""
    with contextlib.suppress(OSError):  # print would wait for whoever prints
        os.write(2, f"error: {sentence}\n".encode())
    os._exit(PEER_LOST)


def end_on_abort(explain: Callable[[], str | None]) -> None:
    """Where JAX aborts this process, as it does when it misses another, say why.

    Python's own handlers would come too late. When `explain` knows nothing, the abort goes on.
    """

    @ctypes.CFUNCTYPE(None, ctypes.c_int)
    def handle(_) -> None:
        if sentence := explain():
            end(sentence)

    _handlers.append(handle)
    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).signal(signal.SIGABRT, handle)


def say(what: str, word: str = "") -> None:
    """Something that this process tells all others, once."""
    service().key_value_set(f"{what}/{distributed.global_state.process_id}", word)


def words(what: str) -> dict[int, str]:
    """What the processes have told so far, by process."""
    return {int(key.rpartition("/")[2]): word for key, word in service().key_value_dir_get(what)}


def wait_for(what: str, process: int) -> str:
    """What a process tells, when it does. Not by a call that waits: Ctrl-C would not be heard."""
    while process not in (told := words(what)):
        time.sleep(SECOND / 10)
    return told[process]


def barrier(what: str) -> None:
    """Goes on when all processes have come here."""
    report_progress(what)
    say(f"met: {what}")
    for process in range(count()):
        wait_for(f"met: {what}", process)


@contextmanager
def first_process_first(what: str) -> Iterator[None]:
    """What the first process makes here (files, say), the others find; then all go on together.

    `what` is done once in a process's life.
    """
    if count() == 1:
        yield
        return
    if not is_first():
        wait_for(f"made: {what}", 0)
    report_progress(what)
    yield
    if is_first():
        say(f"made: {what}")
    barrier(what)


def assert_equal(what: str, facts: Mapping[str, object]) -> None:
    """Raises UserError where facts about this process are not those of the first one."""
    if count() == 1:
        return
    ours = {name: repr(fact) for name, fact in facts.items()}
    if is_first():
        say(f"facts: {what}", json.dumps(ours))
    theirs = json.loads(wait_for(f"facts: {what}", 0))
    for name in ours | theirs:
        if ours.get(name) != theirs.get(name):
            raise UserError(
                f"{what}: {name} is {ours.get(name)} in this process, {theirs.get(name)} in the "
                "first: what trains together must be the same"
            )
    barrier(f"the comparison of {what}")
