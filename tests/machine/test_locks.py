"""Processes that wait for each other, and file systems on which they cannot."""

import errno
import fcntl
import threading

import pytest

from transformer.machine.locks import alone, is_taken


def test_one_at_a_time_is_alone(tmp_path):
    entered = threading.Event()

    def second():
        with alone(tmp_path):
            entered.set()

    thread = threading.Thread(target=second)
    with alone(tmp_path):
        thread.start()
        assert not entered.wait(0.2)
    assert entered.wait(10)
    thread.join()


def test_a_file_is_taken_until_its_holder_closes_it(tmp_path):
    path = tmp_path / "lock"
    with path.open("a") as second:
        with path.open("a") as first:
            assert not is_taken(first.fileno())
            assert is_taken(second.fileno())
        assert not is_taken(second.fileno())


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_where_nothing_can_be_locked_nobody_waits(tmp_path, monkeypatch, number):
    def refuse(*_):
        raise OSError(number, "no locks")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with alone(tmp_path), (tmp_path / "lock").open("a") as file:
        assert not is_taken(file.fileno())


def test_another_error_is_not_hidden(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EIO, "disk on fire")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(OSError, match="disk on fire"), alone(tmp_path):
        pass
