"""The glossary that a command names."""

from transformer.config import DecodeConfig
from transformer.data.files import read_lines
from transformer.data.tokenizer import Tokenizer
from transformer.decoding.glossary import Glossary, parse_glossary
from transformer.errors import UserError


def load_glossary(name: str, target: Tokenizer, settings: DecodeConfig) -> Glossary | None:
    """The glossary in a file, None if no file is named. Raises UserError for a file that is no
    glossary, and for greedy search, which cannot have terms."""
    if not name:
        return None
    if settings.beam_size == 1:
        raise UserError("--glossary needs a beam: set --decode.beam-size to 2 or more")
    return parse_glossary(read_lines("--glossary", name), target, name)
