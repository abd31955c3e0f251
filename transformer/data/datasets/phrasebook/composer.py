"""Random clauses for phrasebook/en_de: who does what, when and where, so that it makes sense.

The classes in the lexicon decide which nouns suit a verb and which adjectives suit a noun.
"""

from random import Random

from transformer.data.datasets.phrasebook.grammar import (
    LEXICON,
    SEPARABLE_PARTICLES,
    Clause,
    Part,
    Phrase,
    after,
    noun_phrase,
    rows,
)

# What the verbs of a kind may say. Habit is the simple present with a word like "often"; future is
# will and no other modal; willing is will, can or want; "when" is the present after that word.
TENSES = {
    "habit": ("progressive", "habit", "past", "modal", "past modal", "willing", "when"),
    "once": ("progressive", "past", "past", "modal", "past modal", "willing", "when"),
    "event": ("past", "when"),
    "mood": ("progressive", "past", "when"),
    "state": ("state",),
    "clock": ("past", "future"),
}
# Which adverbs of time go with them.
TIMES = {"progressive": "present", "habit": "habit", "past": "past", "past modal": "past"}
TIMES |= {"modal": "future", "willing": "future", "future": "future"}
PERSONAL = [row for row in LEXICON["pronoun"] if row.replaces not in ("m", "f", "n")]


def pronoun(row) -> Phrase:
    """A row of the pronoun table as a phrase."""
    return Phrase(*row[1:7])


def determiners(tags: set[str], kind: str, plural: bool) -> list[str]:
    """The determiners that suit a noun with these classes, the likelier ones more than once."""
    if kind in ("the", "which"):
        return [kind]
    found, family = [], "family" in tags
    owned = "own" in tags or not tags & {"stranger", "food", "drink", "place", "means"}
    if kind in ("any", "definite"):
        found += ["the"] if family else ["the"] * 6
        found += [] if family or plural else ["this"]
    if (kind in ("any", "indefinite") and not family) or (kind == "repeated" and not owned):
        found += ["a"] * 6
    if owned and kind != "indefinite":
        found += ["my", "your", "his", "her", "our", "their"]
    return found


