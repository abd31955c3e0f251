"""The grammar of phrasebook/en_de: sentences built in English and German at the same time.

A `Phrase` is somebody or something, with its German cases; a `Clause` is a verb with its subject
and its other parts. Two functions put a clause into words, `english` and `german`; all that differs
between the languages in word order and verb forms is in them and in the two functions before them.
What is said is chosen elsewhere, in `sentences`.

Every English sentence has one German translation: "you" is du, the past tense is the perfect
(Präteritum for the modals and sein), and the parts of a clause have one fixed order.
"""

import collections
import dataclasses
import functools
import itertools
import pathlib
from typing import Any, NamedTuple

GENDERS = ("m", "f", "n", "plural")
STRONG = {
    "nominative": ("er", "e", "es", "e"),
    "accusative": ("en", "e", "es", "e"),
    "dative": ("em", "er", "em", "en"),
}
DEFINITE = {
    "nominative": ("der", "die", "das", "die"),
    "accusative": ("den", "die", "das", "die"),
    "dative": ("dem", "der", "dem", "den"),
}
# "ein Mann", "ein Kind": here an ein-word has no ending, and the adjective must show the gender.
BARE_EIN = {("nominative", "m"), ("nominative", "n"), ("accusative", "n")}
CONTRACTED = {"in dem": "im", "an dem": "am", "in das": "ins", "von dem": "vom"}
CONTRACTED |= {"zu dem": "zum", "zu der": "zur"}

PERSONS = ("first", "second", "third", "plural")
BE = (("am", "was"), ("are", "were"), ("is", "was"), ("are", "were"))
SEIN = (("bin", "war"), ("bist", "warst"), ("ist", "war"), ("sind", "waren"))
HABEN = ("habe", "hast", "hat", "haben")
PAST_ENDINGS = ("e", "est", "e", "en")

ENGLISH_ORDER = ("particle", "pronoun", "particle after pronoun", "object", "recipient")
ENGLISH_ORDER += ("pronoun recipient", "manner", "preposition", "predicate", "place", "time")
GERMAN_ORDER = ("pronoun", "pronoun recipient", "time", "frequency", "recipient", "object", "nicht")
GERMAN_ORDER += ("manner", "place", "preposition", "predicate")
# "Er kauft das Buch heute nicht": nicht follows all that is known.
GERMAN_ORDER_WITH_NICHT = ("pronoun", "pronoun recipient", "recipient", "object", "time")
GERMAN_ORDER_WITH_NICHT += ("nicht", "manner", "place", "preposition", "predicate")
SEPARABLE_PARTICLES = ("up", "on", "off", "away")


def read_lexicon() -> dict[str, list]:
    """The sections of the table beside this file, each a list of rows that know their number."""
    path = pathlib.Path(__file__).with_name("lexicon.tsv")
    lexicon: dict[str, list] = {}
    section, row_type = "", None
    numbers = itertools.count()
    for line in path.read_text(encoding="utf-8").splitlines():
        cells = ["" if cell.strip() == "-" else cell.strip() for cell in line.split("\t")]
        if line.startswith("["):
            section, row_type = line.strip("[]"), None
            lexicon[section] = []
        elif line and not line.startswith("#") and row_type is None:
            row_type = collections.namedtuple(section, ["number", *cells])
        elif line and not line.startswith("#") and row_type:
            lexicon[section].append(row_type(next(numbers), *cells))
    return lexicon


LEXICON = read_lexicon()


@functools.cache
def rows(section: str, column: str, classes: str) -> list:
    """The rows with one of the classes in a column; a class may also be a row's English word."""
    wanted = set(classes.split())
    return [
        row for row in LEXICON[section] if wanted & {row.english, *getattr(row, column).split()}
    ]


@dataclasses.dataclass(frozen=True)
class Phrase:
    """Somebody or something in the cases of both languages. Replaces: as in the pronoun table."""

    english: str
    english_object: str
    nominative: str
    accusative: str
    dative: str
    person: str = "third"
    replaces: str = ""
    noun: Any = None  # a row of the lexicon; None for pronouns and names


Texts = tuple[str, str]  # the same in English and German


class Part(NamedTuple):
    """What a clause has besides subject and verb; the slot decides its place in each language."""

    slot: str
    english: str
    german: str


@dataclasses.dataclass(frozen=True)
class Clause:
    """One clause of both languages. Without a verb it says what the subject is."""

    subject: Phrase
    verb: Any  # a row of the lexicon, or None
    tense: str  # present, progressive or past
    parts: tuple[Part, ...] = ()
    modal: Any = None  # a row of the lexicon, or None
    negation: str = ""  # "", nicht or kein

    def without(self, slot: str) -> "Clause":
        """The clause without its part in this slot, which will stand before the clause."""
        kept = tuple(part for part in self.parts if part.slot != slot)
        return dataclasses.replace(self, parts=kept)


