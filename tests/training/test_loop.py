"""The loop, with plain functions in place of a model."""

import os
import signal
import subprocess
import sys
from functools import cache, partial
from itertools import count

import jax
import pytest

from transformer.config import Config, TrainConfig
from transformer.training import loop
from transformer.training.loop import EarlyStopping
from transformer.training.step import StepMetrics, init_state


class GivenUpError(Exception):
    """Raised in the place of an error."""


class Recorder:
    """What the loop calls, and a list of its calls in order."""

    def __init__(self, stop_after=None, over_after=None, skipped=()):
        self.calls = []
        self.stop_after, self.over_after, self.skipped = stop_after, over_after, skipped

    def update(self, state, batch, step):
        assert step == state.step + 1
        self.calls.append(("update", step, batch))
        return state.replace(step=step), StepMetrics(f"sums {step}", None, step in self.skipped)

    def report(self, step, metrics):
        assert metrics.sums == f"sums {step}"
        self.calls.append(("report", step))

    def give_up(self, state, batch):
        raise GivenUpError(state.step, batch)

    def checkpoint(self, state, position, validate):
        self.calls.append(("checkpoint", state.step, position, validate))

    def should_stop(self):
        return self.of("update")[-1][1] == self.stop_after

    def is_over(self):
        return len(self.of("checkpoint")) == self.over_after

    def of(self, kind):
        return [call for call in self.calls if call[0] == kind]


@cache
def some_state():
    """A state without its arrays: only shapes."""
    return jax.eval_shape(partial(init_state, Config()), jax.random.key(0))


def run(recorder, first_step=0, clock=None, **settings):
    recorder.clock = clock or loop.Clock()
    return loop.train(
        TrainConfig(**settings),
        some_state().replace(step=first_step),
        ((f"batch {n}", f"after batch {n}") for n in count(first_step + 1)),
        recorder.update,
        recorder,
    )


def test_it_updates_until_the_last_step_with_one_batch_each():
    recorder = Recorder()
    assert run(recorder, steps=10, validate_every=4).step == 10
    assert recorder.of("update") == [("update", n, f"batch {n}") for n in range(1, 11)]


def test_it_ends_after_the_checkpoint_that_makes_it_be_over():
    recorder = Recorder(over_after=2)
    assert run(recorder, steps=10, validate_every=3).step == 6
    assert recorder.calls[-1] == ("checkpoint", 6, "after batch 6", True)


def test_what_is_over_is_not_begun_again():
    recorder = Recorder(over_after=0)
    assert run(recorder, first_step=4, steps=10).step == 4
    assert recorder.calls == []


def test_it_saves_and_validates_at_intervals_and_at_the_end():
    recorder = Recorder()
    run(recorder, steps=10, validate_every=4)
    expected = [("checkpoint", n, f"after batch {n}", True) for n in (4, 8, 10)]
    assert recorder.of("checkpoint") == expected


def test_the_end_at_an_interval_is_saved_once():
    recorder = Recorder()
    run(recorder, steps=8, validate_every=4)
    assert [call[1] for call in recorder.of("checkpoint")] == [4, 8]


def test_a_resumed_run_makes_the_remaining_updates():
    recorder = Recorder()
    run(recorder, first_step=6, steps=10, validate_every=4)
    assert [call[1] for call in recorder.of("update")] == [7, 8, 9, 10]
    assert [call[1] for call in recorder.of("checkpoint")] == [8, 10]


def test_a_finished_run_does_nothing():
    recorder = Recorder()
    run(recorder, first_step=10, steps=10)
    assert recorder.calls == []


@pytest.mark.parametrize(
    "stop_after, validates", [(3, False), (4, True)], ids=["between validations", "at a validation"]
)
def test_asked_to_stop_it_saves_and_validates_only_if_it_was_time_to(stop_after, validates):
    recorder = Recorder(stop_after)
    assert run(recorder, steps=10, validate_every=4).step == stop_after
    expected = ("checkpoint", stop_after, f"after batch {stop_after}", validates)
    assert recorder.of("checkpoint") == [expected]


STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture
def handlers():
    """The handlers of these signals, which a test may replace."""
    before = {number: signal.getsignal(number) for number in STOPPING}
    for number in STOPPING:
        signal.signal(number, signal.SIG_DFL)  # under nohup, SIGHUP is ignored
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", STOPPING)
def test_the_first_signal_asks_to_stop_and_the_second_interrupts(number, handlers, capsys):
    should_stop = loop.stop_on_signals()
    assert not should_stop()
    signal.raise_signal(number)
    assert should_stop()
    assert "interrupt again to quit" in capsys.readouterr().out
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(number)