class Composer:
    """Random choices for one sentence, and the record of them that the hold-out rule looks at.

    A choice that leaves nothing suitable for the next one raises IndexError, and whoever asked for
    the sentence starts afresh.
    """

    def __init__(self, random: Random):
        self.random = random
        self.lemmas = []
        self.pairs = set()
        self.constructions = set()
        self.described = set()

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return self.random.random() < probability

    def pick(self, choices: list):
        """One of the rows, recorded."""
        row = self.random.choice(choices)
        self.lemmas.append(row)
        return row

    def something(
        self, classes: str, kind: str = "any", kein: bool = False, one: bool = False
    ) -> Phrase:
        """A noun phrase.

        Kind: any; definite or indefinite; repeated (what habits are about); or a determiner. One:
        no plural.
        """
        nouns = rows("noun", "classes", classes)
        noun = self.pick([n for n in nouns if kind != "indefinite" or "family" not in n.classes])
        tags = set(noun.classes.split())
        plural = bool(noun.plural) and "single" not in tags and not one and self.chance(0.2)
        chosen = self.random.choice(determiners(tags, kind, plural))
        if chosen == "a" and kind == "repeated":  # "every day he writes letters"
            plural = bool(noun.plural)
        determiner = next(row for row in LEXICON["determiner"] if row.english == chosen)
        if chosen == "a" and (plural or not noun.plural):
            determiner = None
        numeral = adjective = None
        some_people = determiner is None and "person" in tags  # "teachers": better with a number
        if plural and not kein and (some_people or (kind != "repeated" and self.chance(0.4))):
            numeral = self.pick(LEXICON["numeral"][:4])
            self.constructions.add("numeral")
        if self.chance(0.35):
            adjective = self.adjective(noun)
        return noun_phrase(noun, determiner, adjective, numeral, plural, kein)

    def adjective(self, noun, value: str = ""):
        """An adjective that suits the noun."""
        suitable = rows("adjective", "classes", f"{noun.classes} {noun.english}")
        if noun in self.described:  # "the small table is big"
            suitable = []
        self.described.add(noun)
        adjective = self.pick([row for row in suitable if value in ("", *row.value.split())])
        self.pairs.add((adjective.number, noun.number))
        return adjective

    def person(self, classes: str = "person", one: bool = False) -> Phrase:
        """A subject: a pronoun, a name or a noun where it is a person, otherwise a noun."""
        draw = self.random.random()
        if {"person", "adult"} & set(classes.split()) and draw < 0.5:
            if draw < 0.35:
                return pronoun(self.pick(PERSONAL))
            name = self.pick(LEXICON["name"])
            return Phrase(*[name.english] * 5, replaces=f"{name.gender} person")
        kind = "the" if "thing" in classes.split() else "any"  # "this lamp belongs to us"
        return self.something(classes, kind, one=one)

    def action(
        self,
        subject: Phrase | None = None,
        tense: str = "",
        negated: bool | None = None,
        timed: bool = True,
        verb=None,
        parts: list[Part] | None = None,
    ) -> Clause:
        """A clause in which somebody does something; what is not given is chosen."""
        verb = verb or self.verb(subject, tense)
        subject = subject or self.person(verb.subject, verb.kind == "clock")
        choices = [name for name in TENSES[verb.kind] if name != "when"]
        choices = [name for name in choices if timed or name != "habit"]
        tense = tense or self.random.choice(choices)
        negated = self.chance(0.2) if negated is None else negated
        negated = negated and tense != "habit" and verb.kind != "clock"
        countable = verb.governs in ("accusative", "recipient", "indefinite")
        known = verb.kind == "state" and verb.value  # nobody likes "a museum"
        kein = negated and countable and (self.chance(0.5) or verb.governs == "indefinite")
        kein = kein and not known
        if parts is None:
            kind = "repeated" if tense == "habit" else "definite" if negated or known else "any"
            kind = "indefinite" if kein or verb.governs == "indefinite" else kind
            parts = self.objects(verb, subject, kind, kein)
        if not negated and tense != "habit" and self.chance(0.4):
            parts = parts + self.circumstance(verb, tense)
        always = verb.kind == "clock" or tense == "habit"
        if timed and tense in TIMES and (always or self.chance(0.5)):
            parts = [*parts, self.time(TIMES[tense], verb.kind == "clock")]
        negation = "kein" if kein else "nicht" if negated else ""
        modal = self.modal(tense, negated)
        tense = "past" if tense == "past modal" else tense
        self.note(verb, modal, tense, negation)
        return Clause(subject, verb, tense, tuple(parts), modal, negation)

    def verb(self, subject: Phrase | None, tense: str):
        """A verb that has the tense, and that persons do if the subject is given."""
        kinds = [kind for kind in TENSES if not tense or tense in TENSES[kind]]
        verbs = rows("verb", "kind", " ".join(kinds))
        return self.pick([verb for verb in verbs if not subject or "person" in verb.subject])

    def modal(self, tense: str, negated: bool):
        """The modal verb that the tense wants, if any; "could" only where it was not so."""
        if tense == "future":
            return self.pick(rows("modal", "head", "auxiliary")[1:2])
        past = [row for row in LEXICON["modal"] if not row.english.endswith("-")]
        past = past if negated else past[1:]
        willing = rows("modal", "classes", "willing")
        choices = {"modal": LEXICON["modal"], "past modal": past, "willing": willing}
        return self.pick(choices[tense]) if tense in choices else None

    def note(self, verb, modal, tense: str, negation: str) -> None:
        """Record the constructions of a clause."""
        marks = {"modal": modal, "perfect": tense == "past" and not modal}
        marks |= {"separable": "|" in verb.german, negation: negation}
        self.constructions |= {name for name, present in marks.items() if present}

    def objects(self, verb, subject: Phrase, kind: str, kein: bool) -> list[Part]:
        """What the verb governs."""
        if not verb.governs:
            return [Part("particle", verb.particle, "")]
        if verb.governs == "place":
            return [self.place(verb.object)]
        if "person" in verb.object.split() and not kein and self.chance(0.3):
            thing = self.other_person(subject)
        else:
            there = verb.governs == "direction"
            thing = self.something(verb.object, "definite" if there else kind, kein, one=there)
            self.pairs.add((verb.number, thing.noun.number))
        preposition, _, case = verb.governs.rpartition(" ")
        if verb.governs == "direction":
            preposition = thing.noun.to
            case = "dative" if preposition == "zu" else "accusative"
        if preposition:
            there = after(preposition, thing.dative if case == "dative" else thing.accusative)
            return [Part("preposition", f"{verb.particle} {thing.english_object}", there)]
        slot = "object" if thing.noun else "pronoun"
        late = slot == "pronoun" and verb.particle in SEPARABLE_PARTICLES
        parts = [Part("particle after pronoun" if late else "particle", verb.particle, "")]
        german_object = thing.dative if case == "dative" else thing.accusative
        parts.append(Part(slot, thing.english_object, german_object))
        if case == "recipient":
            parts.append(self.recipient(subject))
        if case == "surface":
            parts.append(self.surface("accusative"))
        return parts

    def pronoun_for(self, phrase: Phrase) -> Phrase:
        """The pronoun that resumes a phrase: by gender in German, by sex or "it" in English."""
        if not phrase.replaces:
            return phrase
        suitable = [row for row in LEXICON["pronoun"] if row.replaces == phrase.replaces]
        return pronoun(self.pick(suitable))

    def other_person(self, subject: Phrase) -> Phrase:
        """A pronoun that cannot be the subject itself."""
        near = ("I", "we") if subject.english in ("I", "we") else (subject.english,)
        return pronoun(self.pick([row for row in PERSONAL if row.english not in near]))

    def recipient(self, subject: Phrase) -> Part:
        """To whom something is given."""
        if self.chance(0.3):
            person, slot = self.other_person(subject), "pronoun recipient"
        else:
            person, slot = self.something("person", "definite"), "recipient"
        return Part(slot, f"to {person.english_object}", person.dative)

    def surface(self, case: str) -> Part:
        """Where something lies (dative), or where somebody lays it (accusative)."""
        furniture = self.something("furniture", "definite", one=True)
        preposition = self.pick(LEXICON["preposition"])
        where = after(preposition.german, getattr(furniture, case))
        return Part("place", f"{preposition.english} {furniture.english}", where)

    def place(self, classes: str) -> Part:
        """A place where something happens."""
        place = self.something(classes, "definite", one=True)
        preposition, german_preposition = place.noun.at.split()
        where = after(german_preposition, place.dative)
        return Part("place", f"{preposition} {place.english}", where)

    def circumstance(self, verb, tense: str) -> list[Part]:
        """How or where something is done, if the verb allows it."""
        skill = tense in ("past", "progressive", "when")  # not: "he wants to sing badly"
        manners = verb.manner if skill else verb.manner.replace("skill", "")
        if manners and self.chance(0.5):
            manner = self.pick(rows("manner", "classes", manners))
            return [Part("manner", manner.english, manner.german)]
        return [self.place(verb.place)] if verb.place else []

    def time(self, group: str, with_clock: bool) -> Part:
        """When it happens."""
        adverb = self.pick(rows("adverb", "tense", group + "_clock" * with_clock))
        texts = (adverb.english, adverb.german)
        if with_clock:
            hour = self.pick(LEXICON["numeral"][3:9])
            texts = f"at {hour.english} o'clock {texts[0]}", f"{texts[1]} um {hour.german} Uhr"
        return Part(adverb.slot, *texts)

    def asked(self) -> tuple[tuple[str, str], Clause]:
        """The front of a question about the object or the direction, and the clause without it."""
        verbs = [verb for verb in LEXICON["verb"] if verb.governs in ("accusative", "direction")]
        verb = self.pick([verb for verb in verbs if verb.kind in ("habit", "once", "event")])
        nouns = rows("noun", "classes", verb.object)
        persons = {"person" in noun.classes for noun in nouns}
        parts = [Part("particle", verb.particle, "")]
        if verb.governs == "direction":
            front, parts = ("where", "wohin"), []
        elif len(persons) == 2 or self.chance(0.5):
            thing = self.something(verb.object, "which")
            self.pairs.add((verb.number, thing.noun.number))
            front = (thing.english, thing.accusative)
        else:
            front = ("who", "wen") if True in persons else ("what", "was")
        return front, self.action(verb=verb, negated=False, parts=parts)

    def valued(self) -> tuple[Phrase, str, Clause]:
        """A thing, good or bad, and a clause in which somebody buys, likes or sells it."""
        verb = self.pick([verb for verb in LEXICON["verb"] if verb.value in ("good", "bad")])
        thing = self.something(verb.object, "definite" if verb.kind == "state" else "the")
        self.pairs.add((verb.number, thing.noun.number))
        parts = [
            Part("particle", verb.particle, ""),
            Part("object", thing.english, thing.accusative),
        ]
        tense = "state" if verb.kind == "state" else "past"
        return thing, verb.value, self.action(None, tense, False, True, verb, parts)
