"""Tags in text that is no HTML: subtitles, messages of programs."""

import re

from transformer.documents.html import VOID
from transformer.documents.segment import Role, Token

TAG = re.compile(r"</?([A-Za-z][\w:.-]*)[^<>]*>|\{\\[^{}]*\}|<!--.*?-->")
"""A tag, a style of a subtitle such as {\\an8}, a comment."""


def with_tags(tokens: list[Token]) -> list[Token]:
    """The tokens of a text, with each tag that its characters spell as markup."""
    spelled = "".join(token.text[:1] if token.role == "text" else "\n" for token in tokens)
    found: list[Token] = []
    done = 0
    for match in TAG.finditer(spelled):
        start, end = match.span()
        raw = "".join(token.raw for token in tokens[start:end])
        found += [*tokens[done:start], Token(raw, _role(match), (match[1] or "").lower())]
        done = end
    return found + tokens[done:]


def _role(tag: re.Match[str]) -> Role:
    name = (tag[1] or "").lower()
    if not name or tag[0].endswith("/>") or name in VOID:
        return "break" if name == "br" else "alone"
    return "close" if tag[0].startswith("</") else "open"
