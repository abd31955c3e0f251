"""Pairs of sentences from plain files with one sentence per line, or from tables.

A corpus is a source file and a target file (or one file, for text of one side), or one table, .tsv
or .csv; a split is one corpus or several, named one after the other. Files that end in .gz, .bz2,
.xz or .zst are decompressed.
"""

import bz2
import difflib
import gzip
import io
import lzma
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal
from warnings import warn

from transformer.config import DataConfig
from transformer.data.languages import read_code, same_language
from transformer.data.tables import SEPARATORS, looks_like_header, read_rows
from transformer.data.tag_names import code_of, parse_tag
from transformer.errors import UserError

zstd: Any
try:
    from compression import zstd  # Python 3.14
except ImportError:
    try:
        from backports import zstd
    except ImportError:
        zstd = None

Split = Literal["train", "validation", "test"]
Corpus = tuple[Path, ...]
"""A source file and a target file, a file of one side, or one table."""

LANGUAGE = re.compile(r"[a-z]{2}([-_][A-Z]{2})?|[a-z]{2,3}[-_][A-Z][a-z]{3}")
"""What may be a language at the end of a file's name, such as de, pt_BR or zho_Hans; of three
letters, `txt` would be one too."""

ARCHIVES = (".zip", ".tar", ".tgz")

SIGNATURES = {
    b"\x1f\x8b": ".gz", b"BZh": ".bz2", b"\xfd7zXZ\0": ".xz", b"\x28\xb5\x2f\xfd": ".zst",
}  # fmt: skip
"""The first bytes of compressed files."""
COMPRESSED = tuple(SIGNATURES.values())
BROKEN = (OSError, EOFError, zlib.error, lzma.LZMAError, *((zstd.ZstdError,) if zstd else ()))
"""Errors of reading a damaged file."""


def corpora(data: DataConfig, split: Split, setting: str = "") -> list[Corpus]:
    """The corpora of a split; an empty list if it names no files.

    Raises UserError for a file that does not exist; it names the setting, by default
    `data.SPLIT_files`, and similar files in the same folder.
    """
    setting = setting or f"data.{split}_files"
    names = list(getattr(data, f"{split}_files"))
    found = []
    while names:
        width = 1 if is_table(names[0]) else len(data.sides)
        corpus, names = names[:width], names[width:]
        if data.label_column and not is_table(corpus[0]):
            raise UserError(
                f"{setting}: {corpus[0]} is not a .tsv or .csv table, which data.label_column needs"
            )
        if len(corpus) < width or len({is_table(name) for name in corpus}) > 1:
            raise UserError(
                f"{setting}: {corpus[0]} has no target file after it; name a source and a target "
                "file, or one .tsv or .csv file, for each corpus"
            )
        found.append(tuple(existing(setting, name) for name in corpus))
    return found


def with_files(data: DataConfig, split: Split, names: Iterable[str | Path]) -> DataConfig:
    """The settings with these files as a split, as commands name them: of two files the first is
    the source, whatever those of the config are; tables are read as the config says."""
    files = tuple(map(str, names))
    swapped = data.swap_files and is_table(files[0])
    return replace(data, dataset="", swap_files=swapped, **{f"{split}_files": files})


def check(data: DataConfig, split: Split) -> None:
    """Raises UserError for files whose first line cannot be read, or whose names say that they are
    in the other order; may warn of a header."""
    for corpus in corpora(data, split):
        check_order(data, corpus, f"data.{split}_files")
        next(_pairs(data, [corpus]), None)


def fingerprint(data: DataConfig, split: Split) -> str:
    """Path and state of each file, and how it is read."""
    paths = [path.resolve() for corpus in corpora(data, split) for path in corpus]
    read = (data.sides, data.tsv_columns, data.label_column, data.swap_files)
    read += (data.tsv_quotes, data.tsv_header, data.targets)
    return "|".join([*(f"{path}:{file_state(path)}" for path in paths), f"{read}"])


