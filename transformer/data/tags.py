"""Target tags: in a model of several target languages, a source begins with the tag of one of
them, a token of the vocabulary such as >>deu<<."""

import difflib
import warnings
from collections.abc import Sequence

from transformer.data.tag_names import code_of, named_tag, parse_tag
from transformer.data.tokenizer import Tokenizer
from transformer.errors import UserError

LISTED = 10
"""Most tags that a message lists."""


def tag_of(tags: Sequence[str], code: str) -> str:
    """The tag of a language, given as deu, de or >>deu<<. Raises UserError if no tag, or more than
    one, is of that language."""
    name = code if code.startswith(">>") else f">>{code}<<"
    if not (tag := named_tag(tuple(tags), name)):
        raise UserError(f"{name} is not a target tag of this model; {known_tags(tags, name)}")
    return tag


def target_tag(tokenizer: Tokenizer, code: str) -> str:
    """The tag of a language, "" if none is given. Raises UserError if the model has no such tag."""
    if code and not tokenizer.tags:
        raise UserError(f"this model has one target language: remove the target {code!r}")
    return tag_of(tokenizer.tags, code) if code else ""


def with_tag(tokenizer: Tokenizer, text: str, tag: str) -> str:
    """The text, beginning with this tag. Raises UserError if it begins with another one."""
    own, _ = tokenizer.split_tag(text)
    if tag and own and own != tag:
        raise UserError(f"'target' asks for {tag}, but a text begins with {own}")
    return text if own else tag + text


def known_tags(tags: Sequence[str], near: str = "") -> str:
    """The tags in words: a few are all listed; of many, their number and those spelt alike."""
    if len(tags) <= LISTED:
        return f"its tags are {' '.join(sorted(tags))}"
    by_code = {code_of(tag).lower(): tag for tag in tags}
    alike = difflib.get_close_matches(code_of(near).lower(), by_code, LISTED, cutoff=0.4)
    listed = [by_code[code] for code in alike] or sorted(tags)[:LISTED]
    return f"it has {len(tags):,} tags, such as {' '.join(listed)}"


def read_source(tokenizer: Tokenizer, text: str) -> tuple[str, str]:
    """The target tag of a source, "" without one, and its text; a tag alone is a blank text.

    Raises UserError for a tag that the vocabulary lacks, if it has others. Warns of a text without
    a tag if the vocabulary has tags, and of a tag that is not at the beginning.
    """
    tags = tokenizer.tags
    if not tags:
        return "", text
    tag, rest = tokenizer.split_tag(text)
    if not rest.strip():
        return "", ""
    if not tag:
        if unknown := parse_tag(text)[0]:
            tag_of(tags, unknown)
        warnings.warn(
            "a text has no target tag, so the model chooses the language: begin each text with a "
            f"target tag of the model ({known_tags(tags)})",
            stacklevel=2,
        )
    if ">>" in rest and (second := next((one for one in tags if one in rest), None)):
        warnings.warn(
            f"{second} inside a text does not choose the language: put the target tag at its "
            "beginning",
            stacklevel=2,
        )
    return tag, rest
