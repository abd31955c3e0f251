"""The three splits of phrasebook/en_de, and the rule that decides what training never shows."""

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from transformer.data.datasets.phrasebook.complex_sentences import (
    concession,
    condition,
    contrast,
    feeling_reason,
    indirect_question,
    meanwhile,
    obstacle,
    occasion,
    opinion,
    quality,
    relative,
    sequence,
    weather_reason,
)
from transformer.data.datasets.phrasebook.composer import Composer
from transformer.data.datasets.phrasebook.grammar import Texts
from transformer.data.datasets.phrasebook.sentences import (
    description,
    location,
    measure,
    open_question,
    statement,
    yes_no_question,
)

SIZES = {"train": 100_000, "validation": 1_000, "test": 2_000}

# How often each construction is tried.
CONSTRUCTIONS: dict[Callable[[Composer], Texts], int] = {
    statement: 26,
    description: 4,
    location: 4,
    measure: 2,
    yes_no_question: 8,
    open_question: 10,
    opinion: 8,
    indirect_question: 4,
    feeling_reason: 5,
    obstacle: 5,
    quality: 4,
    weather_reason: 3,
    condition: 8,
    occasion: 4,
    concession: 5,
    meanwhile: 3,
    contrast: 4,
    relative: 5,
    sequence: 3,
}
QUESTIONS = {yes_no_question, open_question}

# Pairs of lemmas whose row numbers add up to a multiple of this never meet in training.
MODULUS = 11
# Neither do these constructions in one sentence.
HELD_OUT_CONSTRUCTIONS = (
    {"wenn", "modal", "kein"},
    {"dass", "perfect", "numeral"},
    {"weil", "perfect", "separable"},
    {"question", "modal", "separable"},
    {"relative", "perfect", "numeral"},
)


class Sentence(NamedTuple):
    """A sentence in both languages, and what it was built from."""

    english: str
    german: str
    lemmas: tuple
    pairs: frozenset[tuple[int, int]]
    constructions: frozenset[str]


def held_out(pairs: frozenset[tuple[int, int]], constructions: frozenset[str]) -> bool:
    """Whether a sentence built from these belongs to the test split only.

    A pair is the row numbers of a verb and its object noun, or of an adjective and its noun.
    """
    return any((first + second) % MODULUS == 0 for first, second in pairs) or any(
        combination <= constructions for combination in HELD_OUT_CONSTRUCTIONS
    )


def attempt(random: Random) -> Sentence | None:
    """A random sentence, or nothing where the choices led to none that is good."""
    composer = Composer(random)
    (construction,) = random.choices(list(CONSTRUCTIONS), CONSTRUCTIONS.values())
    try:
        texts = construction(composer)
    except IndexError:
        return None
    content = [
        row for row in composer.lemmas if type(row).__name__ in ("noun", "name", "adjective")
    ]
    if len(set(content)) < len(content) or any(not 3 <= len(t.split()) <= 20 for t in texts):
        return None
    mark = "?" if construction in QUESTIONS or "question" in composer.constructions else "."
    first, second = (text[0].upper() + text[1:] + mark for text in texts)
    lemmas = tuple(row.number for row in composer.lemmas)
    names = composer.constructions | ({"question"} if mark == "?" else set())
    names |= {word for word in ("weil", "wenn", "dass") if word in second.lower().split()}
    names |= {"relative"} if construction is relative else set()
    return Sentence(first, second, lemmas, frozenset(composer.pairs), frozenset(names))


def splits(seed: int = 2017, sizes: dict[str, int] = SIZES) -> dict[str, list[Sentence]]:
    """The three splits: distinct sentences, the same ones every time.

    Validation is like training. Every test sentence holds something that is held out.
    """
    random, seen = Random(seed), set()
    result = {name: [] for name in sizes}
    while any(len(result[name]) < size for name, size in sizes.items()):
        sentence = attempt(random)
        if sentence is None or {sentence.english, sentence.german} & seen:
            continue
        seen |= {sentence.english, sentence.german}
        if held_out(sentence.pairs, sentence.constructions):
            name = "test"
        else:
            name = "validation" if len(result["validation"]) < sizes["validation"] else "train"
        if len(result[name]) < sizes[name]:
            result[name].append(sentence)
    return result
