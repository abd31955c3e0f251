"""`train.py CONFIG --doctor`: what the data are like, as text and as tokens."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from transformer.config import Config
from transformer.data.doctor import diagnosis
from transformer.data.vocabularies import load_tokenizers, make_tokenizers


def examine_data(config: Config, home: Path | None, log: Callable[[str], None]) -> None:
    """Prints the findings. `home` is the run that the vocabulary comes from, if there is one."""
    tokenizers = (
        partial(load_tokenizers, home / "tokenizer") if home else partial(make_tokenizers, tell=log)
    )
    for line in diagnosis(config, tokenizers):
        log(line)