def corpus_sizes(data: DataConfig) -> list[int]:
    """How many pairs each corpus of data.train_files has."""
    return [sum(1 for _ in _pairs(data, [corpus])) for corpus in corpora(data, "train")]


def file_state(path: Path) -> str:
    """Size and times of change of a file: different after every write.

    The second time (ctime) is set by the system alone: it changes even if a program copies the
    first from another file of the same size (cp -p, rsync -t, tar).
    """
    stat = path.stat()
    return f"{stat.st_size}:{stat.st_mtime_ns}:{stat.st_ctime_ns}"


def read_pairs(data: DataConfig, split: Split) -> Iterator[tuple[str, str]]:
    """The (source, target) sentences of a split, one corpus after the other.

    A side that does not exist is ""; the target of a classifier is the class. Raises UserError,
    possibly only after some pairs: files of different lengths, a table without such a column, text
    that is not UTF-8, a file that is damaged.
    """
    return _pairs(data, corpora(data, split))


def _pairs(data: DataConfig, found: list[Corpus]) -> Iterator[tuple[str, str]]:
    for corpus in found:
        if is_table(corpus[0].name):
            pairs = _table_pairs(data, *corpus)
        elif len(corpus) == 2:
            pairs = _parallel_pairs(*corpus)
        else:
            pairs = (as_pair(data, [line]) for line in file_lines(*corpus))
        tag = f">>{language_of(data, corpus)}<< " if data.targets else ""
        for number, pair in enumerate(pairs, start=1):
            source, target = reversed(pair) if data.swap_files else pair
            own = parse_tag(source)[0] if tag else ""
            if own and (code_of(own) in data.targets or read_code(code_of(own))):
                raise UserError(
                    f"{' and '.join(map(str, corpus))}: source {number} begins with {own}, and "
                    "data.targets would add a tag before it: remove data.targets, and set "
                    "data.user_symbols to the tags"
                )
            yield tag + source if source.strip() else source, target


def language_of(data: DataConfig, corpus: Corpus) -> str:
    """Which of data.targets a corpus is in: the last one in the name of its target file, such as fr
    of news.en-fr.tsv. Raises UserError if the name has none."""
    path = corpus[0] if data.swap_files else corpus[-1]
    codes = "|".join(sorted(map(re.escape, data.targets), key=len, reverse=True))
    found = re.findall(rf"(?<![^\W_])(?:{codes})(?![^\W_])", path.name, re.IGNORECASE)
    if not found:
        inner = without_compression(path)
        stem, ending = (inner.stem, inner.suffix) if is_table(path.name) else (inner.name, "")
        better = f"{stem}.{data.targets[0]}{ending}{path.name.removeprefix(inner.name)}"
        raise UserError(
            f"data.targets: no part of the name {path.name} is {' or '.join(data.targets)}: rename "
            f"it, for example to {better}"
        )
    return next(code for code in data.targets if code.lower() == found[-1].lower())


def languages_in(names: Iterable[str]) -> list[str]:
    """The language at the end of the name of each text file, such as fr of news.fr.gz; "" of none.
    Tables are left out."""
    texts = [without_compression(Path(name)) for name in names if not is_table(name)]
    codes = [path.suffix.removeprefix(".") for path in texts]
    return [code if LANGUAGE.fullmatch(code) and read_code(code) else "" for code in codes]


def check_order(data: DataConfig, corpus: Corpus, setting: str) -> None:
    """Warns of a file that by its name is in another language than its side. Raises UserError for
    two files of which the target file has the source language, and the other file another one.
    With data.targets, corpora may be of several directions."""
    sides = corpus[::-1] if data.swap_files else corpus
    named = languages_in(map(str, sides))
    if data.targets or len(named) < 2 or not all(named):
        return
    source, target = named
    if same_language(target, data.source) and not same_language(source, data.source):
        raise UserError(
            f"{setting}: by their names, {' and '.join(map(str, corpus))} translate from {source} "
            f"to {target}, not from {data.source}: name them in the other order"
        )
    for path, code, language in zip(sides, named, (data.source, data.target)):
        # Longer codes are often no languages, such as src and ref.
        if len(code) == 2 and not same_language(code, language):
            warn(f"{setting}: by its name, {path} is in {code}, not in {language}", stacklevel=1)


