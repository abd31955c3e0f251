"""The names of target tags, such as >>deu<<, and the languages in them."""

import re
from functools import lru_cache

from transformer.data.languages import same_language

TAG = re.compile(r"[\s\ufeff]*(>>[\w@-]+<<)")
"""A target tag at the beginning of a text, after spaces or a byte order mark."""


def parse_tag(text: str) -> tuple[str, str]:
    """What looks like a target tag at the beginning of a text, "" without one, and the rest."""
    found = TAG.match(text)
    return (found[1], text[found.end() :]) if found else ("", text)


@lru_cache(maxsize=1024)
def named_tag(tags: tuple[str, ...], name: str) -> str:
    """The tag of this name, or the only one of the same language, as >>deu<< for >>de<<; otherwise
    "". Cached, since comparing languages is slow."""
    if name in tags:
        return name
    alike = [tag for tag in tags if same_language(code_of(tag), code_of(name))]
    return alike[0] if len(alike) == 1 else ""


def code_of(tag: str) -> str:
    """The language of a tag: deu of >>deu<<."""
    return tag[2:-2]
