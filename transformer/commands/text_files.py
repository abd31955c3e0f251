"""`train.py FILES`: training data without a config file."""

import re
from pathlib import Path

from transformer.config import Config, DataConfig
from transformer.config.advice import advised
from transformer.data.files import ending_of, is_table
from transformer.data.languages import read_code
from transformer.data.size import corpus_size
from transformer.errors import UserError

LANGUAGE = re.compile(r"[a-z]{2}([-_][A-Za-z]+)?")
"""What may be a language at the end of a file's name; of three letters, `txt` would be one too."""


def data_of(files: tuple[str, ...]) -> DataConfig:
    """Text files, whose names say the languages (text.en.gz), or tables, whose names say none. A
    text file alone is the target side, as one stream."""
    languages = ["" if is_table(name) else _language_in(name) for name in files]
    source, target = languages[:2] if len(files) > 1 else ("", languages[0])
    stream = len(files) == 1 and not is_table(files[0])
    return DataConfig(dataset="", train_files=files, source=source, target=target, windows=stream)


def suited(config: Config) -> Config:
    """`config` with the settings that suit its data. Raises UserError for data that cannot be read,
    or whose languages are unknown."""
    data = config.data
    if not data.sides:
        raise UserError(
            f"the languages of {' '.join(data.train_files)} are unknown: add --data.source and "
            "--data.target, or one of them for text of one side"
        )
    return advised(config, corpus_size(data))


def _language_in(name: str) -> str:
    code = ending_of(Path(name)).removeprefix(".")
    return code if LANGUAGE.fullmatch(code) and read_code(code) else ""
