"""The data summary at the start of training, compared with counting by hand."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import transformer.data.summary as module
from transformer.config import DataConfig
from transformer.data import storage
from transformer.data.summary import data_summary, processing_of
from transformer.data.token_store import TokenPairs, flat
from transformer.model.batch import EOS, UNK

A, B, C = 5, 6, 7


def stored(rows):
    """Pairs of lists of tokens, EOS to be added."""
    sides = zip(*rows) if rows else ([], [])
    return TokenPairs(*(flat([[*row, EOS] for row in side], np.uint16) for side in sides))


def test_each_oddity_is_counted():
    rows = [([A], [B]), ([A, B], [C]), ([A], [B]), ([], [B]), ([C, A], [C, A]), ([A] * 9, [B, UNK])]
    said = data_summary(DataConfig(max_length=8), stored(rows), stored([([A], [B]), ([B], [A])]))
    assert said == (
        "summary     pairs with an empty side: 1; pairs longer than data.max_length (8): 1; "
        "pairs that repeat an earlier one: 1; pairs with equal sides: 1; "
        "validation pairs that are in training too: 1 of 2; "
        f"target tokens unknown: {1 / 14:.3%} (--doctor finds more)"
    )


def test_sources_without_a_target_tag_are_counted_where_there_are_tags():
    rows = [([A, B], [C]), ([B, A], [B]), ([], [B]), ([B], [A]), ([C, A], [C])]
    said = data_summary(DataConfig(), stored(rows), stored(rows), tags=[[A], [C]])
    assert "pairs whose source has no target tag of the vocabulary: 2" in said
    assert "target tag" not in data_summary(DataConfig(), stored(rows), stored(rows))


def test_where_nothing_is_odd_it_says_so():
    said = data_summary(DataConfig(), stored([([A], [B]), ([B], [A])]), stored([([A], [A])]))
    assert said.startswith("summary     nothing odd")


def test_shifted_files_and_processed_text_are_reported():
    generator = np.random.default_rng(0)
    rows = [([A] * n, [B] * n) for n in generator.integers(1, 20, 400).tolist()]
    shifted = [(source, target) for (source, _), (_, target) in zip(rows[1:], rows)]
    validation = stored([([C], [C])])
    assert "seem" not in data_summary(DataConfig(), stored(rows), validation, sample=[("a", "b")])
    said = data_summary(DataConfig(), stored(shifted), validation)
    assert "seem to be 1 line further down" in said
    sample = [("a b", "ein St@@ ück")] * 3 + [("a", "b")]
    said = data_summary(DataConfig(), stored(rows), validation, sample=sample)
    assert "seems to be cut into subwords: 3 of the first 4 lines" in said


def test_sides_of_two_vocabularies_are_never_equal():
    data = replace(DataConfig(), shared_vocabulary=False)
    assert "equal" not in data_summary(data, stored([([A], [A])]), stored([([B], [B])]))


tokens = st.lists(st.integers(3, 6), max_size=3)


@pytest.mark.parametrize("at_once", [2, 1000])
@given(rows=st.lists(st.tuples(tokens, tokens), min_size=1, max_size=30))
def test_hashes_are_equal_where_sentences_are(at_once, rows):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage, "SLICE", at_once)
        pairs = stored(rows)
        of_parts = [module._hashes(pairs.part(part)) for part in storage.slices(len(pairs))]
        found = [np.concatenate(hashes) for hashes in zip(*of_parts)]
    sources, targets = [tuple(s) for s, _ in rows], [tuple(t) for _, t in rows]
    for hashes, keys in zip(found, (sources, targets, list(zip(sources, targets)))):
        for i, key in enumerate(keys):
            assert [k == key for k in keys] == (hashes == hashes[i]).tolist()
    assert found[0].dtype == np.uint64


@pytest.mark.parametrize(
    "text, found",
    [
        ("\u2581the \u2581cat \u2581sleep s", ["cut into subwords"]),
        ("the c@@ at sleeps", ["cut into subwords"]),
        ("the cat sl@@", ["cut into subwords"]),
        ("the cat sleep ##s", ["cut into subwords"]),
        ("the cat , it sleeps", ["tokenised or escaped"]),
        ("the cat sleeps .", ["tokenised or escaped"]),
        ("the cat &apos;s tail", ["tokenised or escaped"]),
        ("cats &amp; dogs", ["tokenised or escaped"]),
        ("well @-@ known", ["tokenised or escaped"]),
        ("&quot; the c@@ at", ["cut into subwords", "tokenised or escaped"]),
    ],
)
def test_marks_are_found(text, found):
    assert list(processing_of(text)) == found


@pytest.mark.parametrize(
    "text",
    [
        "@@", "a@b.de", "mail me @home", "## A heading", "C# and F##", "R&D; A & B", "Ça va ?",
        "\u2581", "costs 5 .", "the cat, it sleeps.", "\u732b\u3001 \u72ac\u3002", "100,000.5",
        "wait ...", "&c.",
    ],
)  # fmt: skip
def test_ordinary_text_has_none(text):
    assert not list(processing_of(text))
