"""`train.py CONFIG --doctor`: examines the data, as text and as tokens."""

from collections.abc import Callable

from transformer.commands.command_line import TrainCommand
from transformer.config import DataConfig
from transformer.data.doctor import diagnosis
from transformer.data.prepare import prepare_tokenizers
from transformer.data.vocabularies import Tokenizers


def examine_data(command: TrainCommand, log: Callable[[str], None]) -> None:
    """Prints the findings."""
    other = command.from_run

    def tokenizers(_: DataConfig) -> Tokenizers:
        return prepare_tokenizers(command.settings, other, bool(other), log)[1]

    for line in diagnosis(command.settings, tokenizers):
        log(line)
