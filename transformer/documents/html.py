"""HTML: text outside of scripts, styles and code; inline elements are markup of a sentence."""

import html
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import NamedTuple

from transformer.documents.document import Document, Slot
from transformer.documents.segment import Segment, Token

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

REFERENCE = re.compile(r"&(?:#[0-9]+;?|#[xX][0-9a-fA-F]+;?|[A-Za-z][A-Za-z0-9]*;?)")


class Event(NamedTuple):
    """A part of the source: text, an opening or closing tag, or something else, such as a comment.
    `name` is that of the element."""

    raw: str
    kind: str
    name: str = ""
    is_opaque: bool = False


def read_html(source: str) -> Document:
    """A page or a fragment. What the parser does not understand stays as it is."""
    document: Document = []
    tokens: list[Token] = []
    for event in _with_whole_elements(iter(events(source))):
        if event.kind == "text":
            tokens += characters(event.raw)
        elif event.name in INLINE or event.kind == "other":
            role = "break" if event.name == "br" else event.kind
            tokens.append(Token(event.raw, "alone" if role == "other" else role, event.name))
        else:
            _end(document, tokens)
            document.append(event.raw)
    _end(document, tokens)
    return document


def _end(document: Document, tokens: list[Token]) -> None:
    """Adds a segment to the document; as text if there is nothing to translate."""
    segment = Segment((*tokens,))
    tokens.clear()
    if segment.is_translatable:
        document.append(Slot(segment, segment.raw, escape))
    else:
        document.append(segment.raw)


def escape(character: str) -> str:
    """A character of text."""
    return html.escape(character, quote=False)


def characters(raw: str) -> Iterator[Token]:
    """The characters of text with character references."""
    done = 0
    for match in REFERENCE.finditer(raw):
        yield from (Token(one, "text", one) for one in raw[done : match.start()])
        text = html.unescape(match[0])
        if text == match[0]:
            yield from (Token(one, "text", one) for one in text)
        else:
            yield Token(match[0], "text", text[0])
            yield from (Token("", "text", one) for one in text[1:])
        done = match.end()
    yield from (Token(one, "text", one) for one in raw[done:])


def _with_whole_elements(found: Iterator[Event]) -> Iterator[Event]:
    """The events, with each opaque element as one event of the kind "other"."""
    for event in found:
        if event.is_opaque and event.kind == "open":
            raw, depth = event.raw, 1
            while depth and (inner := next(found, None)):
                raw += inner.raw
                if inner.name == event.name:
                    depth += (inner.kind == "open") - (inner.kind == "close")
            kind = "other" if event.name in INLINE else "block"
            yield Event(raw, kind, event.name)
        else:
            yield event


def events(source: str) -> list[Event]:
    """The parts of the source; together they are the source."""
    parser = Parser()
    parser.feed(source)
    parser.close()
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
        self.found: list[tuple] = []
        self.lines = [0]

    def feed(self, data: str) -> None:
        """Parses the whole source."""
        self.lines += [match.end() for match in re.finditer("\n", data)]
        super().feed(data)

    def add(self, kind: str, name: str = "", is_opaque: bool = False) -> None:
        """Adds a part that begins here."""
        line, column = self.getpos()
        self.found.append((self.lines[line - 1] + column, kind, name, is_opaque))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """An opening tag."""
        values = dict(attrs)
        is_opaque = tag in OPAQUE or values.get("translate") == "no"
        is_opaque |= "notranslate" in (values.get("class") or "").split()
        is_void = tag in VOID
        self.add("alone" if is_void else "open", tag, is_opaque and not is_void)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """A tag such as <br/>; of other elements than void ones, the slash means nothing."""
        self.handle_starttag(tag, attrs)

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
        """A processing instruction, such as PHP."""
        self.add("other")

    def unknown_decl(self, data: str) -> None:
        """A declaration such as <![CDATA[."""
        self.add("other")
