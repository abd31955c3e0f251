"""Glossaries: how the terms of a text must be translated."""

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import starmap
from typing import NamedTuple
from warnings import warn

import numpy as np
import regex

from transformer.data.tokenizer import BLANK, Tokenizer
from transformer.decoding.terms import COUNTS, LENGTHS, Term
from transformer.errors import UserError
from transformer.model.batch import UNK

UNSPACED = regex.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")
"""Thai, Lao, Burmese, Khmer, Japanese and Chinese characters: words have no spaces between them."""


class Entry(NamedTuple):
    """A term: its forms in the source and in the target language, and whether the source must be
    written in the same case."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    same_case: bool = False


@dataclass(frozen=True)
class Glossary:
    """Entries, the forms of each as tokens of the target vocabulary, and the tokens of that
    vocabulary that continue a word."""

    entries: tuple[Entry, ...]
    tokens: tuple[Term, ...]
    continues: np.ndarray

    def terms(self, text: str) -> list[Term]:
        """The terms that a translation of the text must have, each as often as the text has it. Of
        overlapping terms, the first and longest counts. Terms above the limit of the search are
        dropped, with a warning."""
        found: list[Term] = []
        for match in self._pattern.finditer(unicodedata.normalize("NFC", text)):
            form = _normal(match[0])
            keys = _key(form, same_case=True), _key(form, same_case=False)
            number = next((self._numbers[key] for key in keys if key in self._numbers), None)
            if number is not None:
                found.append(self.tokens[number])
        if sum(map(len, found)) > COUNTS[-1]:
            warn(f"a sentence has too many terms of the glossary: {text[:60]!r} ...", stacklevel=2)
        while sum(map(len, found)) > COUNTS[-1]:
            found.pop()
        return found

    @cached_property
    def _pattern(self):
        forms = {(form, entry.same_case) for entry in self.entries for form in entry.source}
        longest_first = sorted(forms, key=lambda form: len(form[0]), reverse=True)
        return regex.compile("|".join(starmap(_pattern_of, longest_first)))

    @cached_property
    def _numbers(self) -> dict[tuple[str, bool], int]:
        """The entry of each form, as `_key` writes it."""
        return {
            _key(form, entry.same_case): number
            for number, entry in enumerate(self.entries)
            for form in entry.source
        }


def _normal(form: str) -> str:
    """A form in one way of writing it: composed characters, and single spaces."""
    return " ".join(unicodedata.normalize("NFC", form).split())


def _key(form: str, same_case: bool) -> tuple[str, bool]:
    return (form if same_case else form.casefold()), same_case


def _pattern_of(form: str, same_case: bool) -> str:
    """Matches a form as a word of its own, in the same case or in any."""
    case = "" if same_case else "i"
    words = r"\s+".join(map(regex.escape, form.split()))
    return rf"{_edge(form[0])}(?{case}:{words}){_edge(form[-1], is_end=True)}"


def _edge(character: str, is_end: bool = False) -> str:
    """The edge of a word, if words of this script have one."""
    if not is_in_word(character) or UNSPACED.match(character):
        return ""
    return r"(?![\w\p{M}])" if is_end else r"(?<![\w\p{M}])"


def is_in_word(character: str) -> bool:
    """Whether it is a letter, a digit or a mark on one, such as the vowels of Hindi."""
    return character.isalnum() or unicodedata.category(character).startswith("M")


def parse_glossary(lines: Sequence[str], target: Tokenizer, name: str) -> Glossary:
    """The glossary in lines "source forms, tab, target forms, tab, case", where | stands between
    forms. Without target forms, a term stays as it is. A line that begins with # and has no tab is
    a comment. Raises UserError for a line of another form, for one with a source form of an earlier
    line, and for one whose term the target vocabulary cannot write."""
    entries: list[Entry] = []
    seen: dict[tuple[str, bool], int] = {}
    for number, line in enumerate(lines, start=1):
        if line.strip() and ("\t" in line or not line.startswith("#")):
            try:
                entries.append(read_entry(line))
            except UserError as error:
                raise UserError(f"{name}, line {number:,}: {error}") from error
            for form in entries[-1].source:
                before = seen.setdefault(_key(form, entries[-1].same_case), number)
                if before != number:
                    raise UserError(
                        f"{name}, line {number:,}: {form!r} is in line {before:,} too: write its "
                        "target forms in one line, with | between them"
                    )
    if not entries:
        raise UserError(f"{name} has no terms: write lines of a source term, a tab, a target term")
    return make_glossary(entries, target, name)


def read_entry(line: str) -> Entry:
    """The entry of a line. Raises UserError for a line of another form."""
    source, target, case, *others = [*line.split("\t"), "", ""]
    forms = [
        tuple(_normal(form) for form in column.split("|") if form.strip())
        for column in (source, target)
    ]
    if any(map(str.strip, others)) or case.strip() not in ("", "case"):
        raise UserError('the columns are source, target and, if the case matters, "case"')
    if not forms[0]:
        raise UserError("the source term is missing")
    return Entry(forms[0], forms[1] or forms[0], case.strip() == "case")


def make_glossary(entries: Sequence[Entry], target: Tokenizer, name: str) -> Glossary:
    """The glossary of some entries, for a target vocabulary. A form may also begin with a capital,
    and one of a script without spaces within a text. Raises UserError for a term that the
    vocabulary cannot write."""
    tokens: list[Term] = []
    pieces = target.pieces(range(target.vocab_size))
    ids = {piece: token for token, piece in enumerate(pieces)}
    for entry in entries:
        forms = [form for one in entry.target for form in (one, one[:1].upper() + one[1:])]
        forms = [*dict.fromkeys(forms)]
        rows = [tuple(row) for row in target.encode(forms)]
        rows += [
            _within_text(target, row, ids) for form, row in zip(forms, rows) if UNSPACED.match(form)
        ]
        written = [row for row in dict.fromkeys(rows) if row and UNK not in row]
        known = [row for row in written if len(row) <= LENGTHS[-1]]
        if not known or len(known) > COUNTS[-1]:
            if not written:
                problem = "cannot be written with the vocabulary"
            elif not known:
                problem = f"is too long: it has more than {LENGTHS[-1]} tokens"
            else:
                problem = "has too many forms"
            raise UserError(f"{name}: the target term {'|'.join(entry.target)!r} {problem}")
        tokens.append(tuple(known))
    return Glossary(tuple(entries), tuple(tokens), continuing(pieces))


def _within_text(
    tokenizer: Tokenizer, row: tuple[int, ...], ids: Mapping[str, int]
) -> tuple[int, ...]:
    """The tokens of a form without the blank before it; none if the vocabulary lacks them."""
    first, *_ = tokenizer.pieces(row[:1]) or [""]
    if not first.startswith(BLANK):
        return ()
    if first == BLANK:
        return row[1:]
    bare = ids.get(first.removeprefix(BLANK))
    return () if bare is None else (bare, *row[1:])


def continuing(pieces: Sequence[str]) -> np.ndarray:
    """Of each token of a vocabulary, whether it continues the word before it: [V] booleans."""
    return np.array(
        [
            piece[:1] not in ("", BLANK) and is_in_word(piece[0]) and not UNSPACED.match(piece)
            for piece in pieces
        ]
    )
