"""Sentences of phrasebook/en_de with two clauses, one function for each construction."""

import dataclasses

from transformer.data.datasets.phrasebook.composer import Composer
from transformer.data.datasets.phrasebook.grammar import (
    DEFINITE,
    GENDERS,
    LEXICON,
    Clause,
    Part,
    Phrase,
    Texts,
    english,
    german,
    joined,
    rows,
    under,
)
from transformer.data.datasets.phrasebook.sentences import (
    described,
    feeling,
    having_time,
    main,
    weather,
)


def opinion(composer: Composer) -> Texts:
    """Peter hopes that the train will arrive soon."""
    verb = composer.pick(rows("verb", "kind", "opinion"))
    tense = "past" if verb.english.startswith("say") and composer.chance(0.5) else "present"
    matrix = Clause(composer.person(), verb, tense)
    return joined(
        (english(matrix), german(matrix)),
        under("that dass", composer.action(tense="past" if tense == "past" else "")),
    )


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
    clause = composer.action(subject, "willing", negated=True, timed=False)
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


def weather_reason(composer: Composer) -> Texts:
    """We are not swimming because it is raining."""
    sky, good = weather(composer, "progressive")
    verb = composer.pick(rows("verb", "value", "weather"))
    tense = composer.random.choice(("progressive", "willing"))
    now = tense == "progressive"  # not: "next week, because it is raining"
    clause = composer.action(None, tense, negated=not good, timed=now, verb=verb)
    return joined(main(composer, clause), under("because weil", sky))


def condition(composer: Composer) -> Texts:
    """If the teacher has time, he will help you."""
    first = last = composer.person()
    in_front = composer.chance(0.5)
    if in_front:  # the pronoun is in the clause that comes second
        last = composer.pronoun_for(first)
    else:
        first = composer.pronoun_for(last)
    draw, verb = composer.random.random(), None
    if draw < 0.3:
        premise, good = weather(composer, "present")
        verb = composer.pick(rows("verb", "value", "weather"))
        last = composer.person()
    elif draw < 0.7:
        premise, good = having_time(composer, first, ""), True
    else:
        premise, good = excuse(composer, first), False
    clause = composer.action(last, "willing", negated=not good, verb=verb)
    if in_front:
        back = (english(clause), german(clause, "inverted"))
        return joined(under("if wenn", premise), back, comma=",")
    return joined(main(composer, clause), under("if wenn", premise))


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
    verbs = [v for v in LEXICON["verb"] if v.governs == "accusative"]
    verb = composer.pick(
        [v for v in verbs if v.kind in ("habit", "once") and not v.value and "person" in v.subject]
    )
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
    verb = composer.pick(
        [v for v in LEXICON["verb"] if v.governs == "accusative" and v.kind != "state"]
    )
    thing = composer.something(verb.object, "the")
    composer.pairs.add((verb.number, thing.noun.number))
    now = verb.kind != "event" and composer.chance(0.3)
    tense = "progressive" if now else "past"
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
