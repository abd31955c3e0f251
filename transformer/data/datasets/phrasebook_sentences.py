"""The sentences of phrasebook/en_de: constructions, the hold-out rule and the three splits."""

import dataclasses
from collections.abc import Callable
from random import Random
from typing import NamedTuple

from transformer.data.datasets.phrasebook_composer import Composer
from transformer.data.datasets.phrasebook_grammar import (
    DEFINITE,
    GENDERS,
    LEXICON,
    Clause,
    Part,
    Phrase,
    english,
    german,
    rows,
)

IT = Phrase("it", "it", "es", "es", "ihm")
WHO = Phrase("who", "who", "wer", "wen", "wem")
SIZES = {"train": 100_000, "validation": 1_000, "test": 2_000}

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

Texts = tuple[str, str]


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


def main(composer: Composer, clause: Clause) -> Texts:
    """A statement, sometimes with its time in front: then the German subject follows the verb."""
    time = next((part for part in clause.parts if part.slot == "time"), None)
    if time is None or not composer.chance(0.35):
        return english(clause), german(clause)
    composer.constructions.add("fronted")
    rest = clause.without("time")
    return f"{time.english} {english(rest)}", f"{time.german} {german(rest, 'inverted')}"


def under(openers: str, clause: Clause) -> Texts:
    """A subordinate clause behind its two openers ("because weil"): the German verb comes last."""
    first, second = openers.split()
    return f"{first} {english(clause)}", f"{second} {german(clause, 'last')}"


def joined(first: Texts, second: Texts, comma: str = "") -> Texts:
    """Two clauses in a row; German always has the comma, English where it is asked for."""
    return f"{first[0]}{comma} {second[0]}", f"{first[1]}, {second[1]}"


def being(
    composer: Composer, subject: Phrase, adjective, tense: str = "present", negation: str = ""
) -> Clause:
    """The subject is, or is not, as the adjective says."""
    texts = [adjective.english, adjective.german]
    if not negation and composer.chance(0.3):
        intensifier = composer.pick(LEXICON["intensifier"])
        texts = [f"{intensifier.english} {texts[0]}", f"{intensifier.german} {texts[1]}"]
    return Clause(subject, None, tense, (Part("predicate", *texts),), None, negation)


def feeling(composer: Composer, subject: Phrase, value: str, negation: str = "") -> Clause:
    """How a person is: what they feel (value feeling), or why they cannot act (value reason)."""
    if subject.noun:
        adjective = composer.adjective(subject.noun, value)
    else:
        adjective = composer.pick([row for row in LEXICON["adjective"] if row.value == value])
    return being(composer, subject, adjective, "present", negation)


def having_time(composer: Composer, subject: Phrase, negation: str) -> Clause:
    """The subject has time, or no time."""
    verb = composer.pick(rows("verb", "governs", "indefinite"))
    time = composer.pick(rows("noun", "english", "time"))
    composer.pairs.add((verb.number, time.number))
    texts = ("time", "keine Zeit" if negation else "Zeit")
    return Clause(subject, verb, "present", (Part("object", *texts),), None, negation)


def weather(composer: Composer, tense: str) -> Clause:
    """What the sky does, or how the weather is."""
    if composer.chance(0.5):
        return Clause(IT, composer.pick(rows("verb", "kind", "weather")), tense)
    phrase = composer.something("weather", "definite")
    return being(composer, phrase, composer.adjective(phrase.noun))


def described(
    composer: Composer, phrase: Phrase, tense: str = "present", value: str = ""
) -> Clause:
    """A noun phrase, or the pronoun for it, and an adjective that suits it."""
    adjective = composer.adjective(phrase.noun, value)
    negation = "" if value or composer.chance(0.7) else "nicht"
    return being(
        composer, composer.pronoun_for(phrase) if value else phrase, adjective, tense, negation
    )


def statement(composer: Composer) -> Texts:
    """Anna bought a red coat yesterday."""
    return main(composer, composer.action())


def description(composer: Composer) -> Texts:
    """The soup is very hot."""
    phrase = composer.something(
        "person animal food hot clothing furniture ride device story", "definite"
    )
    tense = "past" if composer.chance(0.3) else "present"
    clause = described(composer, phrase, tense)
    return english(clause), german(clause)


