"""Files from the network: downloaded, verified and unpacked, each of which can be interrupted.

`fetch` resumes; a file or folder has its name only once it is complete.
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

from transformer.errors import UserError, one_line
from transformer.machine.files import atomic_directory, locked, publish

TIMEOUT = 10
"""Seconds to wait for the server."""

BLOCK = 2**20
"""Bytes read at once."""

TAR_ENDINGS = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz", ".tbz2", ".tar.xz")
DECOMPRESSORS = {".gz": gzip.open, ".bz2": bz2.open}
DAMAGE = (OSError, EOFError, zlib.error, lzma.LZMAError, tarfile.TarError, zipfile.BadZipFile)


class Expected(NamedTuple):
    """Size and digest of a file, known in advance."""

    size: int
    """Bytes."""
    checksum: str
    """SHA-256, in hexadecimal."""


def fetch(url: str, path: Path, expected: Expected | None, remedy: str) -> None:
    """Download to `path`, which exists only once it is complete and verified.

    Resumes an interrupted download, as long as each attempt gets further. Raises UserError with the
    remedy.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path.parent):
        part, before, is_complete = part_of(path), 0, path.exists()
        while not is_complete:
            try:
                _fetch_rest(url, part, expected)
                is_complete = True
            except (OSError, http.client.HTTPException, ValueError) as error:
                here = size_of(part)
                if here <= before or isinstance(error, urllib.error.HTTPError):
                    reason = getattr(error, "reason", None) or error
                    again = f"try again ({megabytes(here)} are here already); " * bool(here)
                    raise UserError(f"cannot download {url} ({reason}); {again}{remedy}") from error
                before = here
        if not path.exists():
            try:
                verify(part, url, expected, remedy)
            except UserError:
                part.unlink()
                raise
            publish(part, path)


def _fetch_rest(url: str, part: Path, expected: Expected | None) -> None:
    """Append to `part` what is missing. Raises OSError when the connection ends too early.

    A file that cannot be verified is fetched from its beginning: it may have changed meanwhile.
    """
    here = size_of(part) if expected else 0
    if expected and here >= expected.size:
        return
    request = urllib.request.Request(url, headers={"Range": f"bytes={here}-"} if here else {})
    with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
        resumes = answer.status == http.HTTPStatus.PARTIAL_CONTENT
        here = here if resumes else 0
        rest = answer.headers.get("Content-Length")
        size = here + int(rest) if rest else None
        seconds = 0.5 if sys.stderr.isatty() else 30
        bar = tqdm(
            desc=part.stem, total=size, initial=here, unit="B", unit_scale=True, mininterval=seconds
        )
        with part.open("ab" if resumes else "wb") as file, bar:
            while block := answer.read(BLOCK):
                file.write(block)
                bar.update(len(block))
    if size and size_of(part) < size:
        raise ConnectionError(f"the connection ended after {size_of(part):,} of {size:,} bytes")


def verify(path: Path, url: str, expected: Expected | None, remedy: str) -> None:
    """Raises UserError, with the remedy, when a file is not the one that is expected."""
    if expected is None:
        return
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != expected.checksum:
        raise UserError(
            f"{path} is not the expected file from {url}: {size_of(path):,} bytes with SHA-256 "
            f"{found}, expected {expected.size:,} bytes with {expected.checksum}; {remedy}"
        )


def unpacked(path: Path, folder: Path) -> Path:
    """The folder with an archive's files, or the decompressed file, or `path` when it is neither.

    Unpacked once: `folder` exists only when it is complete.
    """
    is_archive = path.name.endswith(TAR_ENDINGS) or path.suffix == ".zip"
    if not is_archive and path.suffix not in DECOMPRESSORS:
        return path
    if not folder.exists():
        with atomic_directory(folder, keep=Path.exists) as work:
            try:
                _unpack(path, work)
            except DAMAGE as error:
                raise UserError(
                    f"cannot unpack {path}: {one_line(error)}; remove it to download it again"
                ) from error
    return folder if is_archive else folder / path.stem


def _unpack(path: Path, folder: Path) -> None:
    """Unpack, refusing paths and links that leave the folder (zipfile strips what leads out)."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            archive.extractall(folder)
    elif path.name.endswith(TAR_ENDINGS):
        with tarfile.open(path) as archive:
            archive.extractall(folder, filter="data")
    else:
        with DECOMPRESSORS[path.suffix](path) as file, (folder / path.stem).open("wb") as output:
            shutil.copyfileobj(file, output, BLOCK)


def part_of(path: Path) -> Path:
    """Where the beginning of an incomplete file is."""
    return path.with_name(path.name + ".part")


def size_of(path: Path) -> int:
    """Bytes of a file; 0 if it does not exist."""
    return path.stat().st_size if path.exists() else 0


def megabytes(size: int) -> str:
    """A number of bytes for people, such as 1.3 MB."""
    return f"{size / 1e6:,.1f} MB"
