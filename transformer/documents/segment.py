"""Segments: text that is translated as a whole, and the markup that stands in it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import dropwhile, groupby
from typing import Literal, NamedTuple

from transformer.data.tokenizer import has_letters

Role = Literal["text", "open", "close", "alone", "break"]


class Token(NamedTuple):
    """A character of a segment, or markup.

    raw   how the document writes it
    role  "text" for a character; "open" and "close" for the tags of an element; "alone" for other
          markup; "break" for markup that separates words, such as <br>
    text  the character; of tags the name of their element
    """

    raw: str
    role: Role
    text: str = ""


class Item(NamedTuple):
    """Markup in a text.

    raw     how the document writes it; "" for a tag that is missing
    place   number of characters of the text before it
    role    as that of `Token`; "break" replaces the space at its place
    other   number of the item that is the other tag of its element; its own number if there is none
    """

    raw: str
    place: int
    role: Role
    other: int


@dataclass(frozen=True)
class Segment:
    """Characters and markup in the order of the document."""

    tokens: tuple[Token, ...]

    @property
    def raw(self) -> str:
        """The segment as the document writes it."""
        return "".join(token.raw for token in self.tokens)

    @property
    def text(self) -> str:
        """What is translated: words with single spaces between them, without markup."""
        return self._separated[0]

    @property
    def items(self) -> tuple[Item, ...]:
        """The markup; also whitespace that is not a single space."""
        return self._separated[1]

    @cached_property
    def _separated(self) -> tuple[str, tuple[Item, ...]]:
        return separate(self.tokens)

    @property
    def is_translatable(self) -> bool:
        """Whether there are letters."""
        return has_letters(self.text)

    @cached_property
    def spellings(self) -> dict[str, list[str]]:
        """How the document writes each punctuation mark, and each other character that it does not
        always write as itself, for every time that it occurs."""
        found: dict[str, list[str]] = {}
        for token in self.tokens:
            if token.role == "text" and not token.text.isspace():
                found.setdefault(token.text, []).append(token.raw)
        return {
            text: raws for text, raws in found.items() if {*raws} != {text} or not text.isalnum()
        }


def separate(tokens: Iterable[Token]) -> tuple[str, tuple[Item, ...]]:
    """Text and items of a segment. Whitespace between two words is one space of the text."""
    text: list[str] = []
    items: list[Item] = []
    opened: list[int] = []
    merged = with_partners(merge_whitespace(tokens))
    last = max((n for n, token in enumerate(merged) if token.role == "text"), default=0)
    for number, (raw, role, content) in enumerate(merged):
        place, other = len(text), len(items)
        if role == "text":
            text.append(content)
            continue
        if role == "break":
            is_between = bool(text) and text[-1] != " " and number < last
            if is_between and not (raw.isspace() and _is_before_mark(merged[number + 1 :])):
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


def merge_whitespace(tokens: Iterable[Token]) -> Iterator[Token]:
    """The tokens, with each run of whitespace as one break."""
    for is_space, run in groupby(tokens, lambda one: one.role == "text" and one.text.isspace()):
        if is_space:
            yield Token("".join(token.raw for token in run), "break")
        else:
            yield from run


def with_partners(tokens: Iterable[Token]) -> list[Token]:
    """The tokens, where each tag has a partner, so that elements are nested.

    A missing tag is added, with raw "": at the end of the element around it, or at the start of the
    segment. A closing tag that would cross another element becomes markup without a partner.
    """
    found: list[Token] = []
    opened: list[str] = []
    for token in tokens:
        if token.role == "open":
            opened.append(token.text)
        elif token.role == "close" and token.text in opened:
            while (name := opened.pop()) != token.text:
                found.append(Token("", "close", name))
        elif token.role == "close" and opened:
            token = token._replace(role="alone")
        elif token.role == "close":
            found.insert(0, Token("", "open", token.text))
        found.append(token)
    return found + [Token("", "close", name) for name in reversed(opened)]


def _is_before_mark(following: list[Token]) -> bool:
    """Whether markup and then a punctuation mark follow, so that a space before both would stand
    before the mark."""
    rest = [*dropwhile(lambda token: token.role in ("alone", "close"), following)]
    return 0 < len(rest) < len(following) and rest[0].text in {*",.;:!?)]"}