def location(composer: Composer) -> Texts:
    """The key is under the bed."""
    thing, where = composer.something("flat clothing pet", "definite"), composer.surface("dative")
    tense = "past" if composer.chance(0.3) else "present"
    clause = Clause(thing, None, tense, (where,))
    if composer.chance(0.3):
        composer.constructions.add("question")
        return english(clause, inverted=True), german(clause, "inverted")
    return english(clause), german(clause)


def measure(composer: Composer) -> Texts:
    """The boy is nine years old. The lamp costs twenty euros."""
    number = composer.pick(LEXICON["numeral"])
    if composer.chance(0.5):
        subject = composer.something("young", "definite")
        age = (f"{number.english} years old", f"{number.german} Jahre alt")
        clause = Clause(subject, None, "present", (Part("predicate", *age),))
    else:
        subject = composer.something("clothing dish thing food", "definite")
        price = (f"{number.english} euros", f"{number.german} Euro")
        verb = composer.pick(rows("verb", "governs", "price"))
        clause = Clause(subject, verb, "present", (Part("object", *price),))
    return english(clause), german(clause)


def yes_no_question(composer: Composer) -> Texts:
    """Did you lay the letter on the table?"""
    clause = composer.action(negated=False)
    return english(clause, inverted=True), german(clause, "inverted")


def open_question(composer: Composer) -> Texts:
    """Who helped you? Why is he crying? What did Anna buy? Which book did Anna buy?"""
    draw = composer.random.random()
    if draw < 0.25:
        clause = composer.action(WHO, negated=False)
        return english(clause), german(clause)
    if draw < 0.5:
        clause, openers = composer.action(negated=False, timed=False), ("why", "warum")
        if clause.tense == "past" and composer.chance(0.5):
            openers = ("when", "wann")
    else:
        openers, clause = composer.asked()
    return (
        f"{openers[0]} {english(clause, inverted=True)}",
        f"{openers[1]} {german(clause, 'inverted')}",
    )


def opinion(composer: Composer) -> Texts:
    """Peter hopes that the train will arrive soon."""
    verb = composer.pick(rows("verb", "kind", "opinion"))
    tense = "past" if verb.english.startswith("say") and composer.chance(0.5) else "present"
    matrix = Clause(composer.person(), verb, tense)
    return joined((english(matrix), german(matrix)), under("that dass", composer.action()))


def indirect_question(composer: Composer) -> Texts:
    """I do not know whether Maria has a dog."""
    verb = composer.pick(rows("verb", "kind", "opinion")[:1])
    matrix = Clause(composer.person(), verb, "present", negation="nicht")
    openers = composer.random.choice(("whether ob", "why warum"))
    matrix_texts = (english(matrix), german(matrix))
    return joined(matrix_texts, under(openers, composer.action(negated=False)))


def feeling_reason(composer: Composer) -> Texts:
    """My aunt is happy because we visited her."""
    clause = feeling(composer, composer.person(), "feeling")
    reason = composer.action(tense="past")
    return joined((english(clause), german(clause)), under("because weil", reason))


def obstacle(composer: Composer) -> Texts:
    """The pupil cannot help us because he is tired."""
    subject = composer.person()
    clause = composer.action(subject, "modal", negated=True)
    reason = excuse(composer, composer.pronoun_for(subject))
    return joined(main(composer, clause), under("because weil", reason))


def excuse(composer: Composer, subject: Phrase) -> Clause:
    """He is tired, he has no time."""
    if composer.chance(0.4):
        return having_time(composer, subject, "kein")
    return feeling(composer, subject, "reason")


def quality(composer: Composer) -> Texts:
    """The woman bought the lamp because it was cheap."""
    thing, value, clause = composer.valued()
    reason = described(composer, thing, clause.tense, value)
    return joined((english(clause), german(clause)), under("because weil", reason))


def sky_reason(composer: Composer) -> Texts:
    """We are staying in the hotel because it is raining."""
    clause = composer.action(tense=composer.random.choice(("progressive", "modal")))
    return joined(main(composer, clause), under("because weil", weather(composer, "progressive")))


