"""Downloads: whole and verified or not there; interrupted ones go on; archives stay inside."""

import bz2
import gzip
import hashlib
import io
import socket
import tarfile
import threading
import time
import zipfile
from pathlib import Path

import pytest

from transformer.data.downloads import Expected, fetch, part_of, unpacked, verify
from transformer.errors import UserError

CONTENT = bytes(range(256)) * 20_000
EXPECTED = Expected(len(CONTENT), hashlib.sha256(CONTENT).hexdigest())
REMEDY = "put file.bin into a folder"


@pytest.fixture
def served(file_server):
    (file_server.folder / "file.bin").write_bytes(CONTENT)
    return file_server


def fetched(served, path: Path, expected: Expected | None = EXPECTED) -> None:
    fetch(served.url + "file.bin", path, expected, REMEDY)


def test_a_file_is_fetched_whole(served, tmp_path):
    for expected in (EXPECTED, None):
        fetched(served, tmp_path / "new folder" / f"{expected is None}.bin", expected)
    contents = {path.name: path.read_bytes() for path in (tmp_path / "new folder").iterdir()}
    assert contents == {"False.bin": CONTENT, "True.bin": CONTENT}


def test_a_broken_connection_is_taken_up_where_it_broke(served, tmp_path):
    served.cuts["file.bin"] = 1_000_000
    fetched(served, tmp_path / "file.bin")
    assert (tmp_path / "file.bin").read_bytes() == CONTENT
    assert [wanted for _, wanted in served.requests] == ["", "bytes=1000000-"]


def test_a_later_command_goes_on_where_an_earlier_one_was_killed(served, tmp_path):
    part_of(tmp_path / "file.bin").write_bytes(CONTENT[:4_000_000])
    fetched(served, tmp_path / "file.bin")
    assert (tmp_path / "file.bin").read_bytes() == CONTENT
    assert [wanted for _, wanted in served.requests] == ["bytes=4000000-"]
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["file.bin"]


def test_a_server_that_cannot_go_on_is_asked_for_all(served, tmp_path):
    served.ranges = False
    part_of(tmp_path / "file.bin").write_bytes(b"x" * 1_000)
    fetched(served, tmp_path / "file.bin")
    assert (tmp_path / "file.bin").read_bytes() == CONTENT


def test_what_cannot_be_verified_is_fetched_anew(served, tmp_path):
    part_of(tmp_path / "file.bin").write_bytes(b"x" * 1_000)
    fetched(served, tmp_path / "file.bin", expected=None)
    assert (tmp_path / "file.bin").read_bytes() == CONTENT


