"""Random bytes at every reader: they give something, or one sentence, and never anything else."""

import contextlib
import io
import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transformer.commands.standard_input import read_line
from transformer.config import DataConfig
from transformer.config.files import load_config
from transformer.config.rules import check
from transformer.data.corpus import read_pairs
from transformer.data.downloads import unpacked
from transformer.data.token_store import _is_intact
from transformer.data.vocabularies import load_tokenizers
from transformer.errors import UserError
from transformer.runs.folder import load_run_config
from transformer.runs.metrics import Metrics, read_metrics


def read_run(path: Path) -> None:
    check(load_run_config(path.parent))


def read_files(path: Path) -> None:
    list(read_pairs(DataConfig(dataset="", train_files=(str(path), str(path))), "train"))


def read_table(path: Path) -> None:
    list(read_pairs(DataConfig(dataset="", train_files=(str(path),)), "train"))


def read_vocabulary(path: Path) -> None:
    load_tokenizers(path.parent, DataConfig())


def read_archive(path: Path) -> None:
    unpacked(path, path.parent / "out")


def take_up_metrics(path: Path) -> None:
    Metrics(path.parent, 10).close()
    assert len(read_metrics(path.parent)) == len(path.read_text().splitlines())


def read_input(path: Path) -> None:
    for line in io.BytesIO(path.read_bytes()):
        read_line(line, is_first=True)


def read_cache(path: Path) -> None:
    assert not _is_intact(path.parent) or json.loads(path.read_bytes()) == {}


READERS = {
    "checksums.json": read_cache,
    "config.py": load_config,
    "config.json": read_run,
    "plain.txt": read_files,
    **{f"plain.txt{ending}": read_files for ending in (".gz", ".xz", ".zst")},
    "table.tsv": read_table,
    "source.model": read_vocabulary,
    **{f"archive{ending}": read_archive for ending in (".tgz", ".tar", ".zip", ".gz", ".bz2")},
    "metrics.jsonl": take_up_metrics,
    "standard input": read_input,
}

LIKE_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["model", "data", "train", "step", "d_model", "tsv_columns", "norm"]),
            inner,
            max_size=3,
        )
    ),
).map(lambda value: json.dumps(value).encode())


@pytest.mark.parametrize("name", READERS)
@given(content=st.binary(max_size=300) | LIKE_JSON)
def test_random_bytes_give_something_or_one_sentence(name, content):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        with contextlib.suppress(OneSentence):
            read(READERS[name], path)


class OneSentence(Exception):  # noqa: N818
    """A UserError as it should be."""


def read(reader, path: Path) -> None:
    try:
        reader(path)
    except UserError as error:
        if "\n" not in str(error):
            raise OneSentence from error
        raise