def condition(composer: Composer) -> Texts:
    """If the teacher has time, he will help you."""
    subject = composer.person()
    draw = composer.random.random()
    if draw < 0.3:
        first = weather(composer, "present")
        second = composer.action(subject, "modal")
    elif draw < 0.7:
        first = having_time(composer, subject, "")
        second = composer.action(composer.pronoun_for(subject), "modal", negated=False)
    else:
        first = excuse(composer, subject)
        second = composer.action(composer.pronoun_for(subject), "modal", negated=True)
    if composer.chance(0.5):
        back = (english(second), german(second, "inverted"))
        return joined(under("if wenn", first), back, comma=",")
    return joined(main(composer, second), under("if wenn", first))


def occasion(composer: Composer) -> Texts:
    """The neighbour is angry when we dance in the kitchen."""
    clause = feeling(composer, composer.person(), "feeling")
    occasion = composer.action(tense="when", timed=False)
    return joined((english(clause), german(clause)), under("when wenn", occasion))


def concession(composer: Composer) -> Texts:
    """Anna is reading the report although she is tired."""
    if composer.chance(0.5):
        clause = feeling(composer, composer.person(), "feeling", "nicht")
        contrary = composer.action(tense="past")
        return joined((english(clause), german(clause)), under("although obwohl", contrary))
    subject = composer.person()
    clause = composer.action(subject, "progressive", negated=False)
    contrary = excuse(composer, composer.pronoun_for(subject))
    return joined(main(composer, clause), under("although obwohl", contrary))


def meanwhile(composer: Composer) -> Texts:
    """Peter is cooking the soup while his sister is tidying up the room."""
    first, second = (composer.action(None, "progressive", False, False) for _ in range(2))
    return joined((english(first), german(first)), under("while während", second))


def contrast(composer: Composer) -> Texts:
    """The man wanted to read the letter, but he could not find it."""
    second_verb = composer.pick(
        [v for v in LEXICON["verb"] if v.english.split()[0] in ("find", "need", "like")]
    )
    finding = second_verb.kind == "event"
    subject = composer.person()
    verbs = [v for v in rows("verb", "governs", "accusative") if v.kind in ("habit", "once")]
    verb = composer.pick([v for v in verbs if not v.value and "person" in v.subject])
    thing = composer.something(verb.object, "definite")
    if "person" in thing.noun.classes or thing.noun not in rows(
        "noun", "classes", second_verb.object
    ):
        raise IndexError("nobody can find, need or like this")
    composer.pairs |= {(verb.number, thing.noun.number), (second_verb.number, thing.noun.number)}
    parts = [Part("particle", verb.particle, ""), Part("object", thing.english, thing.accusative)]
    tense = "past modal" if finding else "past"
    first = composer.action(subject, tense, False, False, verb, parts)
    it = composer.pronoun_for(thing)
    part = (Part("pronoun", it.english_object, it.accusative),)
    same = composer.pronoun_for(subject)
    can = LEXICON["modal"][0]
    second = Clause(same, second_verb, "state", part, None, "nicht")
    if finding:
        second = Clause(same, second_verb, "past", part, can, "nicht")
    but = (f"but {english(second)}", f"aber {german(second)}")
    return joined((english(first), german(first)), but, comma=",")


def relative(composer: Composer) -> Texts:
    """The book that you gave him was expensive."""
    verb = composer.pick([v for v in rows("verb", "governs", "accusative") if v.kind != "state"])
    thing = composer.something(verb.object, "the")
    composer.pairs.add((verb.number, thing.noun.number))
    tense = composer.random.choice(("past", "past", "progressive"))
    parts = [Part("particle", verb.particle, "")]
    clause = composer.action(None, tense, False, verb=verb, parts=parts)
    pronoun = DEFINITE["accusative"][GENDERS.index(thing.replaces.split()[0])]
    subject = dataclasses.replace(
        thing,
        english=f"{thing.english} that {english(clause)}",
        nominative=f"{thing.nominative}, {pronoun} {german(clause, 'last')},",
    )
    whole = described(composer, subject)
    return english(whole), german(whole)


def sequence(composer: Composer) -> Texts:
    """Yesterday Anna visited her aunt and Paul cleaned the kitchen."""
    first, second = (composer.action(None, "past", timed=False) for _ in range(2))
    return f"{english(first)} and {english(second)}", f"{german(first)} und {german(second)}"


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
    sky_reason: 3,
    condition: 8,
    occasion: 4,
    concession: 5,
    meanwhile: 3,
    contrast: 4,
    relative: 5,
    sequence: 3,
}
QUESTIONS = {yes_no_question, open_question}


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
