"""The phrasebook: correct forms, one translation for each sentence, and a test split held out."""

import collections
import multiprocessing
import pickle
import re
from concurrent.futures import ProcessPoolExecutor

import pytest
import sacrebleu

from benchmarks import phrasebook_baselines
from transformer.data.datasets.phrasebook.grammar import (
    LEXICON,
    Clause,
    Part,
    Phrase,
    after,
    english,
    german,
    joined,
    noun_phrase,
    rows,
    under,
)
from transformer.data.datasets.phrasebook.splits import (
    HELD_OUT_CONSTRUCTIONS,
    SIZES,
    Random,
    attempt,
    splits,
)

ANNA = Phrase(*["Anna"] * 5)
I = Phrase("I", "me", "ich", "mich", "mir", "first")  # noqa: E741
THEY = Phrase("they", "them", "sie", "sie", "ihnen", "plural")


@pytest.fixture(scope="session")
def data(shared, one_at_a_time):
    """The three splits, made in a process of its own: there no signature is checked at run time."""
    path = shared / "phrasebook.pickle"
    with one_at_a_time(path):
        if not path.exists():
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as executor:
                path.write_bytes(pickle.dumps(executor.submit(splits).result()))
    return pickle.loads(path.read_bytes())


def row(section: str, first_word: str, german_word: str = ""):
    """A row of the lexicon by the first word of its English forms."""
    return next(
        row
        for row in LEXICON[section]
        if row.english.split()[0] == first_word and german_word in row.german
    )


def cases(phrase: Phrase) -> list[str]:
    return [phrase.nominative, phrase.accusative, phrase.dative]


@pytest.mark.parametrize(
    ("noun", "determiner", "plural", "expected"),
    [
        ("table", "the", False, "der alte Tisch/den alten Tisch/dem alten Tisch"),
        ("table", "a", False, "ein alter Tisch/einen alten Tisch/einem alten Tisch"),
        ("table", None, True, "alte Tische/alte Tische/alten Tischen"),
        ("table", "my", True, "meine alten Tische/meine alten Tische/meinen alten Tischen"),
        ("lamp", "the", False, "die alte Lampe/die alte Lampe/der alten Lampe"),
        ("lamp", "our", False, "unsere alte Lampe/unsere alte Lampe/unserer alten Lampe"),
        ("book", "the", False, "das alte Buch/das alte Buch/dem alten Buch"),
        ("book", "her", False, "ihr altes Buch/ihr altes Buch/ihrem alten Buch"),
        ("book", "this", False, "dieses alte Buch/dieses alte Buch/diesem alten Buch"),
        ("book", "the", True, "die alten Bücher/die alten Bücher/den alten Büchern"),
        ("neighbour", "a", False, "ein alter Nachbar/einen alten Nachbarn/einem alten Nachbarn"),
    ],
)
def test_declension(noun, determiner, plural, expected):
    determiner = determiner and row("determiner", determiner)
    phrase = noun_phrase(row("noun", noun), determiner, row("adjective", "old"), plural=plural)
    assert cases(phrase) == expected.split("/")


def test_adjective_is_strong_after_nothing_and_stems_differ():
    assert cases(noun_phrase(row("noun", "coffee"), None, row("adjective", "cold"))) == [
        "kalter Kaffee",
        "kalten Kaffee",
        "kaltem Kaffee",
    ]
    forest = noun_phrase(row("noun", "forest"), row("determiner", "a"), row("adjective", "dark"))
    assert forest.nominative == "ein dunkler Wald"
    assert forest.english == "a dark forest"
    kein = noun_phrase(row("noun", "apple"), row("determiner", "a"), kein=True)
    assert (kein.english, kein.accusative) == ("an apple", "keinen Apfel")


def test_prepositions_are_drawn_together_with_the_article():
    assert after("in", "dem alten Garten") == "im alten Garten"
    assert after("zu", "der Bank") == "zur Bank"
    assert after("auf", "das Bett") == "auf das Bett"


def clause(subject, verb, tense="past", parts=(), modal=None, negation=""):
    return Clause(subject, row("verb", verb), tense, parts, modal, negation)