def as_pair(data: DataConfig, texts: Sequence[str]) -> tuple[str, str]:
    """The texts of the sides that exist, as a pair; the other side is ""."""
    if len(texts) == 2:
        return texts[0], texts[1]
    return (texts[0], "") if data.source else ("", texts[0])


def on_one_line(text: str) -> str:
    """Datasets keep the end of a line in some texts, and a few texts have more than one line."""
    return text.strip("\r\n").replace("\r", " ").replace("\n", " ")


def not_in_dataset(data: DataConfig, setting: str, known: Iterable[str]) -> UserError:
    """The error for a language or split that a dataset lacks."""
    value = getattr(data, setting)
    return UserError(
        f"data.{setting} ({value!r}) is not in {data.dataset}, which has {', '.join(known)}"
    )


def read_lines(setting: str, name: str) -> list[str]:
    """The lines of one text file. Raises UserError naming the setting, or the line."""
    return list(file_lines(existing(setting, name)))


def is_table(name: str) -> bool:
    """Whether a file is a table by its name, compressed or not."""
    return _separator(Path(name)) is not None


def _separator(path: Path) -> str | None:
    """The separator of a table's columns; None for other files."""
    return SEPARATORS.get(without_compression(path).suffix.lower())


def without_compression(path: Path) -> Path:
    """The path without the ending of its compression: text.en of text.en.gz."""
    return path.with_suffix("") if path.suffix.lower() in COMPRESSED else path


def existing(setting: str, name: str) -> Path:
    """The path of a file that can be opened. Raises UserError naming the setting."""
    path = expanded(setting, name)
    if path.is_dir():
        raise UserError(f"{setting}: {path} is a folder; name the files in it")
    if not path.is_file():
        raise UserError(f"{setting}: there is no file {path}; {_beside(path)}")
    if set(map(str.lower, path.suffixes)) & set(ARCHIVES):
        raise UserError(f"{setting}: {path} is an archive; unpack it and name the files in it")
    if path.suffix.lower() == ".zst" and zstd is None:
        raise UserError(f"{setting}: {path} needs a package: pip install backports.zstd")
    return path


def expanded(setting: str, name: str) -> Path:
    """The path with its ~ replaced. Raises UserError naming the setting."""
    try:
        return Path(name).expanduser()
    except RuntimeError as error:
        raise UserError(f"{setting}: {name} is in the home folder of an unknown user") from error


def _beside(path: Path) -> str:
    """The files that a mistyped `path` may mean."""
    folder = path.parent
    if not folder.is_dir():
        return f"there is no folder {folder} either"
    found = sorted(file.name for file in folder.iterdir() if file.is_file())
    near = difflib.get_close_matches(path.name, found, n=3, cutoff=0.5) or found[:10]
    return f"its folder has {', '.join(near)}" if near else f"{folder} has no files"


