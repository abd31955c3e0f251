"""Placeholders: parts of a text that a translation must have as they are."""

from typing import Any

import regex

from transformer.documents.segment import Segment, Token

PLACEHOLDER = regex.compile(
    r"""
      (?:https?|ftp)://[^\s<>"']*[^\s<>"'.,;:!?)\]}\u2019\u201d]     # URL
    | www\.[^\s<>"']*[^\s<>"'.,;:!?)\]}\u2019\u201d]
    | [\w.+-]+@[\w-]+(?:\.[\w-]+)+                                  # e-mail address
    | \{\{[^{}\n]*\}\} | \$?\{[\w.,:!\ -]*\}         # {{x}}, {name}, ${name}, {0:d}
    | %%
    | %\(\w+\)[-+#0]*\d*(?:\.\d+)?[a-zA-Z]                          # %(name)s
    | %(?:\d+\$)?[-+#0]*\d*(?:\.\d+)?(?:hh?|ll?|[Lqjzt])?[@sdiuoxXfFeEgGcp](?![\p{L}\p{N}])
    | (?:\p{RI}\p{RI}|[\d\#*]\uFE0F?\u20E3                          # flags, keycaps, emoji
        |(?:\p{Emoji_Presentation}|\p{Extended_Pictographic}\uFE0F)\p{EMod}?
         (?:\u200D\p{Extended_Pictographic}\uFE0F?\p{EMod}?)*)
    """,
    regex.VERBOSE,
)
"""Formats of printf, Python, Objective-C and templates; addresses; emoji."""

NUMBER = r"[-+\u2212]?\p{N}+(?:[.,:/'\u2019\u00a0\u202f]\p{N}+)*"

NUMBERS = regex.compile(f"{PLACEHOLDER.pattern} | {NUMBER}", regex.VERBOSE)
"""Numbers too."""


def lost(segment: Segment, translation: str, pattern: Any) -> bool:
    """Whether the translation does not have each placeholder of the segment as often."""
    source, target = (sorted(pattern.findall(text)) for text in (segment.text, translation))
    return source != target


def as_markup(segment: Segment, pattern: Any) -> Segment:
    """The segment with its placeholders as markup, which is not translated."""
    characters = "".join(token.text if token.role == "text" else "\n" for token in segment.tokens)
    tokens: list[Token] = []
    done = 0
    for match in pattern.finditer(characters):
        start, end = match.span()
        raw = "".join(token.raw for token in segment.tokens[start:end])
        tokens += [*segment.tokens[done:start], Token(raw, "alone")]
        done = end
    return Segment((*tokens, *segment.tokens[done:]))
