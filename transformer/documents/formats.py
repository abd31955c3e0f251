"""The reader of each format."""

import re

from transformer.documents import Format
from transformer.documents.document import Document
from transformer.documents.html import read_html
from transformer.documents.paragraphs import read_paragraphs
from transformer.documents.po import read_po
from transformer.documents.subtitles import read_subtitles
from transformer.documents.xml import read_tmx, read_xliff
from transformer.errors import UserError

DECLARED = re.compile(r"""\s(?:source-language|srcLang|srclang)=["']([\w-]+)["']""")

SUFFIXES: dict[str, Format] = {
    "txt": "paragraphs",
    "html": "html",
    "htm": "html",
    "xhtml": "html",
    "srt": "srt",
    "vtt": "srt",
    "po": "po",
    "pot": "po",
    "xliff": "xliff",
    "xlf": "xliff",
    "tmx": "tmx",
}


def format_of(name: str) -> Format:
    """The format of a file, by the end of its name. Raises UserError if there is none."""
    suffix = name.rpartition(".")[2].lower()
    if suffix not in SUFFIXES:
        known = ", ".join(f".{one}" for one in SUFFIXES)
        raise UserError(f"{name!r} is a file of no known format: its name must end in {known}")
    return SUFFIXES[suffix]


def read_text(data: bytes, name: str = "the document") -> str:
    """A document as text, its byte order mark included. Raises UserError if it is not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UserError(
            f"line {line:,} of {name} is not UTF-8 ({error.reason}): convert it, for example with "
            "iconv"
        ) from error


def declared_source(source: str) -> str:
    """The source language that a file of XLIFF or TMX names. Raises UserError if it names none."""
    found = DECLARED.search(source)
    if not found:
        raise UserError("the document does not name its source language: set 'source'")
    return found[1]


def read_document(source: str, form: Format, languages: tuple[str, str]) -> Document:
    """A document of this format, to be translated between two languages. Raises UserError for text
    of another format, and for a file of other languages."""
    match form:
        case "paragraphs":
            return read_paragraphs(source)
        case "html":
            return read_html(source)
        case "srt":
            return read_subtitles(source)
        case "po":
            return read_po(source, languages[1])
        case "xliff":
            return read_xliff(source, languages)
        case "tmx":
            return read_tmx(source, languages)
