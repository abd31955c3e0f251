"""`train.py FILES`: training data without a config file."""

from collections.abc import Mapping
from typing import Any

from transformer.config import Config, DataConfig
from transformer.config.advice import advised
from transformer.data.files import existing, languages_in
from transformer.data.languages import same_language
from transformer.data.size import corpus_size
from transformer.errors import UserError


def data_of(files: tuple[str, ...]) -> DataConfig:
    """Text files, whose names say the languages (text.en.gz), or tables, whose names say none. A
    text file alone is the target side, as one stream. Raises UserError for a missing file."""
    for name in files:
        existing("data.train_files", name)
    languages = languages_in(files)
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
    languages = languages_in(data.train_files)
    if not data.sides or (len(data.sides) == 1 and len({*languages}) > 1):
        raise UserError(
            f"the names of {' '.join(data.train_files)} do not tell the languages: add "
            "--data.source and --data.target, or one of them for text of one side"
        )
    if len(data.sides) == 1:
        own = getattr(data, data.sides[0])
        files = (*data.train_files, *data.validation_files, *data.test_files)
        others = {code for code in languages_in(files) if code and not same_language(code, own)}
        if others:
            raise UserError(
                f"by their names, some files are in {' and '.join(sorted(others))}, but the "
                f"training text in {own} alone: name the training text of both sides, such as "
                "text.en text.de"
            )
    if data.swap_files and any(languages):
        raise UserError(
            "data.swap_files contradicts the languages in the names of the files: name the files "
            "in the other order instead"
        )
    return advised(config, corpus_size(data), named)
