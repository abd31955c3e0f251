"""Sentences of phrasebook/en_de with one clause, one function for each construction."""

from transformer.data.datasets.phrasebook.composer import Composer
from transformer.data.datasets.phrasebook.grammar import (
    LEXICON,
    Clause,
    Part,
    Phrase,
    Texts,
    english,
    german,
    rows,
)

IT = Phrase("it", "it", "es", "es", "ihm")
WHO = Phrase("who", "who", "wer", "wen", "wem")


def main(composer: Composer, clause: Clause) -> Texts:
    """A statement, sometimes with its time in front: then the German subject follows the verb."""
    time = next((part for part in clause.parts if part.slot == "time"), None)
    if time is None or not composer.chance(0.35):
        return english(clause), german(clause)
    composer.constructions.add("fronted")
    rest = clause.without("time")
    return f"{time.english} {english(rest)}", f"{time.german} {german(rest, 'inverted')}"


def being(
    composer: Composer, subject: Phrase, adjective, tense: str = "present", negation: str = ""
) -> Clause:
    """The subject is, or is not, as the adjective says."""
    texts = [adjective.english, adjective.german]
    if not negation and "absolute" not in adjective.value and composer.chance(0.3):
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
    composer.constructions |= {negation} - {""}
    texts = ("time", "keine Zeit" if negation else "Zeit")
    return Clause(subject, verb, "present", (Part("object", *texts),), None, negation)


def weather(composer: Composer, tense: str) -> tuple[Clause, bool]:
    """What the weather is like, and whether it is good."""
    if composer.chance(0.5):
        return Clause(IT, composer.pick(rows("verb", "kind", "weather")), tense), False
    phrase = composer.something("weather", "the")
    adjective = composer.adjective(phrase.noun)
    return being(composer, phrase, adjective), adjective.value == "good"


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
    thing, where = (
        composer.something("flat clothing pet", "definite", one=True),
        composer.surface("dative"),
    )
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
        subject = composer.something("young", "definite", one=True)
        age = (f"{number.english} years old", f"{number.german} Jahre alt")
        clause = Clause(subject, None, "present", (Part("predicate", *age),))
    else:
        subject = composer.something("clothing dish sold plant toy", "definite")
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
