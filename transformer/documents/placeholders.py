"""Placeholders: parts of a text that stay as they are in its translation."""

from dataclasses import replace
from typing import Any

import regex

from transformer.documents.segment import Segment, Symbol, replace_matches

PLACEHOLDER = regex.compile(
    r"""
      (?:https?|ftp)://[^\s<>"']*[^\s<>"'.,;:!?)\]}\u2019\u201d]     # URL
    | www\.[^\s<>"']*[^\s<>"'.,;:!?)\]}\u2019\u201d]
    | (?<![\w.+-])[\w.+-]{1,64}+@[\w-]+(?:\.[\w-]+)+              # e-mail address
    | (?=\{\s*\w+\s*,\s*(?:plural|select|selectordinal)\s*,)      # a message of ICU
      (?P<icu>\{(?:[^{}]|(?&icu))*+\})
    | \{%.*?%\} | <%.*?%>                                          # {% if %}, <%= x %>
    | [$%\#]?(?P<braces>\{(?:\s*[\w.\[\]]*\s*(?:[,:!][^{}\n]*)?|(?&braces))\})  # {x}, {{x}}, ${x}
    | %%
    | %\(\w+\)[-+\#0]*\d*(?:\.\d+)?[a-zA-Z]                       # %(name)s
    | (?<!\d)%(?:\d+\$)?[-+\#0']*(?:\d+|\*)?(?:\.(?:\d+|\*))?
      (?:<\w+>|(?:hh?|ll?|I64|[Lqjzt])?[@diuoxXfFeEgGcspn])         # %d, %1$s, %-5.2f, %<PRIu64>
    | (?<=\d)%[sd@](?!\p{L}) | (?<!\d)%L?\d{1,2}                  # 5%s; of Qt: %1, %L1
    | (?:\p{RI}\p{RI}|[\d\#*]\uFE0F?\u20E3                        # flags, keycaps, emoji
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
    source, target = (
        sorted(match[0] for match in pattern.finditer(" ".join(text.split())))
        for text in (segment.text, translation)
    )
    return source != target


def as_markup(segment: Segment, pattern: Any) -> Segment:
    """The segment with its placeholders as markup, which is not translated."""
    symbols = replace_matches([*segment.symbols], pattern, lambda raw, _: Symbol(raw, "alone"))
    return replace(segment, symbols=(*symbols,))
