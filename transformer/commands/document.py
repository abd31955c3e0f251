"""A document from standard input, translated to standard output."""

import sys
from typing import Any

from tqdm import tqdm

from transformer.commands.command_line import TranslateCommand
from transformer.config import Config
from transformer.documents.alignment import aligned_translations
from transformer.documents.formats import read_document
from transformer.documents.translation import Handling, translated
from transformer.errors import UserError


def print_document(command: TranslateCommand, config: Config, translator: Any) -> None:
    """Raises UserError for a document that is not of the format that the command names."""
    data = config.data
    document = read_document(
        read_text(sys.stdin.buffer.read()),
        command.input,
        (data.source, command.target or data.target),
    )
    size = 16 * config.decode.batch_sentences

    def translate(sentences):
        found = []
        with tqdm(total=len(sentences), unit=" sentences", disable=not sys.stderr.isatty()) as bar:
            for start in range(0, len(sentences), size):
                some = sentences[start : start + size]
                found += aligned_translations(translator, some, command.target)
                bar.update(len(some))
        return found

    text = translated(document, translate, Handling(data.source, command.keep_numbers))
    sys.stdout.buffer.write(text.encode())
    sys.stdout.buffer.flush()


def read_text(data: bytes) -> str:
    """A document as text, its byte order mark included. Raises UserError if it is not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UserError(
            f"line {line:,} is not UTF-8 ({error.reason}): convert the document, for example with "
            "iconv"
        ) from error
