"""Translation files in XML: XLIFF 1.2 and 2, and TMX 1.4."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from xml.parsers import expat

from transformer.data.languages import same_language, standard_code
from transformer.documents.document import Document, Slot
from transformer.documents.embedded_tags import with_tags
from transformer.documents.html import characters, escape
from transformer.documents.segment import Segment, Symbol
from transformer.errors import UserError

WITH_TEXT = frozenset({"g", "hi", "mrk", "pc"})
"""Inline elements with text of the sentence in them."""

FIRST = {"bpt": ("rid", "i", "id"), "bx": ("rid", "id"), "sc": ("id",)}
LAST = {"ept": ("rid", "i", "id"), "ex": ("rid", "id"), "ec": ("startRef",)}
"""Inline elements that stand for an opening and for a closing tag. Two are a pair if the first of
these attributes that they have has the same value."""


ANGULAR = re.compile("(START|CLOSE)_(.+)")
"""The values of `id` by which Angular marks the two tags of an element."""


class Event(NamedTuple):
    """A part of the file: "open" or "close" for the tags of an element, "empty" for an element that
    is one tag, "text", "cdata" (the text of a CDATA section), "edge" (of such a section), or
    "other". `prefix` is that of the element's name, with its colon."""

    raw: str
    kind: str
    prefix: str = ""
    name: str = ""
    attributes: dict[str, str] | None = None

    def attribute(self, *names: str) -> str:
        """The value of the first of these attributes that there is, or ""."""
        values = self.attributes or {}
        return next((values[name] for name in names if name in values), "")


class Element(NamedTuple):
    """An element among events: the number of its first event, that after its last, and whether it
    may be translated."""

    first: int
    last: int
    is_translatable: bool = True


def read_xliff(source: str, languages: tuple[str, str]) -> Document:
    """Units without a translation get one behind their source. Translations that are there stay, as
    does everything in elements with `translate="no"`. Raises UserError for text that is not XML,
    and for other languages than these, and for other documents."""
    found = events(source)
    document: Document = []
    done = 0
    for number, event in enumerate(found):
        if event.name in ("file", "xliff") and event.kind == "open":
            _check_languages(event, languages)
            if event.attribute("srcLang") and not event.attribute("trgLang"):
                before = re.sub(r"""\s+trgLang\s*=\s*(""|'')""", "", event.raw)
                document += [_raw(found[done:number]), before[:-1]]
                document += [
                    Slot(
                        Segment(()), "", escape, before=f' trgLang="{standard_code(languages[1])}"'
                    ),
                    ">",
                ]
                done = number + 1
    units = [*elements(found, {"trans-unit", "segment"})]
    if not units:
        raise UserError("the document has no <trans-unit> and no <segment>")
    for unit in units:
        inner = {found[one.first].name: one for one in children(found, unit)}
        content = inner.get("seg-source", inner.get("source"))
        target = inner.get("target")
        is_done = target is not None and bool(_content(found, target))
        if not content or not _content(found, content) or not unit.is_translatable or is_done:
            continue
        name = f"{found[content.first].prefix}target"
        if target:
            document.append(_raw(found[done : target.first]))
            first = found[target.first].raw.rstrip("/>").rstrip() + ">"
            old = _raw(found[target.first : target.last])
            document.append(_slot(found, content, first, f"</{name}>", old))
            done = target.last
        else:
            document.append(_raw(found[done : content.last]))
            before = f"{_indentation(found, content)}<{name}>"
            document.append(_slot(found, content, before, f"</{name}>"))
            done = content.last
    return [*document, _raw(found[done:])]


def read_tmx(source: str, languages: tuple[str, str]) -> Document:
    """Units of the source language without one of the target language get it, behind the source.
    Raises UserError for text that is not XML, or that has no text of the source language."""
    found = events(source)
    document: Document = []
    done, is_there = 0, False
    for unit in elements(found, {"tu"}):
        own, target = (_variant(found, unit, language) for language in languages)
        is_there |= own is not None
        is_done = target is not None and bool(_content(found, target[1]))
        if own is None or not _content(found, own[1]) or is_done:
            continue
        if target:
            (_, seg), content = target, own[1]
            document.append(_raw(found[done : seg.first]))
            old = _raw(found[seg.first : seg.last])
            document.append(_slot(found, content, "<seg>", "</seg>", old))
            done = seg.last
        else:
            variant, content = own
            document.append(_raw(found[done : variant.last]))
            code = standard_code(languages[1])
            before = f'{_indentation(found, variant)}<tuv xml:lang="{code}"><seg>'
            document.append(_slot(found, content, before, "</seg></tuv>"))
            done = variant.last
    if not is_there:
        raise UserError(f"the document has no <tuv> in {languages[0]}, the source language")
    return [*document, _raw(found[done:])]


