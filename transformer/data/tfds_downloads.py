"""A download manager for TFDS that needs no TensorFlow and resumes interrupted downloads.

TFDS's own unpacks with TensorFlow, begins every interrupted download anew, and tries for minutes
without a network. This one

    1. takes a file from a folder of files downloaded earlier, if it is there;
    2. otherwise downloads it, resuming an interrupted download;
    3. compares its SHA-256 with the one that TFDS records;
    4. unpacks archives; no path leaves the folder.
"""

import contextlib
import hashlib
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import tensorflow_datasets as tfds
import tree  # dm-tree, which TFDS itself uses for the same

from transformer.data.downloads import (
    Expected,
    fetch,
    megabytes,
    part_of,
    size_of,
    unpacked,
    verify,
)
from transformer.errors import UserError


class Downloads(tfds.download.DownloadManager):
    """The files of one dataset, as TFDS's builders ask for them."""

    def __init__(self, folder: Path, builder: Any, found_earlier: Sequence[Path]):
        """`found_earlier` are folders with files that need not be downloaded."""
        super().__init__(
            download_dir=folder,
            manual_dir=next(iter(found_earlier), folder / "manual"),
            manual_dir_instructions=builder.MANUAL_DOWNLOAD_INSTRUCTIONS or "see its homepage",
        )
        self.folder, self.builder_name = folder, builder.name
        self.found_earlier = found_earlier
        infos = builder.url_infos or {}
        self.expected = {url: Expected(info.size, info.checksum) for url, info in infos.items()}
        self.names = {url: info.filename for url, info in infos.items() if info.filename}
        self.sizes: dict[str, int] = {}
        self.urls: list[str] = []
        self.is_listing = bool(infos)
        if infos:
            with contextlib.suppress(Exception):  # it may look into a file that is not there
                builder._split_generators(self)
        self.is_listing = False
        self._announce(builder.info.full_name.rpartition("/")[0] or builder.name)

    @property
    def downloaded_size(self) -> int:
        """Bytes of all files that were asked for so far, those found on disk included."""
        return sum(self.sizes.values())

    def download(self, url_or_urls: Any) -> Any:
        """The file of each URL, complete and verified, in a tree like that of the URLs."""
        return tree.map_structure(self._file, url_or_urls)

    def extract(self, path_or_paths: Any) -> Any:
        """What each archive or compressed file unpacks to, in a tree like that of the paths."""
        return tree.map_structure(self._unpacked, path_or_paths)

    def download_and_extract(self, url_or_urls: Any) -> Any:
        """What the file of each URL unpacks to, in a tree like that of the URLs."""
        return tree.map_structure(lambda url: self._unpacked(self._file(url)), url_or_urls)

    def _file(self, resource: Any) -> Path:
        """The file of a URL, complete and verified; while listing, a path of nothing."""
        url = getattr(resource, "url", resource)
        if self.is_listing:
            self.urls += [url] if url not in self.urls else []
            return Path(url)
        path = self._find(url)
        if path is None:
            path = self._place(url)
            fetch(url, path, self.expected.get(url), self._remedy())
        elif url not in self.sizes:
            verify(path, url, self.expected.get(url), f"replace it by {url}")
        self.sizes[url] = path.stat().st_size
        return path

    def _find(self, url: str) -> Path | None:
        """The file of a URL, if it is on disk."""
        name = self._name(url)
        for path in (folder / name for folder in self.found_earlier):
            shared = [other for other in self.urls if self._name(other) == name]
            if path.is_file() and (len(shared) < 2 or path.stat().st_size == self._size(url)):
                return path
        return self._place(url) if self._place(url).is_file() else None

    def _missing(self) -> list[str]:
        return [url for url in self.urls if self._find(url) is None]

    def _size(self, url: str) -> int | None:
        return self.expected[url].size if url in self.expected else None

    def _name(self, url: str) -> str:
        """TFDS knows the name of a file that a URL does not end in: download.php?f=de-en.zip."""
        return self.names.get(url) or url.rstrip("/").rpartition("/")[2] or "file"

    def _place(self, url: str) -> Path:
        """Where the file of a URL is kept: in a folder of its own, since names are not unique."""
        return self.folder / _digest(url) / self._name(url)

    def _unpacked(self, resource: Any) -> Path:
        path = Path(getattr(resource, "path", resource))
        if self.is_listing:
            return path
        return unpacked(path, self.folder / "extracted" / _digest(str(path)))

    def _remedy(self) -> str:
        missing = sorted({self._name(url) for url in self._missing()})
        listed = ", ".join(missing[:8]) + (" ..." if len(missing) > 8 else "")
        variable = f"{self.builder_name.upper()}_DIR"
        return f"put {listed} into a folder and name it by --data.manual-dir or {variable}"

    def _announce(self, name: str) -> None:
        """Say what will be downloaded. Raises UserError when the disk is too small."""
        missing = self._missing()
        if not missing:
            return
        size = sum(self._size(url) or 0 for url in missing)
        here = sum(size_of(part_of(self._place(url))) for url in missing)
        free = shutil.disk_usage(self.folder).free
        print(
            f"{name}: {len(missing)} of {len(self.urls)} files, {megabytes(size)}, to download "
            f"into {self.folder} ({megabytes(here)} of it is here; {megabytes(free)} are free)",
            file=sys.stderr,
        )
        if size - here > free:
            raise UserError(
                f"{self.folder} has {megabytes(free)} free, and {name} downloads "
                f"{megabytes(size - here)}: set the variable TFDS_DATA_DIR to a larger disk"
            )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@contextlib.contextmanager
def shuffling_without_tensorflow() -> Iterator[None]:
    """TFDS sorts splits of over 1 GB through files on disk, which it would open with TensorFlow."""
    from tensorflow_datasets.core import shuffle

    stand_in = SimpleNamespace(
        io=SimpleNamespace(
            gfile=SimpleNamespace(GFile=open, exists=os.path.exists, remove=os.remove)
        ),
        errors=SimpleNamespace(ResourceExhaustedError=_Never),
    )
    _allow_open_files(shuffle.BUCKETS_NUMBER + 200)
    tensorflow, shuffle.tf = shuffle.tf, stand_in
    try:
        yield
    finally:
        shuffle.tf = tensorflow


class _Never(Exception):  # noqa: N818
    """Never raised."""


def _allow_open_files(count: int) -> None:
    with contextlib.suppress(ImportError, ValueError, OSError):  # not on Windows, or not allowed
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft < count:
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(count, hard), hard))
