"""Processes in one: what needs no second one. The others are in tests/commands."""

import time

import pytest

from transformer.errors import UserError
from transformer.machine import distributed
from transformer.machine.distributed import Heartbeat


def test_one_process_agrees_with_itself_at_once():
    assert distributed.is_first() and distributed.count() == 1
    with distributed.first_process_first("something"):
        pass
    distributed.assert_equal("settings", {"steps": 3})


class Store:
    """The store that processes share, without processes."""

    def __init__(self):
        self.texts = {}

    def key_value_set(self, key, text, allow_overwrite=False):
        self.texts[key] = text

    def key_value_dir_get(self, folder):
        return [item for item in self.texts.items() if item[0].startswith(folder + "/")]


@pytest.fixture
def be(monkeypatch):
    """Makes this process one of two that share a store."""
    store = Store()
    monkeypatch.setattr(distributed, "store", lambda: store)
    monkeypatch.setattr(distributed, "count", lambda: 2)
    monkeypatch.setattr(distributed, "barrier", lambda what: None)

    def be(number):
        monkeypatch.setattr(distributed.process, "process_id", number)

    return be


def test_the_others_wait_for_the_first_process(be, monkeypatch):
    made = []

    def first_makes(seconds):
        be(0)
        with distributed.first_process_first("files"):
            made.append("files")
        be(1)

    monkeypatch.setattr(
        distributed.time, "sleep", first_makes
    )  # what happens while the other waits
    be(1)
    with distributed.first_process_first("files"):
        assert made == ["files"]


def test_facts_that_differ_from_those_of_the_first_are_named(be):
    be(0)
    distributed.assert_equal("settings", {"train.seed": 0, "train.steps": 5})
    be(1)
    distributed.assert_equal("settings", {"train.seed": 0, "train.steps": 5})
    with pytest.raises(UserError, match="settings: train.seed is 1 in this process, 0 in"):
        distributed.assert_equal("settings", {"train.seed": 1, "train.steps": 5})


@pytest.fixture
def watch(monkeypatch):
    """That of the first of four processes; its threads do not run."""
    monkeypatch.setattr(distributed, "count", lambda: 4)
    monkeypatch.setattr(distributed.threading.Thread, "start", lambda self: None)
    monkeypatch.setattr(distributed.process, "process_id", 0)
    return distributed.Watch(patience=10, stall=30)


def test_silent_processes_are_named_and_a_silent_first_process_hides_the_others(watch):
    watch._receive(1, Heartbeat(1, 1, "update 12"))
    watch.silence = {0: 3.0, 1: 9.0, 2: 3.0, 3: 9.0}
    assert watch._silent() is None
    watch.silence |= {1: 10.0, 3: 12.0}
    said = watch._silent()
    assert "processes 1, 3 of 4 have sent no heartbeat for 10 s" in said
    assert "last at update 12: check why" in said
    watch.silence[0] = 10.0
    assert "process 0 of 4 has sent no heartbeat" in watch._silent()


def test_the_progress_of_all_is_named_when_none_makes_any(watch):
    for process, name in enumerate(("update 20", "update 12", "update 20", "update 20")):
        watch._receive(process, Heartbeat(1, 1, name))
    watch.standstill = 29.0
    assert watch._stalled() is None
    watch.standstill = 30.0
    said = watch._stalled()
    assert "no process has made progress for 30 s (--stall-timeout)" in said
    assert "processes 0, 2, 3 at update 20; process 1 at update 12; check what" in said


def test_a_heartbeat_alone_is_no_progress(watch):
    watch._receive(1, Heartbeat(1, 5, "update 12"))
    watch.standstill, watch.silence[1] = 20.0, 8.0
    watch._receive(1, Heartbeat(2, 5, "update 12"))
    assert (watch.standstill, watch.silence[1]) == (20.0, 0.0)
    watch._receive(1, Heartbeat(3, 6, "update 13"))
    assert watch.standstill == 0.0


def test_few_of_many_are_named():
    assert distributed._shortened([*map(str, range(8))]) == "processes 0, 1, 2, 3, 4, 5, 6, 7"
    shortened = distributed._shortened([*map(str, range(20))])
    assert shortened == "processes 0, 1, 2, 3, 4, 5, 6, 7 and 12 more"


def test_a_process_that_fails_waits_until_the_others_have_heard_and_no_longer(watch, be):
    be(0)
    watch.threads = []
    for other in (1, 2, 3):
        distributed.store().key_value_set(f"read/{other}", "")
    begun = time.monotonic()
    watch.announce_failure(UserError("the disk is full"))
    assert time.monotonic() - begun < distributed.TIME_TO_READ / 2
    assert distributed.read_all("failed") == {0: "the disk is full"}


@pytest.mark.parametrize(
    "cause, of_xla",
    [
        (ValueError("UNKNOWN: Gloo AllGather failed: Connection reset by peer"), True),
        (RuntimeError("INTERNAL: NCCL operation failed"), True),
        (OSError(28, "No space left on device"), False),
        (ValueError("invalid continuation byte"), False),
    ],
)
def test_an_error_that_may_be_another_process_s_end_is_known_by_its_first_cause(cause, of_xla):
    try:
        raise UserError("cannot save") from cause
    except UserError as error:
        assert distributed._is_of_xla(error) == of_xla  # noqa: PT017
