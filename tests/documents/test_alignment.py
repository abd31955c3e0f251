"""Attention between pieces of the vocabularies becomes alignment between units of the texts."""

import numpy as np
import pytest

from transformer.decoding.alignment import PieceAttention, word_attention
from transformer.decoding.translator import best_hypotheses, make_translator
from transformer.documents.alignment import aligned_translations, overlaps, spans, unit_weights
from transformer.documents.units import units

SENTENCES = ["the cat sees a dog", "a dog sees the cat", "the garden ."]


@pytest.fixture(scope="module")
def translator(models):
    return make_translator(*models["translator"])


def words(text):
    return [text[slice(*span)] for span in units(text)]


def test_units_are_words_marks_and_characters_of_unspaced_scripts():
    text = "Don\u2019t (stop) 3.5 x-ray na\u00efve \u0928\u092e\u0938\u094d\u0924\u0947 "
    text += "\u6f22\u5b57a \U0001f642!"
    assert words(text) == [
        "Don\u2019t", "(", "stop", ")", "3", ".", "5", "x", "-", "ray", "na\u00efve",
        "\u0928\u092e\u0938\u094d\u0924\u0947", "\u6f22", "\u5b57", "a", "\U0001f642", "!",
    ]  # fmt: skip


def test_pieces_are_found_in_the_text_also_behind_what_was_normalised():
    pieces = ["\u2581The", "\u2581ca", "t", ",", "\u2581it"]
    assert spans("The cat, it", pieces) == [(0, 3), (4, 6), (6, 7), (7, 8), (9, 11)]
    assert spans("\u2460 cat", ["\u25811", "\u2581cat"]) == [(0, 0), (2, 5)]
    assert spans("THE Cat", ["\u2581the", "\u2581cat"]) == [(0, 3), (4, 7)]
    assert spans("a \u2047 b", ["\u2581a", "<unk>", "\u2581b"]) == [(0, 1), (1, 1), (4, 5)]
    assert spans("\u6f22" * 50 + " cat", ["<unk>", "\u2581cat"])[1] == (51, 54)
    assert overlaps([(0, 3), (4, 7)], [(2, 5), (5, 5)]).tolist() == [[1, 0], [1, 0]]


def test_a_source_unit_has_the_sum_over_its_pieces_and_a_target_unit_the_mean():
    weights = np.array([[0.5, 0.25, 0.25], [0.1, 0.1, 0.6]])
    part = PieceAttention(["\u2581ab", "cd", "\u2581e"], ["\u2581xxx", "y"], weights)
    found = unit_weights("abcd e", "xxxy", [part])
    assert np.allclose(found, [[0.75 * 0.75 + 0.25 * 0.2, 0.75 * 0.25 + 0.25 * 0.6]])
    two = unit_weights("abcd e abcd e", "xxxy xxxy", [part, part])
    assert np.allclose(two, np.kron(np.eye(2), found))


def test_words_of_one_piece_have_the_attention_between_words(translator):
    found = aligned_translations(translator, SENTENCES, needs_alignment=True)
    best = best_hypotheses(translator, SENTENCES)
    expected = word_attention(translator, SENTENCES, [one.tokens for one in best])
    assert [one.text for one in found] == [one.text for one in best]
    compared = 0
    for (text, weights, _), [part], sentence in zip(found, expected, SENTENCES):
        assert weights.shape == (len(units(text)), len(units(sentence)))
        if words(text) == part.target:
            assert np.allclose(weights, part.weights, atol=1e-6)
            compared += 1
    assert compared
    plain = aligned_translations(translator, SENTENCES, needs_alignment=False)
    assert [one.text for one in plain] == [one.text for one in found]
    assert not any(one.weights.any() for one in plain)
