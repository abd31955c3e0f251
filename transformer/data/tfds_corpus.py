"""Sentence pairs, or text of one side, from a TFDS dataset, prepared without TensorFlow."""

import contextlib
import difflib
import io
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from transformer.config import DataConfig
from transformer.data.files import Split, as_pair, expanded, file_state, not_in_dataset, on_one_line
from transformer.errors import UserError, one_line

READ_AT_ONCE = 1_000
"""Examples fetched from TFDS by one call: several times quicker than one by one."""


def read_pairs(data: DataConfig, split: Split) -> Iterator[tuple[str, str]]:
    """The (source, target) sentences of a split; prepares the dataset on first use."""
    builder = prepared_builder(data, split)
    try:
        examples = builder.as_data_source(split=getattr(data, f"{split}_split"))
    except NotImplementedError as error:
        raise UserError(
            f"{builder.data_dir} was prepared in a format that only TensorFlow reads: "
            "set the variable TFDS_DATA_DIR to another folder, to prepare it again"
        ) from error
    for start in range(0, len(examples), READ_AT_ONCE):
        chosen = range(start, min(start + READ_AT_ONCE, len(examples)))
        for example in examples.__getitems__(chosen):
            texts = (example[getattr(data, side)].decode() for side in data.sides)
            yield as_pair(data, [on_one_line(text) for text in texts])


def check(data: DataConfig, split: Split) -> None:
    """Raises UserError for a dataset that cannot be prepared or has no such split."""
    prepared_builder(data, split)


def fingerprint(data: DataConfig, split: Split) -> str:
    """The version, languages, split and number of examples, and when it was prepared."""
    builder = prepared_builder(data, split)
    part = getattr(data, f"{split}_split")
    languages = f"{data.source}-{data.target}"
    count = builder.info.splits[part].num_examples
    description = Path(builder.data_dir, "dataset_info.json")
    prepared = file_state(description) if description.exists() else ""  # not so in the cloud
    return f"{builder.info.full_name}|{languages}|{part}|{count}|{prepared}"


def prepared_builder(data: DataConfig, split: Split) -> Any:
    """The TFDS builder of `data.dataset`, its examples written to disk on first use."""
    tfds = _import_tfds()
    with _without_chatter():
        builder = _builder(tfds, data.dataset)
        _check_languages(tfds, builder, data)
        if not builder.is_prepared():
            place = builder.data_dir
            print(f"Preparing {data.dataset} in {place} (only once) ...", file=sys.stderr)
            _prepare(builder, data)
            builder = _builder(tfds, data.dataset)  # which reads what is on disk now
    try:
        builder.info.splits[getattr(data, f"{split}_split")]  # or a slice, such as train[:1%]
    except (KeyError, ValueError) as error:
        raise not_in_dataset(data, f"{split}_split", builder.info.splits) from error
    return builder


def _import_tfds() -> Any:
    """TFDS, with its translation datasets and ours registered; slow to import, hence only here."""
    try:
        import tensorflow_datasets as tfds
        import tensorflow_datasets.translate

        from transformer.data.datasets import multi30k  # noqa: F401
        from transformer.data.datasets.phrasebook import dataset  # noqa: F401
    except ImportError as error:
        raise UserError(
            f"data.dataset needs TFDS, which cannot be imported ({error}): "
            "pip install tensorflow-datasets array_record, or set data.train_files instead"
        ) from error
    if not sys.stderr.isatty():
        tfds.disable_progress_bar()
    return tfds


@contextlib.contextmanager
def _without_chatter() -> Iterator[None]:
    """Suppresses TFDS's warnings about a dataset that is not prepared, and standard output."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        logger.setLevel(level)


def _builder(tfds: Any, name: str) -> Any:
    """The TFDS builder of that name. Raises UserError with similar names for a wrong one."""
    try:
        return tfds.builder(name)
    except Exception as error:  # TFDS raises several kinds, with long texts
        dataset, _, config = name.partition("/")
        known = tfds.list_builders(with_community_datasets=False)
        if dataset in known:
            configs = list(tfds.builder_cls(dataset).builder_configs)
            if config in configs or not configs:
                reason = one_line(error)[:200]
                raise UserError(f"data.dataset: TFDS cannot open {name!r}: {reason}") from error
            choice = f"{dataset} has {_nearest(config, configs)}"
        else:
            choice = f"the nearest names are {_nearest(dataset, known)}"
        raise UserError(f"data.dataset: no TFDS dataset {name!r}; {choice}") from error


def _nearest(name: str, known: list[str]) -> str:
    return ", ".join(difflib.get_close_matches(name, known, n=5, cutoff=0.3) or sorted(known)[:5])


def _check_languages(tfds: Any, builder: Any, data: DataConfig) -> None:
    features = builder.info.features
    known = features.keys() if isinstance(features, tfds.features.FeaturesDict) else ()
    languages = [name for name in known if isinstance(features[name], tfds.features.Text)]
    if len(languages) < len(data.sides):
        wanted = "sentence pairs in two languages" if len(data.sides) == 2 else "text"
        raise UserError(f"data.dataset ({data.dataset}) is not a dataset of {wanted}")
    for side in data.sides:
        if getattr(data, side) not in languages:
            raise not_in_dataset(data, side, languages)


def _prepare(builder: Any, data: DataConfig) -> None:
    """Lets TFDS write the examples to disk, in the format that can be read without TensorFlow."""
    from transformer.data.tfds_downloads import Downloads, shuffling_without_tensorflow

    folder = Path(builder.data_dir_root) / "downloads"
    folders = _folders_of_files(builder.name, data)
    try:
        downloads = Downloads(folder, builder, folders)
        builder._make_download_manager = lambda **_: downloads  # there is no public way
        with shuffling_without_tensorflow():
            builder.download_and_prepare(file_format="array_record")
    except UserError:
        raise
    except Exception as error:  # whatever a builder of TFDS does
        if isinstance(error, FileExistsError) and builder.is_prepared():
            return  # by another process, in the meantime
        reason = one_line(error)[:300]
        raise UserError(
            f"TFDS could not prepare {data.dataset} in {builder.data_dir}: "
            f"{type(error).__name__}: {reason}"
        ) from error


def _folders_of_files(name: str, data: DataConfig) -> list[Path]:
    """Folders with files that need not be downloaded: the setting, and the variable NAME_DIR."""
    variable = f"{name.upper()}_DIR"
    named = {"data.manual_dir": data.manual_dir, variable: os.environ.get(variable)}
    folders = {name: expanded(name, value).absolute() for name, value in named.items() if value}
    for setting, folder in folders.items():
        if not folder.is_dir():
            raise UserError(f"{setting}: there is no folder {folder}")
    return list(folders.values())