def _check_languages(event: Event, languages: tuple[str, str]) -> None:
    names = (("source-language", "srcLang"), ("target-language", "trgLang"))
    for side, own, language in zip(("from", "to"), names, languages):
        code = event.attribute(*own)
        if code and not same_language(code, language):
            raise UserError(
                f"the document is translated {side} {code}, but the model translates {side} "
                f"{language}: choose another model, or correct the document"
            )


def _variant(
    found: Sequence[Event], unit: Element, language: str
) -> tuple[Element, Element] | None:
    """The <tuv> of a language and its <seg>, if there is one."""
    for variant in children(found, unit):
        code = found[variant.first].attribute("xml:lang", "lang")
        if found[variant.first].name == "tuv" and same_language(code, language):
            for content in children(found, variant):
                if found[content.first].name == "seg":
                    return variant, content
    return None


def _slot(found: Sequence[Event], content: Element, before: str, after: str, raw: str = "") -> Slot:
    inner = _symbols(found[content.first + 1 : content.last - 1])
    return Slot(Segment((*with_tags([*inner]),)), raw, escape, before, after)


def _symbols(found: Sequence[Event]) -> Iterator[Symbol]:
    """The text and the inline markup of a unit."""
    number = 0
    while number < len(found):
        event, last = found[number], number + 1
        is_kept = event.attribute("translate") == "no"
        if event.kind == "text":
            yield from characters(event.raw)
        elif event.kind == "cdata":
            yield from (Symbol(escape(one), "text", one) for one in event.raw)
        elif event.name in WITH_TEXT and event.kind in ("open", "close") and not is_kept:
            yield Symbol(event.raw, event.kind, event.name)
        elif event.kind != "edge":
            last = _end(found, number)
            yield _markup(event, _raw(found[number:last]))
        number = last


def _markup(event: Event, raw: str) -> Symbol:
    if event.name in FIRST:
        return Symbol(raw, "open", f"pair {event.attribute(*FIRST[event.name])}")
    if event.name in LAST:
        return Symbol(raw, "close", f"pair {event.attribute(*LAST[event.name])}")
    if found := ANGULAR.match(event.attribute("id")):
        return Symbol(raw, "open" if found[1] == "START" else "close", f"pair {found[2]}")
    is_break = event.attribute("ctype", "subType") in ("lb", "xlf:lb")
    return Symbol(raw, "break" if is_break else "alone")


def elements(found: Sequence[Event], names: set[str]) -> Iterator[Element]:
    """The elements of these names, but not those inside another."""
    inherited = [True]
    number = 0
    while number < len(found):
        event = found[number]
        own = {"no": False, "yes": True}.get(event.attribute("translate"), inherited[-1])
        if event.name in names and event.kind == "open":
            last = _end(found, number)
            yield Element(number, last, own)
            number = last
            continue
        if event.kind == "open":
            inherited.append(own)
        elif event.kind == "close":
            inherited.pop()
        number += 1


def children(found: Sequence[Event], parent: Element) -> Iterator[Element]:
    """The elements directly in another."""
    number = parent.first + 1
    while number < parent.last - 1:
        last = _end(found, number)
        if found[number].kind in ("open", "empty"):
            yield Element(number, last)
        number = last


def _end(found: Sequence[Event], number: int) -> int:
    """The number of the event after an element that begins here, or after any other event."""
    depth = 0
    for last in range(number, len(found)):
        depth += (found[last].kind == "open") - (found[last].kind == "close")
        if depth <= 0:
            return last + 1
    return len(found)


def _content(found: Sequence[Event], element: Element) -> str:
    """The text of an element."""
    inner = found[element.first + 1 : element.last - 1]
    return "".join(event.raw for event in inner if event.kind in ("text", "cdata")).strip()


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
    starts = [0]
    kinds = [Event("", "other")]
    text = "text"

    def add(kind: str, name: str = "", attributes: dict[str, str] | None = None) -> None:
        before, colon, local = name.rpartition(":")
        starts.append(parser.CurrentByteIndex)
        kinds.append(Event("", kind, before + colon, local, attributes))

    def edge(kind: str) -> None:
        nonlocal text
        text = kind
        add("edge")

    parser.StartElementHandler = lambda name, values: add("open", name, values)
    parser.EndElementHandler = lambda name: add("close", name)
    parser.CharacterDataHandler = lambda _: add(text)
    parser.StartCdataSectionHandler = lambda: edge("cdata")
    parser.EndCdataSectionHandler = lambda: edge("text")
    parser.CommentHandler = parser.DefaultHandler = lambda _: add("other")
    parser.ProcessingInstructionHandler = lambda *_: add("other")
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        raise UserError(f"the document is not XML: {error}") from error
    found: list[Event] = []
    for start, end, event in zip(starts, [*starts[1:], len(data)], kinds):
        raw = data[start:end].decode()
        if event.kind == "open" and raw.endswith("/>"):
            event = event._replace(kind="empty")
        if event.kind == "text" and found and found[-1].kind == "text":
            found[-1] = found[-1]._replace(raw=found[-1].raw + raw)
        elif raw:
            found.append(event._replace(raw=raw))
    return found
