"""Sentence pairs, or text of one side, from a dataset of Hugging Face's `datasets` (an extra).

It is named OWNER/NAME or OWNER/NAME/CONFIG, as on the Hub, or is a folder of JSON lines, Parquet or
CSV files whose names say the split, such as train.jsonl. Languages are columns, or keys of a column
`translation`.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from transformer.config import DataConfig
from transformer.data.files import Split, as_pair, expanded, file_state, not_in_dataset, on_one_line
from transformer.errors import UserError, one_line

PREFIX = "huggingface:"
"""What `data.dataset` begins with."""

READ_AT_ONCE = 1_000
"""Rows converted from Arrow together."""


def read_pairs(data: DataConfig, split: Split) -> Iterator[tuple[str, str]]:
    """The (source, target) sentences of a split; prepares the dataset on first use. An absent text
    (null) is empty."""
    rows = _load(data, split)
    columns = [_column(data, rows, side) for side in data.sides]
    for some in rows.select_columns(columns).iter(READ_AT_ONCE):
        for texts in zip(*(some[column] for column in columns)):
            yield as_pair(data, [on_one_line(text or "") for text in texts])


def check(data: DataConfig, split: Split) -> None:
    """Raises UserError for a dataset that cannot be loaded or lacks the split or a language."""
    rows = _load(data, split)
    for side in data.sides:
        _column(data, rows, side)


def fingerprint(data: DataConfig, split: Split) -> str:
    """Path and state of the Arrow files that the dataset was prepared in, the columns, the split
    and its number of rows."""
    rows = _load(data, split)
    paths = [Path(file["filename"]) for file in rows.cache_files]
    read = data.source, data.target, getattr(data, f"{split}_split"), len(rows)
    return "|".join([*(f"{path}:{file_state(path)}" for path in paths), f"{read}"])


def _load(data: DataConfig, split: Split) -> Any:
    """The `datasets.Dataset` of a split, with the keys of a column `translation` as columns."""
    try:
        import datasets
        from datasets.exceptions import DatasetGenerationError
    except ImportError as error:
        raise UserError(
            f"data.dataset ({data.dataset}) needs Hugging Face's datasets, which cannot be "
            f"imported ({error}): pip install -e '.[huggingface]'"
        ) from error
    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
    name = data.dataset.removeprefix(PREFIX)
    folder, parts = expanded("data.dataset", name), name.split("/")
    missing = "" if folder.is_dir() else f", and there is no folder {folder}"
    if not name or (missing and (len(parts) < 2 or parts[0] in ("", ".", "..", "~"))):
        raise UserError(
            f"data.dataset: there is no folder {folder}; a dataset of the Hub is named "
            f"{PREFIX}OWNER/NAME or {PREFIX}OWNER/NAME/CONFIG"
        )
    path, config = ("/".join(parts[:2]), "/".join(parts[2:])) if missing else (str(folder), "")
    part = getattr(data, f"{split}_split")
    try:
        builder = datasets.load_dataset_builder(path, config or None)
        # In tables, words such as None and NA are text, though pandas reads them as missing.
        is_table = hasattr(builder.config, "keep_default_na")
        options: dict[str, Any] = {"keep_default_na": False} if is_table else {}
        rows = datasets.load_dataset(
            path, config or None, split=part, keep_in_memory=False, **options
        )
    except Exception as error:  # it raises several kinds, with long texts
        is_read = isinstance(error, DatasetGenerationError)
        reason = one_line(error.__cause__ if is_read and error.__cause__ else error)[:300]
        offline = isinstance(error, ConnectionError)
        raise UserError(
            f"data.dataset: Hugging Face cannot load {name} (data.{split}_split {part}){missing}: "
            f"{reason}" + "; without a network, name a folder of its files" * offline
        ) from error
    return rows.flatten()


def _column(data: DataConfig, rows: Any, side: str) -> str:
    """The column of a side. Raises UserError naming the columns of text."""
    language = getattr(data, side)
    texts = [name for name, kind in rows.features.items() if "string" in getattr(kind, "dtype", "")]
    for name in (language, f"translation.{language}"):
        if name in texts:
            return name
    known = [name.removeprefix("translation.") for name in texts]
    raise not_in_dataset(data, side, known or ["no text"])
