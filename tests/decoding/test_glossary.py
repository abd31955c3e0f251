"""Glossaries: which terms of a text count, and how files are read."""

from dataclasses import replace

import numpy as np
import pytest

from transformer.commands.glossary import load_glossary
from transformer.config import DecodeConfig
from transformer.data.tokenizer import train_tokenizer
from transformer.decoding.glossary import (
    Entry,
    continuing,
    make_glossary,
    read_entry,
)
from transformer.decoding.translator import best_hypotheses, make_translator
from transformer.errors import UserError

TEXT = ["das Haus der Hund die Katze ein Garten Häuser im Gartenhaus"] * 9


@pytest.fixture(scope="module")
def target():
    return train_tokenizer(TEXT, "unigram", 60)


def found(entries, text, target):
    """The target forms of the terms of a text, joined."""
    glossary = make_glossary([*map(read_entry, entries)], target, "terms")
    return ["|".join(target.decode([*term])) for term in glossary.terms(text)]


def test_the_terms_of_a_text_are_its_words_the_longest_first_as_often_as_they_occur(target):
    entries = ["house|houses\tHaus|Häuser", "garden house\tGartenhaus", "Dog\tHund\tcase"]
    assert found(entries, "A House, two houses.", target) == ["Haus|Häuser"] * 2
    assert found(entries, "the garden house", target) == ["Gartenhaus"]
    assert found(entries, "a dog and a Dog", target) == ["Hund"]
    assert found(entries, "greenhouse, housed, dogs", target) == []
    assert found(["猫\tKatze"], "我的猫很大", target) == ["Katze"]
    assert found(["im\tim"], "im Haus", target) == ["im"]  # "Im" cannot be written


def test_a_term_without_a_translation_stays_and_a_form_may_begin_with_a_capital(target):
    assert read_entry("Garten") == Entry(("Garten",), ("Garten",))
    assert found(["garten\tdas"], "Garten", target) in (["das"], ["das|Das"])


def test_tokens_that_continue_a_word_are_known(target):
    pieces = target.pieces(range(target.vocab_size))
    inner = {piece for piece, is_inner in zip(pieces, continuing(target)) if is_inner}
    assert inner and not any(piece.startswith("\u2581") for piece in inner)
    assert {"<s>", "</s>", "<pad>", "<unk>"}.isdisjoint(inner)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("a\tHaus\tcase\tb", "line 2: the columns are source, target"),
        ("a\tHaus\tupper", "line 2: the columns are source, target"),
        ("\tHaus", "line 2: the source term is missing"),
        ("a\t\u6f22", "cannot be written with the vocabulary"),
    ],
)
def test_a_bad_line_is_named(tmp_path, target, line, said):
    path = tmp_path / "terms.tsv"
    path.write_text(f"# terms\n{line}\n", encoding="utf-8")
    with pytest.raises(UserError, match=said):
        load_glossary(str(path), target, DecodeConfig())
    path.write_text("# terms\n\n", encoding="utf-8")
    with pytest.raises(UserError, match="has no terms"):
        load_glossary(str(path), target, DecodeConfig())


def test_translations_have_the_terms_of_their_texts(models):
    config, params, tokenizers = models["translator"]
    translator = make_translator(config, params, tokenizers)
    pieces = tokenizers.target.pieces(range(tokenizers.target.vocab_size))
    words = [piece[1:] for piece in pieces if piece.startswith("\u2581") and len(piece) > 3][:2]
    entries = [Entry(("cat",), (words[0],)), Entry(("dog",), (words[1],))]
    glossary = make_glossary(entries, tokenizers.target, "terms")
    texts = ["the cat sees a dog", "a dog sees the garden", "the garden ."]
    plain = best_hypotheses(translator, texts)
    with_terms = best_hypotheses(replace(translator, glossary=glossary), texts)
    assert words[0] in with_terms[0].text.split() and words[1] in with_terms[0].text.split()
    assert words[1] in with_terms[1].text.split()
    assert with_terms[2].text == plain[2].text
    assert np.isfinite(with_terms[0].score)
