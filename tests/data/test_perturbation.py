"""Changes of text: what they change, and what they leave as it is."""

import unicodedata
from random import Random

import hypothesis.strategies as st
import pytest
from hypothesis import given

from transformer.config import DataConfig
from transformer.data.augmentation import KINDS
from transformer.data.perturbation import (
    kept_symbols,
    perturbed,
    with_cases,
    without_accents,
)

KEPT = kept_symbols([">>de<<", "<name>"])
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


def change(kind, *texts, following=(), seed=0):
    return perturbed(kind, texts, following, Random(seed), KEPT)


@pytest.mark.parametrize(
    "kind, source, target",
    [
        ("upper_case", ">>de<<DO YOU SEE <name>?", "SIEHST DU <name> AM FLUSS?"),
        ("title_case", ">>de<<Do You See <name>?", "Siehst Du <name> Am Fluß?"),
        ("without_accents", ">>de<<Do you see <name>?", "Siehst du <name> am Fluß?"),
        ("merged", ">>de<<Do you see <name>? Oui, été.", "Siehst du <name> am Fluß? Ja."),
    ],
)
def test_what_each_change_does(kind, source, target):
    pair = ">>de<<Do you see <name>?", "Siehst du <name> am Fluß?"
    following = ">>de<<Oui, été.", "Ja."
    assert change(kind, *pair, following=following) == (source, target)


def test_accents_are_those_of_latin_and_greek_letters():
    assert without_accents("Möbel, él, Ωραίος, ắ") == "Mobel, el, Ωραιος, a"
    for text in ("йод, ёж", "हिन्दी", "ไม่", "שָׁלוֹם", "가"):
        assert without_accents(text) == unicodedata.normalize("NFC", text)


@given(st.sampled_from(KINDS), TEXT, TEXT, TEXT, st.integers(0, 9))
def test_kept_symbols_stay_and_the_seed_alone_decides(kind, one, two, three, seed):
    texts = f">>de<<{one}<name>{two}", f">>de<<{three}<name>"
    following = (">>de<<Yes.", ">>de<<Ja.")
    changed = change(kind, *texts, following=following, seed=seed)
    assert changed == change(kind, *texts, following=following, seed=seed)
    for before, after in zip(texts, changed):
        assert after.startswith(">>de<<")
        assert kind == "cut" or after.count("<name>") == before.count("<name>")
    if kind in ("typos", "without_accents"):
        assert changed[1] == texts[1]


@given(st.integers(0, 200))
def test_typos_change_a_word_or_some_but_not_their_first_letters(seed):
    source = "the quick and lively children cannot visit the museum, said <name> to me"
    changed, target = change("typos", source, "das", seed=seed)
    before, after = source.split(), changed.split()
    assert target == "das" and len(before) == len(after)
    differing = [(a, b) for a, b in zip(before, after) if a != b]
    assert 1 <= len(differing) <= 8
    for a, b in differing:
        assert len(a) >= 4 and a[0] == b[0] and abs(len(a) - len(b)) <= 1


def test_a_pair_is_cut_where_both_sides_have_the_same_marks():
    pair = "Well, if it rains: we go home.", "Also, wenn es regnet: wir gehen heim."
    expected = {("Well", "Also"), ("Well, if it rains", "Also, wenn es regnet")}
    assert {change("cut", *pair, seed=seed) for seed in range(20)} == expected
    assert change("cut", "今天下雨，我们走。", "It rains, we go.") == ("今天下雨", "It rains")
    for whole in (("It rains, we go.", "Es regnet."), ("1,000 men", "1,000 Mann"), (", a", ", b")):
        assert change("cut", *whole) == whole


def test_pairs_are_merged_if_both_have_text_and_their_tags_are_the_same():
    pair = (">>de<<No.", "Nein.")
    assert change("merged", *pair, following=(">>fr<<Yes.", "Oui.")) == pair
    assert change("merged", *pair, following=(">>de<<Yes.", "")) == pair
    assert change("merged", *pair, following=(">>de<<", "Ja.")) == pair
    for empty in ((">>de<<", "Nein."), ("", "")):
        assert change("merged", *empty, following=(empty[0] + "Yes.", "Ja.")) == empty
    assert change("merged", *pair, following=(">>de<< Yes.", "Ja.")) == (
        ">>de<<No. Yes.",
        "Nein. Ja.",
    )
    assert change("merged", "走。", "Go.", following=("来。", "Come.")) == ("走。来。", "Go. Come.")
    named = ("<name> is here.", "<name> ist hier.")
    both = ("<name> is here. <name> left.", "<name> ist hier. <name> ging.")
    assert change("merged", *named, following=("<name> left.", "<name> ging.")) == both


def test_a_stream_has_its_shares_in_another_case():
    pairs = [(f"number {n} is here", f"nummer {n} ist hier") for n in range(2_000)]
    assert list(with_cases(DataConfig(typos=0.5, merged=0.3), pairs)) == pairs
    found = list(with_cases(DataConfig(upper_case=0.2, title_case=0.3), pairs))
    assert len(found) == len(pairs)
    upper = sum(source.isupper() and target.isupper() for source, target in found)
    title = sum(source.istitle() and target.istitle() for source, target in found)
    assert abs(upper - 400) < 80 and abs(title - 600) < 90
