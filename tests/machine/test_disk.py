"""What is written is on disk, whole, before anybody counts on it (the power cut itself is tried in
commands/test_power_cut.py)."""

import os
from pathlib import Path

import pytest

from transformer.machine.disk import append_text, sync_tree, write_text


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


def test_text_is_written_whole_or_not_at_all(tmp_path):
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


def test_all_that_is_in_a_folder_is_on_disk_before_its_name(tmp_path, synced):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "file").write_text("text")
    sync_tree(tmp_path / "a")
    assert set(synced) == {("a", None), ("b", None), ("file", "text")}