def test_a_signal_that_is_ignored_still_is(handlers):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    should_stop = loop.stop_on_signals()
    signal.raise_signal(signal.SIGINT)
    assert not should_stop()
    signal.raise_signal(signal.SIGHUP)
    assert should_stop()


HANGING_UP = """
import signal, sys, time
from transformer.training import loop

should_stop = loop.stop_on_signals()
print("ready", flush=True)
while not should_stop():
    time.sleep(0.01)
for output in (sys.stdout, sys.stderr):
    print("saved", file=output, flush=True)
"""


def test_a_terminal_that_is_closed_stops_training_and_what_it_would_print_is_lost():
    ours, theirs = os.openpty()
    command = [sys.executable, "-c", f"import signal; signal.signal(1, 0)\n{HANGING_UP}"]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        with open(ours, "rb", buffering=0) as terminal:
            assert b"ready" in terminal.readline()
        process.send_signal(signal.SIGHUP)
        try:
            assert process.wait(60) == 0
        finally:
            process.kill()  # the end of `with` would wait for it


def test_every_update_is_reported_once_in_order_and_a_few_updates_late():
    recorder = Recorder()
    run(recorder, steps=30, validate_every=1000)
    assert recorder.of("report") == [("report", n) for n in range(1, 31)]
    updates = reports = longest_queue = 0
    for call in recorder.calls:
        updates += call[0] == "update"
        reports += call[0] == "report"
        longest_queue = max(longest_queue, updates - reports)
    assert 1 < longest_queue <= loop.MAX_IN_FLIGHT + 1


def test_everything_is_reported_before_a_checkpoint():
    # So that a loss that is not a number is found before its parameters are saved.
    recorder = Recorder()
    run(recorder, steps=10, validate_every=4)
    reported = 0
    for call in recorder.calls:
        reported += call[0] == "report"
        if call[0] == "checkpoint":
            assert reported == call[1]


def test_a_report_that_fails_ends_the_loop_without_a_checkpoint():
    class Failing(Recorder):
        def report(self, step, sums):
            raise ValueError

    recorder = Failing()
    with pytest.raises(ValueError):
        run(recorder, steps=4, validate_every=4)
    assert recorder.of("checkpoint") == []


@pytest.fixture
def time(monkeypatch):
    """A clock that moves only when a test moves it."""

    class Time:
        now = 100.0

        def perf_counter(self):
            return self.now

    time = Time()
    monkeypatch.setattr(loop, "time", time)
    return time


def test_the_clock_goes_on_from_earlier_runs_and_stands_still_while_paused(time):
    clock = loop.Clock(7.0)
    time.now += 2
    assert clock.seconds == 9
    with clock.paused():
        time.now += 50
    time.now += 1
    assert clock.seconds == 10


def test_the_clock_leaves_out_checkpoints_and_the_time_they_are_given_is_right(time):
    class Slow(Recorder):
        def update(self, state, batch, step):
            time.now += 1
            return super().update(state, batch, step)

        def checkpoint(self, state, position, validate):
            time.now += 100

    clock = loop.Clock()
    run(Slow(), clock=clock, steps=10, validate_every=4)
    assert clock.seconds == 10


def test_it_gives_up_when_too_many_updates_one_after_the_other_are_skipped():
    few = [*range(3, 12), *range(13, 22)]  # nine, one that is not skipped, nine
    assert run(Recorder(skipped=few), steps=30).step == 30
    recorder = Recorder(skipped=range(13, 99))
    with pytest.raises(GivenUpError) as given_up:
        run(recorder, steps=100)
    # The state is that of the last of them, and no later one has begun.
    assert given_up.value.args == (22, "batch 22")
    assert recorder.of("update")[-1][1] == 22
    assert recorder.of("report")[-1] == ("report", 22)


# ---------------------------------------------------------------- early stopping


def after(limit, *scores):
    stopping = EarlyStopping(limit)
    for score in scores:
        stopping.validated(score)
    return stopping


def test_it_is_out_after_so_many_validations_without_a_better_one():
    assert not after(2, 1.0, 3.0, 2.0).should_stop
    assert after(2, 1.0, 3.0, 2.0, 3.0).should_stop  # as good is not better


def test_a_better_score_begins_the_wait_anew():
    assert not after(2, 3.0, 2.0, 3.5, 1.0).should_stop


def test_the_first_score_is_better_than_none_however_bad():
    assert after(1, -1e9) == EarlyStopping(1, best=-1e9, waited=0)


def test_without_a_limit_it_is_never_out():
    assert not after(0, *range(100, 0, -1)).should_stop


def test_it_goes_on_from_what_a_checkpoint_says():
    before = after(3, 5.0, 4.0)
    resumed = EarlyStopping(3, before.best, before.waited)
    for stopping in (before, resumed):
        stopping.validated(4.5)
    assert before == resumed
