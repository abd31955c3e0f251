"""Files are written atomically and durably (commands/test_power_cut.py cuts the power), and locks
work on file systems that have them."""

import errno
import fcntl
import os
import threading
from pathlib import Path

import pytest

from transformer.machine.files import (
    append_text,
    atomic_directory,
    is_locked,
    locked,
    sync_tree,
    write_text,
)


@pytest.fixture
def synced(tmp_path, monkeypatch):
    """The names that are synced, in order; and what was there, of a file."""
    seen, fsync = [], os.fsync

    def note(number):
        inode = os.fstat(number).st_ino
        [path] = [p for p in (tmp_path, *tmp_path.rglob("*")) if p.stat().st_ino == inode]
        seen.append((path.name, path.read_text() if path.is_file() else None))
        fsync(number)

    monkeypatch.setattr("os.fsync", note)
    return seen


def test_a_file_is_written_atomically(tmp_path):
    path = tmp_path / "file"
    write_text(path, "before")
    with pytest.raises(UnicodeEncodeError):
        write_text(path, "after \ud800")
    assert path.read_text() == "before" and os.listdir(tmp_path) == ["file"]


def test_a_full_disk_is_named_with_the_file(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")  # as write does, which names no file

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="config.json") as refusal:
        write_text(tmp_path / "config.json", "{}")
    assert refusal.value.filename == str(tmp_path / "config.json.tmp")


def test_a_file_is_on_disk_before_it_gets_its_name_and_then_the_name(tmp_path, synced):
    write_text(tmp_path / "file", "text")
    assert synced == [("file.tmp", "text"), (tmp_path.name, None)]


def test_a_line_is_on_disk_and_once_the_files_name(tmp_path, synced):
    append_text(tmp_path / "file", "one\n")
    append_text(tmp_path / "file", "two\n")
    assert synced == [("file", "one\n"), (tmp_path.name, None), ("file", "one\ntwo\n")]


def test_a_folder_is_synced_with_all_that_is_in_it(tmp_path, synced):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "file").write_text("text")
    sync_tree(tmp_path / "a")
    assert set(synced) == {("a", None), ("b", None), ("file", "text")}


def test_a_folder_gets_its_name_when_all_of_it_is_on_disk_or_leaves_nothing(tmp_path, synced):
    def fail_half_way():
        with atomic_directory(tmp_path / "new") as folder:
            (folder / "half").write_text("x")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_half_way()
    assert list(tmp_path.iterdir()) == [] and synced == []
    with atomic_directory(tmp_path / "new") as folder:
        (folder / "file").write_text("x")
    assert synced == [("file", "x"), (folder.name, None), (tmp_path.name, None)]
    assert [path.name for path in tmp_path.rglob("*")] == ["new", "file"]
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize(
    "keep, kept", [(None, "first"), (Path.exists, "first"), (lambda _: False, "second")]
)
def test_a_folder_that_another_process_has_made_meanwhile(tmp_path, keep, kept):
    def make():
        with atomic_directory(tmp_path / "new", keep) as folder:
            (folder / "file").write_text("second")
            with atomic_directory(tmp_path / "new", keep) as other:
                (other / "file").write_text("first")

    if keep is None:
        with pytest.raises(OSError, match="not empty"):
            make()
    else:
        make()
    assert [path.name for path in tmp_path.iterdir()] == ["new"]
    assert (tmp_path / "new" / "file").read_text() == kept


def test_one_at_a_time_is_locked(tmp_path):
    entered = threading.Event()

    def second():
        with locked(tmp_path):
            entered.set()

    thread = threading.Thread(target=second)
    with locked(tmp_path):
        thread.start()
        assert not entered.wait(0.2)
    assert entered.wait(10)
    thread.join()


def test_a_file_is_locked_until_its_holder_closes_it(tmp_path):
    path = tmp_path / "lock"
    with path.open("a") as second:
        with path.open("a") as first:
            assert not is_locked(first.fileno())
            assert is_locked(second.fileno())
        assert not is_locked(second.fileno())


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_where_a_file_system_cannot_lock_nobody_waits(tmp_path, monkeypatch, number):
    def refuse(*_):
        raise OSError(number, "no locks")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with locked(tmp_path), (tmp_path / "lock").open("a") as file:
        assert not is_locked(file.fileno())


def test_another_error_is_not_hidden(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EIO, "disk on fire")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(OSError, match="disk on fire"), locked(tmp_path):
        pass
