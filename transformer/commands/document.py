"""A document from standard input, translated to standard output."""

import sys
import warnings
from typing import Any

from tqdm import tqdm

from transformer.commands.command_line import TranslateCommand
from transformer.config import Config
from transformer.data.tag_names import code_of
from transformer.data.tags import known_tags, target_tag
from transformer.decoding.translator import truncation
from transformer.documents.alignment import aligned_translations
from transformer.documents.formats import read_document, read_text
from transformer.documents.placement import Aligned
from transformer.documents.translation import Handling, translated
from transformer.errors import UserError


def print_document(command: TranslateCommand, config: Config, translator: Any) -> None:
    """Raises UserError for a document that is not of the format that the command names, and for a
    model of several target languages if the command names none."""
    data, source = config.data, translator.tokenizers.source
    tag = target_tag(source, command.target)
    if source.tags and not tag:
        raise UserError(f"--input {command.input} needs --target: {known_tags(source.tags)}")
    languages = data.source, code_of(tag) if tag else data.target
    document = read_document(read_text(sys.stdin.buffer.read()), command.input, languages)
    size = 16 * config.decode.batch_sentences
    every: list[Aligned] = []

    def translate(sentences: list[str], needs_alignment: bool) -> list[Aligned]:
        found: list[Aligned] = []
        with tqdm(total=len(sentences), unit=" sentences", disable=not sys.stderr.isatty()) as bar:
            for start in range(0, len(sentences), size):
                some = [tag + sentence for sentence in sentences[start : start + size]]
                found += aligned_translations(translator, some, needs_alignment)
                bar.update(len(some))
        every.extend(found)
        return found

    text = translated(document, translate, Handling(data.source, command.keep_numbers))
    sys.stdout.buffer.write(text.encode())
    sys.stdout.buffer.flush()
    if truncated := sum(one.truncated for one in every):
        warnings.warn(truncation(translator, truncated, len(every)), stacklevel=2)
