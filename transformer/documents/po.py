"""Messages of programs: gettext's .po and .pot files."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from transformer.documents.document import Document, Slot
from transformer.documents.segment import Segment, Token
from transformer.documents.tags import with_tags
from transformer.errors import UserError

LINE = re.compile(r"[^\n]*\n|[^\n]+")
KEYWORD = re.compile(r'(msgctxt|msgid_plural|msgid|msgstr(?:\[\d+\])?)([ \t]*)(?=")')
STRING = re.compile(r'[ \t]*"((?:[^"\\]|\\.)*)"[ \t]*\r?\n?')
CHARACTER = re.compile(r"\\(?:[0-7]{1,3}|x[0-9a-fA-F]+|.)|.", re.DOTALL)
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
SPELLED = {character: f"\\{name}" for name, character in ESCAPES.items()} | {
    one: f"\\{one}" for one in '"\\'
}


class Field(NamedTuple):
    """A field of a message: its keyword, the text up to its first string, and its strings. Comments
    and blank lines have no keyword."""

    keyword: str
    before: str
    strings: str


def read_po(source: str) -> Document:
    """Messages without a translation are translated: singular and plural into theirs. Translations
    that are there stay, also fuzzy ones. Raises UserError for a line that is not of this format."""
    document: Document = []
    messages: dict[str, str] = {}
    for field in _fields(source):
        if field.keyword == "msgid":
            messages = {}
        messages[field.keyword] = field.strings
        document.append(field.before)
        message = messages.get("msgid", "")
        if field.keyword not in ("msgstr", "msgstr[0]"):
            message = messages.get("msgid_plural", message)
        if field.keyword.startswith("msgstr"):
            document.append(_translation(field.strings, message))
        else:
            document.append(field.strings)
    return document


def _translation(strings: str, message: str) -> Slot | str:
    """A slot for a translation that is empty and whose message is not."""
    segment = Segment((*with_tags(_characters(message)),))
    if not segment.raw or any(token.role == "text" for token in _characters(strings)):
        return strings
    end = strings[len(strings.rstrip("\r\n")) :]
    return Slot(segment, strings, lambda one: SPELLED.get(one, one), before='"', after=f'"{end}')


def _fields(source: str) -> Iterator[Field]:
    """The fields in order; together they are the file."""
    field = Field("", "", "")
    for number, line in enumerate(LINE.findall(source), start=1):
        found = KEYWORD.match(line)
        is_comment = not line.strip() or line.startswith("#")
        if found or is_comment:
            yield field
            field = Field(found[1], found[0], "") if found else Field("", "", "")
        start = found.end() if found else 0
        if not (is_comment or (field.keyword and STRING.fullmatch(line, start))):
            raise UserError(f"line {number:,} is no line of a .po file: {line.strip()[:60]!r}")
        field = field._replace(strings=field.strings + line[start:])
    yield field


def _characters(strings: str) -> list[Token]:
    """The characters of some strings. What stands between two of them, such as a line break, is
    markup."""
    tokens: list[Token] = []
    done = None
    for match in STRING.finditer(strings):
        start, end = match.span(1)
        if done is not None:
            tokens.append(Token(strings[done:start], "alone"))
        tokens += [Token(one, "text", _decoded(one)) for one in CHARACTER.findall(match[1])]
        done = end
    return tokens


def _decoded(one: str) -> str:
    if not one.startswith("\\"):
        return one
    name = one[1:]
    if name[0] in "01234567":
        return chr(int(name, 8))
    if name[0] == "x" and len(name) > 1:
        return chr(int(name[1:], 16) % 0x110000)
    return ESCAPES.get(name, name)