def noun_phrase(noun, determiner=None, adjective=None, numeral=None, plural=False, kein=False):
    """A noun with what stands before it. The adjective is strong where the determiner is not."""
    gender = "plural" if plural else noun.gender
    words = [adjective.english if adjective else "", noun.plural if plural else noun.english]
    words = [numeral.english if numeral else "", *words]
    text = " ".join(filter(None, words))
    if determiner and determiner.english == "a":
        text = ("an " if text[0] in "aeiou" else "a ") + text
    elif determiner:
        text = f"{determiner.english} {text}"
    cases = {}
    for case in STRONG:
        strong = STRONG[case][GENDERS.index(gender)]
        weak = "e" if case != "dative" and strong in ("er", "e", "es") and not plural else "en"
        stem = "kein" if kein else determiner.german if determiner else ""
        shows_case = determiner and determiner.kind in ("definite", "strong", "question")
        if stem == "der":
            article, ending = DEFINITE[case][GENDERS.index(gender)], weak
        elif not stem or (not shows_case and (case, gender) in BARE_EIN):
            article, ending = stem, strong
        else:
            article, ending = stem + strong, weak
        form = noun.german_plural if plural else noun.german
        if plural and case == "dative" and form[-1] not in "ns":
            form += "n"
        if not plural and case != "nominative" and noun.oblique:
            form = noun.oblique
        attribute = (adjective.stem or adjective.german) + ending if adjective else ""
        german = [article, numeral.german if numeral else "", attribute, form]
        cases[case] = " ".join(filter(None, german))
    animate = " person" if "person" in noun.classes and not plural else ""
    person = "plural" if plural else "third"
    return Phrase(text, text, **cases, person=person, replaces=gender + animate, noun=noun)


def after(preposition: str, phrase: str) -> str:
    """The German preposition before its phrase, drawn together with a definite article."""
    words = f"{preposition} {phrase}".split()
    pair = " ".join(words[:2])
    return " ".join([CONTRACTED.get(pair, pair), *words[2:]])


def english_verb(clause: Clause, inverted: bool) -> tuple[str, str]:
    """The auxiliary, if there is one, and the rest of the verb."""
    person, past = PERSONS.index(clause.subject.person), clause.tense == "past"
    be = BE[person][past]
    if clause.verb is None:
        return be, ""
    base, third, past_form, progressive = clause.verb.english.split()
    if clause.modal:
        rest = f"{clause.modal.rest} {base}".strip()
        forms = clause.modal.english.split()
        if clause.modal.head == "be":
            return be, rest
        if clause.modal.head == "auxiliary":
            return forms[2 if past else 0], rest
        base, third, past_form = (f"{form} {rest}" for form in forms)
    elif clause.tense == "progressive":
        return be, progressive
    agrees = clause.subject.person == "third"
    if clause.negation or inverted:
        return "did" if past else "does" if agrees else "do", base
    return "", past_form if past else third if agrees else base


def german_verb(clause: Clause) -> tuple[str, str, str]:
    """The finite verb, what stands at the end of the clause, and what joins them in that order."""
    person, past = PERSONS.index(clause.subject.person), clause.tense == "past"
    if clause.verb is None:
        return SEIN[person][past], "", ""
    infinitive, first, second, third, participle, auxiliary = clause.verb.german.split()
    prefix, _, simple = infinitive.rpartition("|")
    if clause.modal:
        plural, *singular, stem = clause.modal.german.split()
        finite = stem + PAST_ENDINGS[person] if past else [*singular, plural][person]
        return finite, prefix + simple, " "
    if past:
        return HABEN[person] if auxiliary == "haben" else SEIN[person][0], participle, " "
    return (first, second, third, simple)[person], prefix, ""


def english(clause: Clause, inverted: bool = False) -> str:
    """The clause as a statement, or with its auxiliary first as in a question."""
    auxiliary, verb = english_verb(clause, inverted)
    words = [auxiliary, clause.subject.english]
    words = words if inverted else words[::-1]
    words += ["not"] if clause.negation else []
    words += [part.english for part in clause.parts if part.slot == "frequency"] + [verb]
    words += [part.english for slot in ENGLISH_ORDER for part in clause.parts if part.slot == slot]
    return " ".join(filter(None, words)).replace("can not", "cannot")


def german(clause: Clause, order: str = "statement") -> str:
    """The clause with its finite verb second (statement), first (inverted) or last."""
    finite, tail, joint = german_verb(clause)
    parts, slots = clause.parts, GERMAN_ORDER
    if clause.negation == "nicht":
        parts, slots = (*parts, Part("nicht", "", "nicht")), GERMAN_ORDER_WITH_NICHT
    middle = [part.german for slot in slots for part in parts if part.slot == slot]
    subject = clause.subject.nominative
    words = {
        "statement": [subject, finite, *middle, tail],
        "inverted": [finite, subject, *middle, tail],
        "last": [subject, *middle, tail + joint + finite],
    }[order]
    return " ".join(filter(None, words))


def under(openers: str, clause: Clause) -> Texts:
    """A subordinate clause behind its two openers ("because weil"): the German verb comes last."""
    first, second = openers.split()
    return f"{first} {english(clause)}", f"{second} {german(clause, 'last')}"


def joined(first: Texts, second: Texts, comma: str = "") -> Texts:
    """Two clauses in a row; German always has the comma, English where it is asked for."""
    return f"{first[0]}{comma} {second[0]}", f"{first[1]}, {second[1]}"
