"""`train.py FILES`: training data without a config file."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformer.config import Config, DataConfig
from transformer.config.advice import advised
from transformer.data.files import existing, is_table, without_compression
from transformer.data.languages import read_code
from transformer.data.size import corpus_size
from transformer.errors import UserError

LANGUAGE = re.compile(r"[a-z]{2}([-_][A-Z]{2})?|[a-z]{2,3}[-_][A-Z][a-z]{3}")
"""What may be a language at the end of a file's name, such as de, pt_BR or zho_Hans; of three
letters, `txt` would be one too."""


def data_of(files: tuple[str, ...]) -> DataConfig:
    """Text files, whose names say the languages (text.en.gz), or tables, whose names say none. A
    text file alone is the target side, as one stream. Raises UserError for a missing file."""
    for name in files:
        existing("data.train_files", name)
    languages = _languages_in(files)
    source, target = languages[:2] if len(languages) > 1 else ["", "", *languages][-2:]
    if source == target:
        source = target = ""
    is_stream = len(files) == len(languages) == 1
    return DataConfig(
        dataset="", train_files=files, source=source, target=target, windows=is_stream
    )


def suited(config: Config, named: Mapping[str, Any]) -> Config:
    """`config` with the settings that suit its data; those that are `named` are given by the user.
    Raises UserError for data that cannot be read, or whose languages are unknown."""
    data = config.data
    languages = _languages_in(data.train_files)
    if not data.sides or (len(data.sides) == 1 and len({*languages}) > 1):
        raise UserError(
            f"the names of {' '.join(data.train_files)} do not tell the languages: add "
            "--data.source and --data.target, or one of them for text of one side"
        )
    if data.swap_files and any(languages):
        raise UserError(
            "data.swap_files contradicts the languages in the names of the files: name the files "
            "in the other order instead"
        )
    return advised(config, corpus_size(data), named)


def _languages_in(files: tuple[str, ...]) -> list[str]:
    """The language at the end of the name of each text file, "" of none."""
    texts = [without_compression(Path(name)) for name in files if not is_table(name)]
    codes = [path.suffix.removeprefix(".") for path in texts]
    return [code if LANGUAGE.fullmatch(code) and read_code(code) else "" for code in codes]
