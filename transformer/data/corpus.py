"""Pairs of sentences, from a TFDS dataset or from plain files, behind one interface."""

import contextlib
import difflib
import gzip
import io
import logging
import sys
import zlib
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal

from transformer.config import DataConfig, UserError

Split = Literal["train", "validation", "test"]

READ_AT_ONCE = 1_000
"""Examples fetched from TFDS by one call: several times quicker than one by one."""


def read_pairs(data: DataConfig, split: Split) -> Iterator[tuple[str, str]]:
    """The (source, target) sentences of a split, in the order of the corpus.

    Raises UserError, possibly only after some pairs: a missing or unreadable file, text that is
    not UTF-8, files of different lengths, a dataset, split or language that does not exist.
    """
    files = _files(data, split)
    pairs = _file_pairs(files) if files else _dataset_pairs(data, split)
    first = next(pairs, None)
    if first is None:
        raise UserError(f"the {split} corpus is empty: {_name(data, split)} has no sentences")
    yield first
    yield from pairs


def fingerprint(data: DataConfig, split: Split) -> str:
    """A cheap identity of a split's text, for cache keys: changes when the corpus does.

    Files by path, size and time of change; a dataset by version, split and number of examples.
    """
    files = _files(data, split)
    if files:
        paths = [path.resolve() for path in files]
        stats = [path.stat() for path in paths]
        return "|".join(f"{p}:{s.st_size}:{s.st_mtime_ns}" for p, s in zip(paths, stats))
    builder = _prepared_builder(data, split)
    part = _split_name(data, split)
    languages = f"{data.source}-{data.target}"
    return f"{builder.info.full_name}|{languages}|{part}|{builder.info.splits[part].num_examples}"


def _name(data: DataConfig, split: Split) -> str:
    files = getattr(data, f"{split}_files")
    return " and ".join(files) or f"{data.dataset} ({_split_name(data, split)})"


# --- plain files -------------------------------------------------------------------------------


def _files(data: DataConfig, split: Split) -> list[Path]:
    """The files of a split, checked to exist; none when the split comes from a TFDS dataset."""
    setting = f"data.{split}_files"
    names = getattr(data, f"{split}_files")
    if not names and not data.dataset:
        raise UserError(f"{setting} is not set: name a source and a target file, or one .tsv file")
    if len(names) == 1 and not names[0].endswith((".tsv", ".tsv.gz")):
        raise UserError(f"{setting} ({names[0]}) must be a source and a target file, or one .tsv")
    if len(names) > 2:
        raise UserError(f"{setting} names {len(names)} files: give two, or one .tsv")
    paths = [Path(name).expanduser() for name in names]
    for path in paths:
        if not path.is_file():
            raise UserError(f"{setting}: no file {path}; {_beside(path)}")
    return paths


def _beside(path: Path) -> str:
    """What a user who mistyped `path` may have meant."""
    folder = path.parent
    if not folder.is_dir():
        return f"there is no folder {folder} either"
    found = sorted(file.name for file in folder.iterdir() if file.is_file())
    near = difflib.get_close_matches(path.name, found, n=3, cutoff=0.5) or found[:10]
    return f"beside it: {', '.join(near)}" if near else f"{folder} has no files"


def _file_pairs(files: list[Path]) -> Iterator[tuple[str, str]]:
    if len(files) == 1:
        return _tsv_pairs(files[0])
    return _parallel_pairs(*files)


def _tsv_pairs(path: Path) -> Iterator[tuple[str, str]]:
    """Source in the first column, target in the second; further columns are not ours."""
    for number, line in enumerate(_lines(path), start=1):
        columns = line.split("\t")
        if len(columns) < 2:
            raise UserError(
                f"{path}, line {number}: no tab in {line!r:.80}; a line must be source, tab, target"
            )
        yield columns[0], columns[1]


def _parallel_pairs(source: Path, target: Path) -> Iterator[tuple[str, str]]:
    """Line k of one file with line k of the other."""
    lengths = [0, 0]
    for pair in zip_longest(_lines(source), _lines(target)):
        lengths = [n + (line is not None) for n, line in zip(lengths, pair)]
        if None not in pair:
            yield pair
    if lengths[0] != lengths[1]:
        raise UserError(
            f"{source} has {lengths[0]} lines and {target} has {lengths[1]}: "
            "line k of one must translate line k of the other"
        )


def _lines(path: Path) -> Iterator[str]:
    r"""The lines of a UTF-8 file, split at "\n" alone: text may hold other Unicode separators."""
    number = 0
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                # Windows ends lines with "\r\n" and may begin a file with a byte order mark.
                encoding = "utf-8-sig" if number == 1 else "utf-8"
                yield line.removesuffix(b"\n").removesuffix(b"\r").decode(encoding)
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path}, line {number}: not UTF-8 (byte 0x{error.object[error.start]:02x}); "
            "convert the file, for example with iconv"
        ) from error
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"cannot read {path} after line {number}: {reason}") from error