ROOM = Part("object", "the room", "das Zimmer")
TIDY = (Part("particle", "up", ""), ROOM, Part("time", "today", "heute"))


@pytest.mark.parametrize(
    ("built", "english_text", "main_text", "last_text"),
    [
        (
            clause(ANNA, "tidy", "progressive", TIDY),
            "Anna is tidying up the room today",
            "Anna räumt heute das Zimmer auf",
            "Anna heute das Zimmer aufräumt",
        ),
        (
            clause(I, "tidy", "past", TIDY),
            "I tidied up the room today",
            "ich habe heute das Zimmer aufgeräumt",
            "ich heute das Zimmer aufgeräumt habe",
        ),
        (
            clause(THEY, "tidy", "modal", TIDY, row("modal", "have"), "nicht"),
            "they do not have to tidy up the room today",
            "sie müssen das Zimmer heute nicht aufräumen",
            "sie das Zimmer heute nicht aufräumen müssen",
        ),
        (
            clause(ANNA, "get", "past", (Part("particle", "up", ""),)),
            "Anna got up",
            "Anna ist aufgestanden",
            "Anna aufgestanden ist",
        ),
        (
            clause(ANNA, "wait", "past", (), row("modal", "be"), "nicht"),
            "Anna was not allowed to wait",
            "Anna durfte nicht warten",
            "Anna nicht warten durfte",
        ),
    ],
)
def test_clauses(built, english_text, main_text, last_text):
    assert english(built) == english_text
    assert german(built) == main_text
    assert german(built, "last") == last_text


def test_questions_fronting_and_two_clauses():
    built = clause(ANNA, "tidy", "past", TIDY)
    assert english(built, inverted=True) == "did Anna tidy up the room today"
    assert german(built, "inverted") == "hat Anna heute das Zimmer aufgeräumt"
    assert german(built.without("time"), "inverted") == "hat Anna das Zimmer aufgeräumt"
    assert joined(("I know", "ich weiß"), under("that dass", built.without("time"))) == (
        "I know that Anna tidied up the room",
        "ich weiß, dass Anna das Zimmer aufgeräumt hat",
    )


def test_lexicon_is_consistent():
    everything = [row for section in LEXICON.values() for row in section]
    assert len({row.number for row in everything}) == len(everything)
    nouns = LEXICON["noun"]
    assert {noun.gender for noun in nouns} == {"m", "f", "n"}
    assert len({noun.english for noun in nouns}) == len(nouns)
    assert all(bool(noun.plural) == bool(noun.german_plural) for noun in nouns)
    assert all(noun.at and noun.to for noun in nouns if "place" in noun.classes.split())
    for verb in LEXICON["verb"]:
        assert (len(verb.english.split()), len(verb.german.split())) == (4, 6), verb
        for classes in (verb.subject, verb.object):
            assert not classes or classes == "sky" or rows("noun", "classes", classes), verb
    for section, sources in (("noun", "noun"), ("adjective", "adjective"), ("adverb", "adverb")):
        translations = [row.german for row in LEXICON[section]]
        assert len(set(translations)) == len(translations), sources


def test_more_than_a_million_distinct_pairs():
    """Counted in one construction only: "Anna bought the (red) coat (yesterday)"."""
    subjects = 6 + len(LEXICON["name"]) + len(rows("noun", "classes", "person"))
    times = 1 + len(rows("adverb", "tense", "past"))
    objects = sum(
        1 + len(rows("adjective", "classes", f"{noun.classes} {noun.english}"))
        for verb in LEXICON["verb"]
        if verb.governs == "accusative" and verb.subject == "person" and verb.kind != "state"
        for noun in rows("noun", "classes", verb.object)
        if "person" not in noun.classes  # so that nobody meets himself
    )
    assert subjects * objects * times > 1_000_000


def test_splits_are_deterministic():
    sizes = {"train": 300, "validation": 20, "test": 20}
    assert splits(sizes=sizes) == splits(sizes=sizes)
    assert splits(sizes=sizes) != splits(seed=1, sizes=sizes)


