"""Files of translators in XML: XLIFF 1.2 and 2, and TMX 1.4."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple
from xml.parsers import expat

from transformer.data.languages import same_language
from transformer.documents.document import Document, Slot
from transformer.documents.html import characters, escape
from transformer.documents.segment import Segment, Token
from transformer.documents.tags import with_tags
from transformer.errors import UserError

WITH_TEXT = frozenset({"g", "hi", "mrk", "pc"})
"""Inline elements with text of the sentence in them."""

FIRST = {"bpt": ("rid", "i", "id"), "bx": ("rid", "id"), "sc": ("id",)}
LAST = {"ept": ("rid", "i", "id"), "ex": ("rid", "id"), "ec": ("startRef",)}
"""Inline elements that stand for an opening and for a closing tag. Two are a pair if the first of
these attributes that they have has the same value."""


class Event(NamedTuple):
    """A part of the file: "open" or "close" for the tags of an element, "empty" for an element that
    is one tag, "text", "verbatim" (text in CDATA), or "other"."""

    raw: str
    kind: str
    name: str = ""
    attributes: dict[str, str] | None = None

    def attribute(self, *names: str) -> str:
        """The value of the first of these attributes that there is, or ""."""
        values = self.attributes or {}
        return next((values[name] for name in names if name in values), "")


class Element(NamedTuple):
    """An element among events: its name, the number of its first event, and that after its last."""

    name: str
    first: int
    last: int


def read_xliff(source: str) -> Document:
    """Units without a translation get one behind their source. Translations that are there stay, as
    do units with `translate="no"`. Raises UserError for text that is not XML."""
    found = events(source)
    document: Document = []
    done = 0
    for unit in elements(found, {"trans-unit", "segment"}):
        inner = {one.name: one for one in children(found, unit)}
        content = inner.get("seg-source", inner.get("source"))
        if content is None or found[unit.first].attribute("translate") == "no":
            continue
        target = inner.get("target")
        if target and _content(found, target):
            continue
        tag = found[content.first].raw.partition(
            "seg-source" if "seg-" in content.name else "source"
        )
        name = f"{tag[0][1:]}target"
        place = target.last if target else content.last
        document.append(_raw(found[done : target.first if target else place]))
        if target:
            first = found[target.first].raw.rstrip("/>").rstrip() + ">"
            document.append(_slot(found, content, first, f"</{name}>", _raw(_of(found, target))))
        else:
            before = f"{_indentation(found, content)}<{name}>"
            document.append(_slot(found, content, before, f"</{name}>"))
        done = place
    return [*document, _raw(found[done:])]


def read_tmx(source: str, source_language: str, target_language: str) -> Document:
    """Units of the source language without one of the target language get it, behind the source.
    Raises UserError for text that is not XML, or that has no text of the source language."""
    found = events(source)
    document: Document = []
    done, is_there = 0, False
    for unit in elements(found, {"tu"}):
        variants = [one for one in children(found, unit) if one.name == "tuv"]
        codes = [found[one.first].attribute("xml:lang", "lang") for one in variants]
        own = [one for one, code in zip(variants, codes) if same_language(code, source_language)]
        contents = [one for tuv in own for one in children(found, tuv) if one.name == "seg"]
        is_there |= bool(contents)
        if contents and not any(same_language(code, target_language) for code in codes):
            document.append(_raw(found[done : own[0].last]))
            before = f'{_indentation(found, own[0])}<tuv xml:lang="{target_language}"><seg>'
            document.append(_slot(found, contents[0], before, "</seg></tuv>"))
            done = own[0].last
    if not is_there:
        raise UserError(f"the document has no <tuv> in {source_language}, the source language")
    return [*document, _raw(found[done:])]


def _slot(found: Sequence[Event], content: Element, before: str, after: str, raw: str = "") -> Slot:
    inner = _tokens(found[content.first + 1 : content.last - 1])
    return Slot(Segment((*with_tags([*inner]),)), raw, escape, before, after)


def _tokens(found: Sequence[Event]) -> Iterator[Token]:
    """The text and the inline markup of a unit."""
    rest = iter(enumerate(found))
    for number, event in rest:
        name = event.name
        if event.kind == "text":
            yield from characters(event.raw)
        elif event.kind == "verbatim":
            yield from (Token(one, "text", one) for one in event.raw)
        elif name in WITH_TEXT and event.kind == "close":
            yield Token(event.raw, "close", name)
        elif name in WITH_TEXT and event.kind == "open" and event.attribute("translate") != "no":
            yield Token(event.raw, "open", name)
        else:
            last = _end(found, number)
            raw = _raw(found[number:last])
            for _ in range(number + 1, last):
                next(rest)
            if name in FIRST:
                yield Token(raw, "open", f"pair {event.attribute(*FIRST[name])}")
            elif name in LAST:
                yield Token(raw, "close", f"pair {event.attribute(*LAST[name])}")
            else:
                is_break = event.attribute("ctype", "subType") in ("lb", "xlf:lb")
                yield Token(raw, "break" if is_break else "alone")


def elements(found: Sequence[Event], names: set[str]) -> Iterator[Element]:
    """The elements of these names; of one in another, the outer."""
    number = 0
    while number < len(found):
        event = found[number]
        if event.name in names and event.kind == "open":
            last = _end(found, number)
            yield Element(event.name, number, last)
            number = last
        else:
            number += 1


def children(found: Sequence[Event], parent: Element) -> Iterator[Element]:
    """The elements directly in another."""
    number = parent.first + 1
    while number < parent.last - 1:
        last = _end(found, number)
        if found[number].kind in ("open", "empty"):
            yield Element(found[number].name, number, last)
        number = last


def _end(found: Sequence[Event], number: int) -> int:
    """The number of the event after an element that begins here, or after any other event."""
    depth = 0
    for last in range(number, len(found)):
        depth += (found[last].kind == "open") - (found[last].kind == "close")
        if depth <= 0:
            return last + 1
    return len(found)


def _of(found: Sequence[Event], element: Element) -> Sequence[Event]:
    return found[element.first : element.last]


def _content(found: Sequence[Event], element: Element) -> str:
    return _raw(found[element.first + 1 : element.last - 1]).strip()


def _indentation(found: Sequence[Event], element: Element) -> str:
    """The whitespace before an element."""
    before = found[element.first - 1].raw
    return before[len(before.rstrip()) :]


def _raw(found: Sequence[Event]) -> str:
    return "".join(event.raw for event in found)


def events(source: str) -> list[Event]:
    """The parts of a file; together they are the file. Raises UserError if it is not XML."""
    data = source.encode()
    parser = expat.ParserCreate("utf-8")
    starts: list[int] = [0]
    kinds: list[tuple] = [("other",)]
    text = "text"

    def add(*kind) -> None:
        starts.append(parser.CurrentByteIndex)
        kinds.append(kind)

    def cdata(kind: str) -> None:
        nonlocal text
        text = kind
        add("other")

    parser.StartElementHandler = lambda name, values: add("open", _local(name), values)
    parser.EndElementHandler = lambda name: add("close", _local(name))
    parser.CharacterDataHandler = lambda _: add(text)
    parser.StartCdataSectionHandler = lambda: cdata("verbatim")
    parser.EndCdataSectionHandler = lambda: cdata("text")
    parser.CommentHandler = parser.DefaultHandler = lambda _: add("other")
    parser.ProcessingInstructionHandler = lambda *_: add("other")
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        raise UserError(f"the document is not XML: {error}") from error
    found = []
    for start, end, kind in zip(starts, [*starts[1:], len(data)], kinds):
        raw = data[start:end].decode()
        if kind[0] == "open" and raw.endswith("/>"):
            kind = ("empty", *kind[1:])
        if kind == ("text",) and found and found[-1].kind == "text":
            found[-1] = Event(found[-1].raw + raw, "text")
        elif raw:
            found.append(Event(raw, *kind))
    return found


def _local(name: str) -> str:
    """The name of an element without its prefix."""
    return name.rpartition(":")[2]
