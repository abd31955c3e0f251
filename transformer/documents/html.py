"""HTML: text outside scripts, styles and code; inline elements are markup in a sentence."""

import html
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from html.parser import HTMLParser
from typing import NamedTuple

from transformer.documents.document import Document, Slot
from transformer.documents.segment import Segment, Symbol, characters_of

INLINE = frozenset(
    """
    a abbr acronym b bdi bdo big br cite code data del dfn em font i img ins kbd label mark nobr
    q rb rp rt rtc ruby s samp script small span strike strong style sub sup svg math time tt u
    var wbr object
    """.split()  # noqa: SIM905
)
"""Elements within a sentence (phrasing content); all others end it."""

OPAQUE = frozenset(
    """
    code kbd math noscript pre samp script style svg template textarea var
    """.split()  # noqa: SIM905
)
"""Elements whose content is no prose; so is that of `translate="no"` and `class="notranslate"`."""

VOID = frozenset(
    """
    area base br col embed hr img input link meta param source track wbr
    """.split()  # noqa: SIM905
)
"""Elements without an end tag (https://html.spec.whatwg.org/#void-elements)."""

REFERENCE = re.compile(r"&(?:#[0-9]{1,9};?|#[xX][0-9a-fA-F]{1,9};?|[A-Za-z][A-Za-z0-9]*;?)")

SECTION = re.compile(r"<!\[(?:cdata|if|else|endif)(?![\w.-])", re.IGNORECASE | re.ASCII)
"""CDATA, and conditions of Microsoft Office."""


class Event(NamedTuple):
    """A part of the source: text, an opening or closing tag, or something else, such as a comment.
    `name` is that of the element."""

    raw: str
    kind: str
    name: str = ""
    is_opaque: bool = False


def read_html(source: str) -> Document:
    """A page or a fragment."""
    document: Document = []
    symbols: list[Symbol] = []
    for event in _with_whole_elements(events(source)):
        if event.kind == "text":
            symbols += characters(event.raw)
        elif event.name in INLINE or event.kind == "other":
            role = "break" if event.name == "br" else event.kind
            symbols.append(Symbol(event.raw, "alone" if role == "other" else role, event.name))
        else:
            _end_segment(document, symbols)
            document.append(event.raw)
    _end_segment(document, symbols)
    return document


def _end_segment(document: Document, symbols: list[Symbol]) -> None:
    """Adds a segment to the document; as text if there is nothing to translate."""
    segment = Segment((*symbols,))
    symbols.clear()
    if segment.is_translatable:
        document.append(Slot(segment, segment.raw, escape))
    else:
        document.append(segment.raw)


def escape(character: str) -> str:
    """A character of text, as HTML writes it."""
    return html.escape(character, quote=False)


def characters(raw: str) -> Iterator[Symbol]:
    """The characters of text with character references. One that is unknown stays as it is; one
    that is not of a single character is markup."""
    done = 0
    for match in REFERENCE.finditer(raw):
        yield from characters_of(raw[done : match.start()])
        text = html.unescape(match[0])
        if text == match[0]:
            yield from characters_of(text)
        elif len(text) == 1:
            yield Symbol(match[0], "text", text)
        else:
            yield Symbol(match[0], "alone")
        done = match.end()
    yield from characters_of(raw[done:])


def _with_whole_elements(found: Sequence[Event]) -> Iterator[Event]:
    """The events, with each opaque element that ends as one event, of kind "other" or "block"."""
    number, ends = 0, _element_ends(found)
    while number < len(found):
        event = found[number]
        last = ends.get(number) if event.is_opaque else None
        if last:
            kind = "other" if event.name in INLINE else "block"
            raw = "".join(inner.raw for inner in found[number:last])
            yield Event(raw, kind, event.name)
        else:
            yield event
        number = last or number + 1


def _element_ends(found: Sequence[Event]) -> dict[int, int]:
    """The number of the event after each element that ends, by the number of its opening tag."""
    ends: dict[int, int] = {}
    opened: defaultdict[str, list[int]] = defaultdict(list)
    for number, event in enumerate(found):
        if event.kind == "open":
            opened[event.name].append(number)
        elif event.kind == "close" and opened[event.name]:
            ends[opened[event.name].pop()] = number + 1
    return ends


def events(source: str) -> list[Event]:
    """The parts of the source; together they are the source."""
    parser = Parser()
    end = source.rfind(">") + 1  # the rest has no tags, and takes HTMLParser the square of its time
    parser.feed(source[:end])
    parser.close()
    parser.found.append((end, "text"))
    starts = [start for start, *_ in parser.found] + [len(source)]
    return [
        Event(source[start:end], *rest)
        for (start, *rest), end in zip(parser.found, starts[1:])
        if start < end
    ]


class Parser(HTMLParser):
    """Python's parser, which says where each part of the source begins."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=False)
        self.found: list[tuple] = [(0, "text")]  # HTMLParser does not report </>
        self.lines = [0]

    def feed(self, data: str) -> None:
        """Parses the whole source."""
        self.lines += [match.end() for match in re.finditer("\n", data)]
        super().feed(data)

    def add(self, kind: str, name: str = "", is_opaque: bool = False) -> None:
        """Adds a part that begins here."""
        line, column = self.getpos()
        self.found.append((self.lines[line - 1] + column, kind, name, is_opaque))

    def parse_html_declaration(self, i: int) -> int:
        """Other sections are comments, as in browsers; for them, Python 3.11 raises an error."""
        if self.rawdata.startswith("<![", i) and not SECTION.match(self.rawdata, i):
            return self.parse_bogus_comment(i)
        return super().parse_html_declaration(i)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """An opening tag."""
        values = dict(attrs)
        is_opaque = tag in OPAQUE or (values.get("translate") or "").lower() == "no"
        is_opaque |= "notranslate" in (values.get("class") or "").split()
        is_void = tag in VOID
        self.add("alone" if is_void else "open", tag, is_opaque and not is_void)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """A whole element, such as <br/>; in XHTML also <script src="a.js"/>."""
        self.add("alone", tag)

    def handle_endtag(self, tag: str) -> None:
        """A closing tag."""
        self.add("close", tag)

    def handle_data(self, data: str) -> None:
        """Text, also that of a script."""
        self.add("text")

    def handle_entityref(self, name: str) -> None:
        """A reference such as &amp;."""
        self.add("text")

    def handle_charref(self, name: str) -> None:
        """A reference such as &#39;."""
        self.add("text")

    def handle_comment(self, data: str) -> None:
        """A comment."""
        self.add("other")

    def handle_decl(self, decl: str) -> None:
        """A document type."""
        self.add("block")

    def handle_pi(self, data: str) -> None:
        """A processing instruction, such as PHP: it may depend on the order."""
        self.add("block")

    def unknown_decl(self, data: str) -> None:
        """A declaration such as <![endif]>."""
        self.add("block")
