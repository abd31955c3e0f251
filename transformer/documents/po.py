"""Messages of programs: gettext's .po and .pot files."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from transformer.data.languages import same_language
from transformer.documents.document import Document, Slot, lines
from transformer.documents.embedded_tags import with_tags
from transformer.documents.segment import Segment, Symbol
from transformer.errors import UserError

KEYWORD = re.compile(r"[ \t]*(msgctxt|msgid_plural|msgid|msgstr(?:\[\d+\])?)(?![^\s\"])\s*")
STRING = re.compile(r'[ \t]*"((?:[^"\\]|\\.)*+)"\s*')
STRINGS = re.compile(f"(?:{STRING.pattern})*")
LANGUAGE = re.compile(r'^"Language:\s*([\w-]+)', re.MULTILINE)
SECOND_FORM = re.compile(r"^[ \t]*msgstr\[1\]", re.MULTILINE)
CHARACTER = re.compile(r"\\(?:[0-7]{1,3}|x[0-9a-fA-F]{1,2}|.)|.", re.DOTALL)
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


def read_po(source: str, language: str) -> Document:
    """Messages without a translation are translated: singular and plural into theirs. Translations
    that are there stay, also fuzzy ones. Raises UserError for a line that is not of this format,
    and for a file of another target language."""
    # A language without a second form, such as Japanese, has the first one for all numbers.
    singular = {"msgstr", "msgstr[0]"} if SECOND_FORM.search(source) else {"msgstr"}
    document: Document = []
    messages: dict[str, str] = {}
    for field in _fields(source):
        if field.keyword == "msgid":
            messages = {}
        messages[field.keyword] = field.strings
        document.append(field.before)
        message = messages.get("msgid", "")
        if field.keyword not in singular:
            message = messages.get("msgid_plural", message)
        if field.keyword == "msgstr" and not _characters(message):  # the header
            _check_language(field.strings, language)
        if field.keyword.startswith("msgstr"):
            document.append(_translation(field.strings, message))
        else:
            document.append(field.strings)
    return document


def _check_language(header: str, language: str) -> None:
    named = LANGUAGE.search(header)
    if named and not same_language(named[1], language):
        raise UserError(
            f"the messages are translated to {named[1]}, but the model translates to {language}: "
            "choose another model, or correct the header"
        )


def _translation(strings: str, message: str) -> Slot | str:
    """A slot for a translation that is empty and whose message is not."""
    segment = Segment((*with_tags(_characters(message)),), lines="separate")
    if not segment.raw or any(symbol.role == "text" for symbol in _characters(strings)):
        return strings
    end = strings[len(strings.rstrip("\r\n")) :]
    return Slot(segment, strings, lambda one: SPELLED.get(one, one), before='"', after=f'"{end}')


def _fields(source: str) -> Iterator[Field]:
    """The fields in order; together they are the file."""
    mark = "\ufeff" if source.startswith("\ufeff") else ""
    field = Field("", mark, "")
    for number, line in enumerate(lines(source[len(mark) :]), start=1):
        found = KEYWORD.match(line)
        is_comment = not line.strip() or line.lstrip().startswith(("#", "domain "))
        if found or is_comment:
            yield field
            field = Field(found[1], found[0], "") if found else Field("", "", "")
        start = found.end() if found else 0
        if not (is_comment or (field.keyword and STRINGS.fullmatch(line, start))):
            raise UserError(f"line {number:,} is no line of a .po file: {line.strip()[:60]!r}")
        field = field._replace(strings=field.strings + line[start:])
    yield field


def _characters(strings: str) -> list[Symbol]:
    """The characters of some strings. The text between two of them, such as a line break, is
    markup."""
    symbols: list[Symbol] = []
    done = None
    for match in STRING.finditer(strings):
        start, end = match.span(1)
        if done is not None:
            symbols.append(Symbol(strings[done:start], "alone"))
        symbols += [Symbol(one, "text", _decoded(one)) for one in CHARACTER.findall(match[1])]
        done = end
    return symbols


def _decoded(one: str) -> str:
    if not one.startswith("\\"):
        return one
    name = one[1:]
    if name[0] in "01234567":
        return chr(int(name, 8) % 256)
    if name[0] == "x" and len(name) > 1:
        return chr(int(name[1:], 16))
    return ESCAPES.get(name, name)
