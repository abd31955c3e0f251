"""`train.py CONFIG --doctor`: examines the data, as text and as tokens."""

from collections.abc import Callable
from pathlib import Path

from transformer.config import Config, DataConfig
from transformer.data.doctor import diagnosis
from transformer.data.prepare import prepare_tokenizers
from transformer.data.vocabularies import Tokenizers


def examine_data(config: Config, home: Path | None, log: Callable[[str], None]) -> None:
    """Prints the findings. `home` is the run that the vocabulary comes from, if any."""

    def tokenizers(_: DataConfig) -> Tokenizers:
        return prepare_tokenizers(config, home, log)[1]

    for line in diagnosis(config, tokenizers):
        log(line)
