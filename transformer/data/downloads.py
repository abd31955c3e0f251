"""Files from the network: fetched, verified and unpacked, each of which can be interrupted.

`fetch` goes on where an earlier one stopped; a file or folder has its name only once it is whole.
"""

import bz2
import gzip
import hashlib
import http.client
import lzma
import shutil
import sys
import tarfile
import urllib.error
import urllib.request
import zipfile
import zlib
from pathlib import Path
from typing import NamedTuple

from tqdm import tqdm

from transformer.data.storage import appears_when_complete
from transformer.errors import UserError, one_line
from transformer.machine.locks import alone

TIMEOUT = 10
"""Seconds to wait for the server."""

BLOCK = 2**20
"""Bytes read at once."""

TAR_ENDINGS = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz", ".tbz2", ".tar.xz")
DECOMPRESSORS = {".gz": gzip.open, ".bz2": bz2.open}
DAMAGE = (OSError, EOFError, zlib.error, lzma.LZMAError, tarfile.TarError, zipfile.BadZipFile)


class Expected(NamedTuple):
    """What is known of a file beforehand."""

    size: int
    """Bytes."""
    checksum: str
    """SHA-256, in hexadecimal."""


def fetch(url: str, path: Path, expected: Expected | None, remedy: str) -> None:
    """Download to `path`, which exists only once it is whole and verified.

    Goes on where an earlier try stopped, as long as each try brings something. Raises UserError
    with the remedy.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with alone(path.parent):
        if path.exists():
            return
        part, before = part_of(path), -1
        while True:
            try:
                _fetch_rest(url, part, expected)
                break
            except (OSError, http.client.HTTPException, ValueError) as error:
                here = size_of(part)
                if here <= before or not here or isinstance(error, urllib.error.HTTPError):
                    reason = getattr(error, "reason", None) or error
                    again = f"try again, {megabytes(here)} are here; " * bool(here)
                    raise UserError(f"cannot download {url} ({reason}); {again}{remedy}") from error
                before = here
        found = difference(part, expected)
        if found:
            part.unlink()
            raise UserError(f"what {url} sends is not the file it should be ({found}); {remedy}")
        part.replace(path)


def _fetch_rest(url: str, part: Path, expected: Expected | None) -> None:
    """Append to `part` what is missing. Raises OSError when the connection ends too early.

    Only where the whole can be verified: else the file may have changed since, and is fetched anew.
    """
    here = size_of(part) if expected else 0
    if expected and here >= expected.size:
        return
    request = urllib.request.Request(url, headers={"Range": f"bytes={here}-"} if here else {})
    with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
        resumes = answer.status == http.HTTPStatus.PARTIAL_CONTENT
        here = here if resumes else 0
        rest = answer.headers.get("Content-Length")
        whole = here + int(rest) if rest else None
        with part.open("ab" if resumes else "wb") as file, _progress(part.stem, here, whole) as bar:
            while block := answer.read(BLOCK):
                file.write(block)
                bar.update(len(block))
    if whole and size_of(part) < whole:
        raise ConnectionError(f"the connection ended after {size_of(part):,} of {whole:,} bytes")


def _progress(name: str, here: int, whole: int | None) -> tqdm:
    return tqdm(
        desc=name,
        total=whole,
        initial=here,
        unit="B",
        unit_scale=True,
        mininterval=0.5 if sys.stderr.isatty() else 30,
    )


def verify(path: Path, url: str, expected: Expected | None) -> None:
    """Raises UserError when the file is not the one that is expected."""
    found = difference(path, expected)
    if found:
        raise UserError(f"{path} is not the file it should be ({found}); replace it by {url}")


def difference(path: Path, expected: Expected | None) -> str:
    """How a file differs from what is expected; nothing when it does not."""
    if expected is None:
        return ""
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found == expected.checksum:
        return ""
    return (
        f"{size_of(path):,} bytes with SHA-256 {found}, "
        f"expected {expected.size:,} bytes with {expected.checksum}"
    )


def unpacked(path: Path, folder: Path) -> Path:
    """The folder with an archive's files, or the decompressed file, or `path` when it is neither.

    Unpacked once: `folder` exists only when it is complete.
    """
    decompress = DECOMPRESSORS.get(path.suffix)
    is_archive = path.name.endswith(TAR_ENDINGS) or path.suffix == ".zip"
    if not is_archive and not decompress:
        return path
    if not folder.exists():
        with appears_when_complete(folder) as work:
            try:
                if is_archive:
                    _unpack_archive(path, work)
                else:
                    with decompress(path) as file, (work / path.stem).open("wb") as output:
                        shutil.copyfileobj(file, output, BLOCK)
            except DAMAGE as error:
                raise UserError(
                    f"cannot unpack {path}: {one_line(error)}; remove it to fetch it anew"
                ) from error
    return folder if is_archive else folder / path.stem


def _unpack_archive(path: Path, folder: Path) -> None:
    """Unpack, refusing paths and links that leave the folder (zipfile strips what leads out)."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            archive.extractall(folder)
        return
    with tarfile.open(path) as archive:
        archive.extractall(folder, filter="data")


def part_of(path: Path) -> Path:
    """The beginning of a file that is not whole yet."""
    return path.with_name(path.name + ".part")


def size_of(path: Path) -> int:
    """Bytes of a file, 0 where there is none."""
    return path.stat().st_size if path.exists() else 0


def megabytes(size: int) -> str:
    """A number of bytes for people, such as 1.3 MB."""
    return f"{size / 1e6:,.1f} MB"
