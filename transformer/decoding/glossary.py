"""Glossaries: how the terms of a text must be translated."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from transformer.data.tokenizer import BLANK, Tokenizer
from transformer.decoding.terms import COUNTS, LENGTHS, Term
from transformer.errors import UserError
from transformer.model.batch import UNK

UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")
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
        overlapping terms, the first and longest counts."""
        found: list[Term] = []
        for match in self._pattern.finditer(text):
            number = self._written.get(match[0], self._folded.get(match[0].casefold()))
            if number is not None and _forms(found) + len(self.tokens[number]) <= COUNTS[-1]:
                found.append(self.tokens[number])
        return found

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        forms = sorted({form for entry in self.entries for form in entry.source}, key=len)
        edges = [
            rf"{_edge(form[0])}{re.escape(form)}{_edge(form[-1], is_end=True)}"
            for form in reversed(forms)
        ]
        return re.compile("|".join(edges), re.IGNORECASE)

    @cached_property
    def _written(self) -> dict[str, int]:
        return {form: number for number, entry in enumerate(self.entries) for form in entry.source}

    @cached_property
    def _folded(self) -> dict[str, int]:
        return {
            form.casefold(): number
            for number, entry in enumerate(self.entries)
            for form in entry.source
            if not entry.same_case
        }


def _forms(terms: Sequence[Term]) -> int:
    return sum(map(len, terms))


def _edge(character: str, is_end: bool = False) -> str:
    """The edge of a word, if words of this script have one."""
    if not character.isalnum() or UNSPACED.match(character):
        return ""
    return r"(?!\w)" if is_end else r"(?<!\w)"


def parse_glossary(lines: Sequence[str], target: Tokenizer, name: str) -> Glossary:
    """The glossary in lines "source forms, tab, target forms, tab, case", where | stands between
    forms. Without target forms, a term stays as it is. Raises UserError for a line of another form,
    and for one whose term the target vocabulary cannot write."""
    entries = []
    for number, line in enumerate(lines, start=1):
        if line.strip() and not line.startswith("#"):
            try:
                entries.append(read_entry(line))
            except UserError as error:
                raise UserError(f"{name}, line {number:,}: {error}") from error
    if not entries:
        raise UserError(f"{name} has no terms: write lines of a source term, a tab, a target term")
    return make_glossary(entries, target, name)


def read_entry(line: str) -> Entry:
    """The entry of a line. Raises UserError for a line of another form."""
    source, target, case, *others = [*line.split("\t"), "", ""]
    forms = [
        tuple(form.strip() for form in column.split("|") if form.strip())
        for column in (source, target)
    ]
    if any(map(str.strip, others)) or case.strip() not in ("", "case"):
        raise UserError('the columns are source, target and, if the case matters, "case"')
    if not forms[0]:
        raise UserError("the source term is missing")
    return Entry(forms[0], forms[1] or forms[0], case.strip() == "case")


def make_glossary(entries: Sequence[Entry], target: Tokenizer, name: str) -> Glossary:
    """The glossary of some entries, for a target vocabulary. A form may also begin with a capital.
    Raises UserError for a term that the vocabulary cannot write."""
    tokens: list[Term] = []
    for entry in entries:
        forms = [form for one in entry.target for form in (one, one[:1].upper() + one[1:])]
        rows = [tuple(row) for row in target.encode([*dict.fromkeys(forms)])]
        known = [row for row in rows if row and UNK not in row and len(row) <= LENGTHS[-1]]
        if not known or len(known) > COUNTS[-1]:
            problem = "has too many forms" if known else "cannot be written with the vocabulary"
            raise UserError(f"{name}: the target term {'|'.join(entry.target)!r} {problem}")
        tokens.append(tuple(dict.fromkeys(known)))
    return Glossary(tuple(entries), tuple(tokens), continuing(target))


def continuing(tokenizer: Tokenizer) -> np.ndarray:
    """Of each token, whether it continues the word before it: [V] booleans."""
    pieces = tokenizer.pieces(range(tokenizer.vocab_size))
    return np.array(
        [
            not piece.startswith(BLANK) and piece[:1].isalnum() and not UNSPACED.match(piece)
            for piece in pieces
        ]
    )