# --- TFDS --------------------------------------------------------------------------------------


def _dataset_pairs(data: DataConfig, split: Split) -> Iterator[tuple[str, str]]:
    builder = _prepared_builder(data, split)
    try:
        examples = builder.as_data_source(split=_split_name(data, split))
    except NotImplementedError as error:
        raise UserError(
            f"{builder.data_dir} was prepared in a format that only TensorFlow reads: "
            "set the variable TFDS_DATA_DIR to another folder, to prepare it anew"
        ) from error
    for start in range(0, len(examples), READ_AT_ONCE):
        chosen = range(start, min(start + READ_AT_ONCE, len(examples)))
        for example in examples.__getitems__(chosen):
            yield example[data.source].decode(), example[data.target].decode()


def _split_name(data: DataConfig, split: Split) -> str:
    return getattr(data, f"{split}_split")


def _prepared_builder(data: DataConfig, split: Split) -> Any:
    """The TFDS builder of `data.dataset`, its examples written to disk on first use."""
    tfds = _import_tfds()
    with _without_chatter():
        builder = _builder(tfds, data.dataset)
        _check_languages(builder, data)
        if not builder.is_prepared():
            place = builder.data_dir
            print(f"Preparing {data.dataset} in {place} (only once) ...", file=sys.stderr)
            _prepare(tfds, builder, data)
    _check_split(builder, data, split)
    return builder


def _import_tfds() -> Any:
    """TFDS, with its translation datasets and ours registered; slow to import, hence only here."""
    try:
        import tensorflow_datasets as tfds
        import tensorflow_datasets.translate

        from transformer.data.datasets import multi30k, phrasebook  # noqa: F401
    except ImportError as error:
        raise UserError(
            f"data.dataset needs TFDS, which does not import ({error}): "
            "pip install tensorflow-datasets array_record, or set data.train_files instead"
        ) from error
    if not sys.stderr.isatty():
        tfds.disable_progress_bar()
    return tfds


@contextlib.contextmanager
def _without_chatter() -> Iterator[None]:
    """Keep TFDS's warnings about a dataset not prepared yet, and standard output, to ourselves."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        logger.setLevel(level)


def _builder(tfds: Any, name: str) -> Any:
    """The TFDS builder of that name; a wrong name is answered with those nearest to it."""
    try:
        return tfds.builder(name)
    except Exception as error:  # TFDS raises several kinds, with long texts
        dataset, _, config = name.partition("/")
        known = tfds.list_builders(with_community_datasets=False)
        if dataset in known:
            configs = list(tfds.builder_cls(dataset).builder_configs)
            choice = f"{dataset} has {_nearest(config, configs)}"
        else:
            choice = f"the nearest names are {_nearest(dataset, known)}"
        raise UserError(f"data.dataset: no TFDS dataset {name!r}; {choice}") from error


def _nearest(name: str, known: list[str]) -> str:
    return ", ".join(difflib.get_close_matches(name, known, n=5, cutoff=0.3) or sorted(known)[:5])


def _check_languages(builder: Any, data: DataConfig) -> None:
    languages = list(builder.info.features)
    for setting, language in (("data.source", data.source), ("data.target", data.target)):
        if language not in languages:
            raise UserError(
                f"{setting} ({language!r}) is not in {data.dataset}, which has "
                + ", ".join(languages)
            )


def _prepare(tfds: Any, builder: Any, data: DataConfig) -> None:
    """Let TFDS write the examples to disk, in the format that reads without TensorFlow."""
    manual_dir = Path(data.manual_dir).expanduser() if data.manual_dir else None
    if manual_dir and not manual_dir.is_dir():
        raise UserError(f"data.manual_dir: there is no folder {manual_dir}")
    try:
        builder.download_and_prepare(
            file_format="array_record",
            download_config=tfds.download.DownloadConfig(manual_dir=manual_dir),
        )
    except UserError:
        raise
    except Exception as error:  # whatever a builder of TFDS does
        reason = str(error).strip().partition("\n")[0]
        raise UserError(
            f"TFDS could not prepare {data.dataset} in {builder.data_dir}: "
            f"{type(error).__name__}: {reason}"
        ) from error


def _check_split(builder: Any, data: DataConfig, split: Split) -> None:
    """The split that the settings name must exist; it may be a slice, such as train[:10%]."""
    name = _split_name(data, split)
    try:
        builder.info.splits[name]
    except (KeyError, ValueError) as error:
        known = ", ".join(builder.info.splits)
        raise UserError(
            f"data.{split}_split ({name!r}) is not in {data.dataset}, which has {known}"
        ) from error