def _table_pairs(data: DataConfig, path: Path) -> Iterator[tuple[str, str]]:
    """Two columns of a table, by default the first two; one column for text of one side."""
    by_side = dict(zip(("source", "target"), data.tsv_columns))
    chosen = [by_side[side] for side in data.sides]
    if data.label_column:
        chosen.append(data.label_column)
    separator = _separator(path)
    is_quoted = data.tsv_quotes or separator == ","
    rows = read_rows(str(path), file_lines(path), separator, is_quoted)
    if data.tsv_header:
        next(rows, None)
    for number, columns in rows:
        if not any(map(str.strip, columns)):  # a blank row, such as the last one of an export
            continue
        if len(columns) < max(chosen):
            semicolons = separator == "," and ";" in columns[0]
            raise UserError(
                f"{path}, line {number}: {len(columns)} column(s) in "
                f"{separator.join(columns)!r:.80}, but data.tsv_columns"
                f"{' or data.label_column' * (data.label_column > 0)} names "
                f"column{'s' * (len(chosen) > 1)} {' and '.join(map(str, chosen))}, separated by "
                f"{'commas' if separator == ',' else 'tabs'}"
                f"{', not by semicolons: export the table as .tsv' * semicolons}"
            )
        texts = [columns[column - 1] for column in chosen]
        if number == 1 and looks_like_header(data, texts):
            warn(
                f"the first row of {path} looks like a header ({' | '.join(texts)}), but is read "
                "as text: set data.tsv_header to skip the first row of each table",
                stacklevel=1,  # the same place for all, so that it is printed once
            )
        if data.label_column:
            texts[1] = texts[1].strip()
            if not texts[1]:
                raise UserError(
                    f"{path}, line {number}: column {data.label_column} (data.label_column) "
                    "is empty"
                )
        yield as_pair(data, texts)


def _parallel_pairs(source: Path, target: Path) -> Iterator[tuple[str, str]]:
    """Line k of one file with line k of the other."""
    lengths = [0, 0]
    for pair in zip_longest(file_lines(source), file_lines(target)):
        lengths = [n + (line is not None) for n, line in zip(lengths, pair)]
        if None not in pair:
            yield pair
    if lengths[0] != lengths[1]:
        raise UserError(
            f"{source} has {lengths[0]} lines and {target} has {lengths[1]}: "
            "line k of one must translate line k of the other"
        )


def file_lines(path: Path) -> Iterator[str]:
    r"""The lines of a UTF-8 file, split at "\n" alone: text may hold other Unicode separators.

    Raises UserError for a file that is damaged, not UTF-8, or has "\r" in place of "\n".
    """
    number = 0
    try:
        with _open(path) as file:
            for number, line in enumerate(file, start=1):
                # Windows ends lines with "\r\n" and may begin a file with a byte order mark.
                encoding = "utf-8-sig" if number == 1 else "utf-8"
                if number == 1:
                    _check_beginning(path, line)
                yield line.removesuffix(b"\n").rstrip(b"\r").decode(encoding)
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path}, line {number}: not UTF-8 (byte 0x{error.object[error.start]:02x}); "
            "convert the file, for example with iconv"
        ) from error
    except BROKEN as error:
        reason = getattr(error, "strerror", None)  # of the system
        is_packed = number == 0 and path.suffix.lower() in COMPRESSED
        remedy = f"; if it is not compressed, rename it to {path.stem}"
        raise UserError(
            f"cannot read {path} after line {number}: {reason or error}"
            + remedy * (is_packed and not reason)
        ) from error


def _check_beginning(path: Path, line: bytes) -> None:
    """Raises UserError for the first line of a file that is compressed, looks like UTF-16, or ends
    its lines in another way."""
    for signature, suffix in SIGNATURES.items():
        if line.startswith(signature):
            raise UserError(f"{path} is compressed: rename it to {path.name}{suffix}")
    if 3 * line.count(b"\0") > len(line):
        raise UserError(f"{path} seems to be UTF-16: convert the file to UTF-8, such as with iconv")
    if not line.endswith(b"\n") and b"\r" in line.rstrip(b"\r"):
        raise UserError(
            f"{path}: its lines end with carriage returns alone; convert it, for example with: "
            "tr '\\r' '\\n' < FILE > NEW_FILE"
        )


def _open(path: Path) -> io.BufferedIOBase:
    openers = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open, ".zst": zstd and zstd.open}
    return openers.get(path.suffix.lower(), open)(path, "rb")
