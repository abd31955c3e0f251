"""Segments: text that is translated together, and the markup that stands in it."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any, Literal, NamedTuple

from transformer.data.tokenizer import has_letters

Role = Literal["text", "open", "close", "alone", "break"]

DEEPEST = 100
"""Elements in one another; deeper ones are tags without a partner."""


class Symbol(NamedTuple):
    """A character of a segment, or markup.

    raw   as the document writes it
    role  "text" for a character; "open" and "close" for the tags of an element; "alone" for other
          markup; "break" for markup that separates words, such as <br>
    text  the character; of tags the name of their element
    """

    raw: str
    role: Role
    text: str = ""


class Item(NamedTuple):
    """Markup in a text.

    raw     as the document writes it; "" for a tag that is missing
    place   number of characters of the text before it
    role    as that of `Symbol`; "break" replaces the space at its place
    other   number of the item that is the other tag of its element; its own number if there is none
    """

    raw: str
    place: int
    role: Role
    other: int


@dataclass(frozen=True)
class Segment:
    """Characters and markup in the order of the document."""

    symbols: tuple[Symbol, ...]
    lines: Literal["wrapped", "kept", "separate"] = "wrapped"
    """Line breaks. wrapped: they are like spaces; kept: they matter, but sentences continue over
    them, as in subtitles; separate: each line is translated alone."""

    @property
    def raw(self) -> str:
        """The segment as the document writes it."""
        return "".join(symbol.raw for symbol in self.symbols)

    @property
    def text(self) -> str:
        """The words, with single spaces between them, without markup."""
        return self._separated[0]

    @property
    def items(self) -> tuple[Item, ...]:
        """The markup; also whitespace that is not a single space."""
        return self._separated[1]

    @cached_property
    def _separated(self) -> tuple[str, tuple[Item, ...]]:
        return separate(self.symbols)

    @property
    def is_translatable(self) -> bool:
        """Whether there are letters."""
        return has_letters(self.text)

    @property
    def needs_alignment(self) -> bool:
        """Whether there is markup between the words, and not only around them."""
        return any(0 < item.place < len(self.text) for item in self.items)

    @cached_property
    def spellings(self) -> dict[str, list[str]]:
        """How the document writes each punctuation mark, and each other character that it does not
        always write as itself, for every time that it occurs."""
        found: dict[str, list[str]] = {}
        for symbol in self.symbols:
            if symbol.role == "text" and not symbol.text.isspace():
                found.setdefault(symbol.text, []).append(symbol.raw)
        return {
            text: raws for text, raws in found.items() if {*raws} != {text} or not text.isalnum()
        }


def characters_of(text: str) -> list[Symbol]:
    """The characters of a text that the document writes as they are."""
    return [Symbol(one, "text", one) for one in text]


def replace_matches(
    symbols: list[Symbol], pattern: Any, make: Callable[[str, re.Match[str]], Symbol]
) -> list[Symbol]:
    """The symbols; where the pattern matches their characters, the symbol that `make` returns for
    the spelling in the document and the match."""
    spelled = "".join(one.text if one.role == "text" else "\n" for one in symbols)
    found: list[Symbol] = []
    done = 0
    for match in pattern.finditer(spelled):
        start, end = match.span()
        raw = "".join(symbol.raw for symbol in symbols[start:end])
        found += [*symbols[done:start], make(raw, match)]
        done = end
    return found + symbols[done:]


def separate(symbols: Iterable[Symbol]) -> tuple[str, tuple[Item, ...]]:
    """Text and items of a segment. Whitespace between two words is one space of the text."""
    text: list[str] = []
    items: list[Item] = []
    opened: list[int] = []
    merged = with_partners(merge_whitespace(symbols))
    marks = _before_marks(merged)
    last = max((n for n, symbol in enumerate(merged) if symbol.role == "text"), default=0)
    for number, (raw, role, content) in enumerate(merged):
        place, other = len(text), len(items)
        if role == "text":
            text.append(content)
            continue
        if role == "break":
            is_between = bool(text) and text[-1] != " " and number < last
            if is_between and not (raw.isspace() and number in marks):
                text.append(" ")
                if raw == " ":
                    continue
            else:
                role = "alone"
        elif role == "open":
            opened.append(other)
        elif role == "close":
            other = opened.pop()
            items[other] = items[other]._replace(other=len(items))
        items.append(Item(raw, place, role, other))
    return "".join(text), tuple(items)


def merge_whitespace(symbols: Iterable[Symbol]) -> Iterator[Symbol]:
    """The symbols, with each run of whitespace as one break."""
    for is_space, run in groupby(symbols, lambda one: one.role == "text" and one.text.isspace()):
        if is_space:
            yield Symbol("".join(symbol.raw for symbol in run), "break")
        else:
            yield from run


def with_partners(symbols: Iterable[Symbol]) -> list[Symbol]:
    """The symbols, where each tag has a partner, so that elements are nested.

    A missing tag is added, with raw "": at the end of the element around it, or at the start of the
    segment. A closing tag that would cross another element becomes markup without a partner.
    """
    found: list[Symbol] = []
    opened: list[str] = []
    missing: list[Symbol] = []
    for symbol in symbols:
        if symbol.role == "open" and len(opened) == DEEPEST:
            symbol = symbol._replace(role="alone")
        elif symbol.role == "open":
            opened.append(symbol.text)
        elif symbol.role == "close" and symbol.text in opened:
            while (name := opened.pop()) != symbol.text:
                found.append(Symbol("", "close", name))
        elif symbol.role == "close" and (opened or len(missing) == DEEPEST):
            symbol = symbol._replace(role="alone")
        elif symbol.role == "close":
            missing.append(Symbol("", "open", symbol.text))
        found.append(symbol)
    return missing[::-1] + found + [Symbol("", "close", name) for name in reversed(opened)]


def _before_marks(symbols: list[Symbol]) -> set[int]:
    """The numbers of spaces behind which markup and then a punctuation mark follow, so that without
    the markup they would stand before the mark."""
    found: set[int] = set()
    is_before = is_behind_markup = False
    for number in reversed(range(len(symbols))):
        symbol = symbols[number]
        if symbol.role in ("alone", "close"):
            is_behind_markup = True
            continue
        if symbol.role == "break" and is_before and is_behind_markup:
            found.add(number)
        is_before = symbol.role == "text" and symbol.text in {*",.;:!?)]"}
        is_behind_markup = False
    return found
