"""Text as people type it: capitals, typos, missing accents, half sentences, two at once."""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from random import Random

from transformer.config import DataConfig
from transformer.config.settings import Perturbation
from transformer.data.tag_names import parse_tag

Texts = tuple[str, ...]
"""A source and its translations, if it has any."""

TYPO_RATE = 0.1
"""Share of the words of at least four letters that get a typo. A text with such words has one at
least."""

CASES: tuple[Perturbation, ...] = ("upper_case", "title_case")
"""Changes that bring pieces which other text does not have."""

NOTHING = re.compile("((?!))")

WORD = re.compile(r"[^\W\d_]{4,}")
FIRST_LETTER = re.compile(r"(?<!\S)([^\w\s]*)(\w)")
CLAUSE_END = re.compile(r"\s*([,;:](?=\s)|[\uff0c\uff1b\uff1a\u3001\u060c\u061b])")


def kept_symbols(symbols: Sequence[str]) -> re.Pattern:
    """A pattern for tokens of their own, such as target tags, that changes leave as they are."""
    longest_first = sorted(symbols, key=len, reverse=True)
    return re.compile(f"({'|'.join(map(re.escape, longest_first))})") if symbols else NOTHING


def with_cases(data: DataConfig, pairs: Iterable[Texts]) -> Iterator[Texts]:
    """The pairs of a stream, with the shares of `data` in another case, so that a vocabulary which
    is trained on them has pieces of text in capitals."""
    kept, random = kept_symbols(data.symbols), Random(0)
    chances = {kind: data.changed.get(kind, 0.0) for kind in CASES}
    kinds = [*chances, None]
    weights = [*chances.values(), 1 - sum(chances.values())]
    for pair in pairs:
        [kind] = random.choices(kinds, weights)
        yield perturbed(kind, pair, (), random, kept) if kind else pair


def perturbed(
    kind: Perturbation, texts: Texts, following: Texts, random: Random, kept: re.Pattern = NOTHING
) -> Texts:
    """A source and its translations, changed as `kind` says; the same if they cannot be.

    upper_case, title_case  all texts
    typos, without_accents  the source
    merged                  all texts, each joined with the one of `following`, the next pair
    cut                     all texts, where a clause ends, if all have the same marks

    What `kept`, a pattern with one group, matches stays as it is.
    """
    if kind == "merged":
        return _merged(texts, following)
    if kind == "cut":
        return _cut(texts, random)
    change = {
        "upper_case": str.upper,
        "title_case": lambda text: FIRST_LETTER.sub(_capitalised, text),
        "typos": lambda text: _with_typos(text, random),
        "without_accents": without_accents,
    }[kind]
    last = 1 if kind in ("typos", "without_accents") else len(texts)
    return (*(outside(kept, change, text) for text in texts[:last]), *texts[last:])


def outside(kept: re.Pattern, change: Callable[[str], str], text: str) -> str:
    """The text, changed outside what the group of a pattern matches."""
    parts = kept.split(text)  # every second one is what the group matches
    return "".join(part if number % 2 else change(part) for number, part in enumerate(parts))


def _capitalised(match: re.Match) -> str:
    return match[1] + match[2].title()


def _with_typos(text: str, random: Random) -> str:
    """With typos in some words, in at least one."""
    words = list(WORD.finditer(text))
    chosen = {number for number in range(len(words)) if random.random() < TYPO_RATE}
    if words and not chosen:
        chosen = {random.randrange(len(words))}
    for number in sorted(chosen, reverse=True):
        start, end = words[number].span()
        text = text[:start] + _misspelt(text[start:end], random) + text[end:]
    return text


def _misspelt(word: str, random: Random) -> str:
    """A word of which a letter is left out, doubled, swapped with the next, or another of its
    letters. The first letter stays, as it does in most typos."""
    place = random.randrange(1, len(word) - 1)
    letter, after = word[place : place + 2]
    ways = (after, letter + letter + after, after + letter, random.choice(word) + after)
    typos = [way for way in ways if way != letter + after]
    return word[:place] + random.choice(typos) + word[place + 2 :]


def without_accents(text: str) -> str:
    """Without the marks of Latin and Greek letters: Möbel is Mobel. Other scripts have marks that
    are letters of their own, such as those of й and of Hindi's vowels."""
    return "".join(map(_without_accent, unicodedata.normalize("NFC", text)))


def _without_accent(character: str) -> str:
    base, *marks = unicodedata.normalize("NFD", character)
    is_accented = marks and unicodedata.name(base, "").startswith(("LATIN", "GREEK"))
    return base if is_accented else character


def _merged(texts: Texts, following: Texts) -> Texts:
    """The texts, each with the next one; with the target tag that both begin with once. They stay
    alone if one of two texts is empty, and before one with another tag."""
    joined = []
    for first, second in zip(texts, following):
        (tag, own), (other, rest) = map(parse_tag, (first, second))
        if tag != other or not own.strip() or not rest.strip():
            return texts
        joined.append(_joined(first, rest.lstrip()))
    return tuple(joined) or texts


def _joined(first: str, second: str) -> str:
    """Two sentences as one text, with a space between them unless their script has none."""
    wide = first and unicodedata.east_asian_width(first[-1]) in "WF"
    return first + " " * (not wide) + second


def _cut(texts: Texts, random: Random) -> Texts:
    """The beginnings of texts that have the same marks after their clauses, up to one of them."""
    ends = [list(CLAUSE_END.finditer(text)) for text in texts]
    marks = {tuple(unicodedata.normalize("NFKC", end[1]) for end in of_one) for of_one in ends}
    if len(marks) > 1 or not ends[0]:
        return texts
    place = random.randrange(len(ends[0]))
    beginnings = tuple(text[: found[place].start()] for text, found in zip(texts, ends))
    return beginnings if all(beginnings) else texts