def test_two_commands_fetch_a_file_once(served, tmp_path):
    threads = [
        threading.Thread(target=fetched, args=(served, tmp_path / "file.bin")) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (tmp_path / "file.bin").read_bytes() == CONTENT
    assert len(served.requests) == 1


def test_a_part_that_is_whole_already_is_verified(served, tmp_path):
    part_of(tmp_path / "file.bin").write_bytes(CONTENT)
    fetched(served, tmp_path / "file.bin")
    assert (tmp_path / "file.bin").read_bytes() == CONTENT and not served.requests


@pytest.mark.parametrize("begun", [b"", b"y" * 1_000, b"y" * len(CONTENT), b"y" * 10**7])
def test_what_is_not_the_file_is_not_kept(served, tmp_path, begun):
    other = Expected(EXPECTED.size, "0" * 64)
    if begun:
        part_of(tmp_path / "file.bin").write_bytes(begun)
    with pytest.raises(
        UserError, match=rf"file\.bin.* expected 5,120,000 bytes with 0000.*{REMEDY}"
    ):
        fetched(served, tmp_path / "file.bin", other)
    assert not [path for path in tmp_path.iterdir() if path.is_file()]


def test_a_file_that_the_server_lacks(served, tmp_path):
    with pytest.raises(UserError, match=rf"cannot download .*none\.bin .*no such file.*{REMEDY}"):
        fetch(served.url + "none.bin", tmp_path / "none.bin", None, REMEDY)


def unknown_host(*_, **__):
    raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/file.bin", "http://no.such.host.invalid/f"])
def test_without_a_network_the_remedy_comes_at_once(tmp_path, monkeypatch, url):
    if url.endswith("invalid/f"):  # without a name server in reach, a real look-up fails after 10 s
        monkeypatch.setattr(socket, "getaddrinfo", unknown_host)
    began = time.perf_counter()
    with pytest.raises(UserError, match=REMEDY) as caught:
        fetch(url, tmp_path / "file.bin", EXPECTED, REMEDY)
    assert time.perf_counter() - began < 5
    assert "\n" not in str(caught.value)


def test_a_file_that_was_changed_later_is_refused(tmp_path):
    (tmp_path / "file.bin").write_bytes(CONTENT)
    verify(tmp_path / "file.bin", "http://origin", EXPECTED, "replace it")
    (tmp_path / "file.bin").write_bytes(CONTENT[:-1] + b"\0")
    with pytest.raises(
        UserError, match=r"is not the expected file from http://origin: .* replace it"
    ):
        verify(tmp_path / "file.bin", "http://origin", EXPECTED, "replace it")


def tar_of(path: Path, members: dict[str, bytes], link: tuple[str, str] | None = None) -> Path:
    with tarfile.open(path, "w:gz" if path.name.endswith("gz") else "w") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        if link:
            member = tarfile.TarInfo(link[0])
            member.type, member.linkname = tarfile.SYMTYPE, link[1]
            archive.addfile(member)
    return path


@pytest.mark.parametrize("name", ["a.tgz", "a.tar.gz", "a.tar", "a.zip"])
def test_archives_are_unpacked_once(tmp_path, name):
    path = tmp_path / name
    members = {"dev/a.de": b"eins\n", "dev/a.en": b"one\n"}
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            for member, content in members.items():
                archive.writestr(member, content)
    else:
        tar_of(path, members)
    folder = unpacked(path, tmp_path / "out")
    assert folder == tmp_path / "out"
    assert {p.name: p.read_bytes() for p in (folder / "dev").iterdir()} == {
        "a.de": b"eins\n", "a.en": b"one\n",
    }  # fmt: skip
    path.write_bytes(b"gone")
    assert unpacked(path, tmp_path / "out") == folder


@pytest.mark.parametrize("compress, ending", [(gzip.compress, ".gz"), (bz2.compress, ".bz2")])
def test_a_compressed_file_becomes_a_file_of_the_same_name(tmp_path, compress, ending):
    path = tmp_path / f"europarl.de-en.tsv{ending}"
    path.write_bytes(compress(b"ja\tyes\n"))
    found = unpacked(path, tmp_path / "out")
    assert found.name == "europarl.de-en.tsv" and found.read_bytes() == b"ja\tyes\n"


def test_other_files_stay_as_they_are(tmp_path):
    (tmp_path / "plain.txt").write_text("text")
    assert unpacked(tmp_path / "plain.txt", tmp_path / "out") == tmp_path / "plain.txt"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["../outside.txt", "dev/../../outside.txt"])
def test_no_path_leaves_the_folder(tmp_path, name):
    path = tar_of(tmp_path / "bad.tgz", {"fine.txt": b"fine", name: b"evil"})
    with pytest.raises(UserError, match=r"cannot unpack .*bad\.tgz"):
        unpacked(path, tmp_path / "in" / "out")
    assert not list(tmp_path.rglob("outside.txt"))


def test_an_absolute_path_stays_inside(tmp_path):
    path = tar_of(tmp_path / "bad.tgz", {f"{tmp_path}/outside.txt": b"evil"})
    folder = unpacked(path, tmp_path / "out")
    assert not (tmp_path / "outside.txt").exists()
    assert [found.is_relative_to(folder) for found in tmp_path.rglob("outside.txt")] == [True]


def test_no_link_leaves_the_folder(tmp_path):
    path = tar_of(tmp_path / "bad.tar", {"fine.txt": b"fine"}, link=("out", "../../etc"))
    with pytest.raises(UserError, match=r"cannot unpack"):
        unpacked(path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["a.tgz", "a.zip", "a.gz", "a.tar.bz2"])
def test_a_damaged_archive_is_named_and_leaves_nothing(tmp_path, name):
    (tmp_path / name).write_bytes(gzip.compress(CONTENT)[:-2000] if name == "a.gz" else b"PK junk")
    with pytest.raises(UserError, match=rf"cannot unpack .*{name}.*remove it"):
        unpacked(tmp_path / name, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == [name]