@pytest.mark.slow
def test_splits_are_disjoint_and_each_sentence_has_one_translation(data):
    everything = [sentence for sentences in data.values() for sentence in sentences]
    assert {name: len(sentences) for name, sentences in data.items()} == SIZES
    assert len({sentence.english for sentence in everything}) == len(everything)
    assert len({sentence.german for sentence in everything}) == len(everything)


@pytest.mark.slow
def test_an_english_sentence_never_has_two_translations():
    """Here repetitions are kept, which `splits` would throw away unseen."""
    random, translations = Random(3), collections.defaultdict(set)
    for _ in range(10_000):
        if sentence := attempt(random):
            translations[sentence.english].add(sentence.german)
    assert [found for found in translations.values() if len(found) > 1] == []


@pytest.mark.slow
def test_spelling_and_length(data):
    for sentence in (sentence for sentences in data.values() for sentence in sentences):
        for text in (sentence.english, sentence.german):
            assert re.fullmatch(r"[A-ZÄÖÜ][\w', ]*\w[.?]", text), text
            assert "  " not in text
            assert 3 <= len(text.split()) <= 20
        assert sentence.english[-1] == sentence.german[-1]


@pytest.mark.slow
def test_every_lemma_is_frequent_in_training(data):
    counts = collections.Counter(number for sentence in data["train"] for number in sentence.lemmas)
    unrecorded = ("determiner", "opener")  # in nearly every sentence, and not chosen by `pick`
    sections = [rows for name, rows in LEXICON.items() if name not in unrecorded]
    rare = [row for section in sections for row in section if counts[row.number] < 50]
    assert rare == []


@pytest.mark.slow
def test_training_and_validation_show_nothing_that_is_held_out(data):
    for sentence in data["train"] + data["validation"]:
        assert all((first + second) % 11 for first, second in sentence.pairs)
        assert not any(held <= sentence.constructions for held in HELD_OUT_CONSTRUCTIONS)


@pytest.mark.slow
def test_every_test_sentence_holds_something_new(data):
    seen = {pair for sentence in data["train"] for pair in sentence.pairs}
    for sentence in data["test"]:
        new_combination = any(held <= sentence.constructions for held in HELD_OUT_CONSTRUCTIONS)
        assert new_combination or sentence.pairs - seen, sentence


@pytest.mark.slow
def test_parts_of_held_out_combinations_are_known_from_training(data):
    for held in HELD_OUT_CONSTRUCTIONS:
        for left_out in held:
            rest = held - {left_out}
            assert any(rest <= sentence.constructions for sentence in data["train"]), rest


@pytest.mark.slow
def test_baselines_are_weak(data):
    sources = [sentence.english for sentence in data["test"]]
    references = [[sentence.german for sentence in data["test"]]]
    train = [(sentence.english, sentence.german) for sentence in data["train"]]
    neighbours = phrasebook_baselines.nearest_neighbour(train, sources)
    assert sacrebleu.corpus_bleu(neighbours, references).score < 40
    assert sacrebleu.corpus_bleu(phrasebook_baselines.word_by_word(sources), references).score < 30


def test_nearest_neighbour_finds_the_sentence_itself():
    train = [("A red coat.", "Ein roter Mantel."), ("The dog sleeps.", "Der Hund schläft.")]
    assert phrasebook_baselines.nearest_neighbour(train, ["The dog sleeps."]) == [train[1][1]]


def test_builder_works_without_tensorflow(data, tmp_path, monkeypatch):
    tfds = pytest.importorskip("tensorflow_datasets")
    from transformer.data.datasets.phrasebook import dataset

    small = {name: sentences[:50] for name, sentences in data.items()}
    monkeypatch.setattr(dataset, "splits", lambda: small)
    builder = tfds.builder("phrasebook/en_de", data_dir=tmp_path, file_format="array_record")
    builder.download_and_prepare()
    for name, sentences in small.items():
        source = builder.as_data_source(split=name)
        assert len(source) == 50
        pairs = [(example["en"].decode(), example["de"].decode()) for example in source]
        assert pairs == [(sentence.english, sentence.german) for sentence in sentences]
