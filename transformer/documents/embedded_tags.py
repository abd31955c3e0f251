"""Tags in text that is no HTML: subtitles, messages of programs."""

import re

from transformer.documents.html import VOID
from transformer.documents.segment import Role, Symbol, replace_matches

TAG = re.compile(
    r"</?([A-Za-z][\w:.-]*+)[^<>]*+>|<[\d:.]++>|\{\\[^{}]*+\}|<!--(?:(?!<!--|-->).)*+-->"
)
"""A tag; a time in a WebVTT cue; a style of a subtitle, such as {\\an8}; a comment."""


def with_tags(symbols: list[Symbol]) -> list[Symbol]:
    """The symbols of a text, with each tag that its characters spell as markup."""
    return replace_matches(
        symbols, TAG, lambda raw, tag: Symbol(raw, _role(tag), (tag[1] or "").lower())
    )


def _role(tag: re.Match[str]) -> Role:
    name = (tag[1] or "").lower()
    if not name or tag[0].endswith("/>") or name in VOID:
        return "break" if name == "br" else "alone"
    return "close" if tag[0].startswith("</") else "open"
