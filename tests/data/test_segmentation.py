"""Sampled segmentations of words: how often each is sampled, and which words have only one."""

import itertools
import random
from collections import Counter

import numpy as np
import pytest
from sentences import SENTENCES

from transformer.config import DataConfig
from transformer.data import segmentation as module
from transformer.data.segmentation import make_words
from transformer.data.token_store import flat
from transformer.data.tokenizer import train_tokenizer
from transformer.model.batch import EOS

DRAWN = 4000


def words_of(tokenizer, sentences, strength):
    return make_words(
        tokenizer, flat(tokenizer.rows(sentences)), strength, np.random.default_rng(0)
    )


def drawn_rows(words, seed):
    chosen = words.sample(np.random.default_rng(seed))
    rows = words.sentences(chosen)
    np.testing.assert_array_equal(rows.lengths, words.lengths(chosen))
    return [rows[number] for number in range(len(rows))]


@pytest.fixture(scope="module")
def unigram():
    return train_tokenizer(SENTENCES, "unigram", 44)


@pytest.fixture(scope="module")
def bpe():
    return train_tokenizer(SENTENCES, "bpe", 60)


def every_way(text, pieces):
    """All ways to spell a text."""
    if not text:
        return [()]
    starts = [piece for piece in pieces if text.startswith(piece)]
    return [(piece, *rest) for piece in starts for rest in every_way(text[len(piece) :], pieces)]


@pytest.mark.parametrize("alpha", [0.2, 1.0])
def test_segmentations_are_sampled_by_their_probabilities_to_the_power_of_alpha(unigram, alpha):
    names = unigram.pieces(range(4, unigram.vocab_size))
    ways = every_way("\u2581mice", names)
    assert 4 <= len(ways) <= 64
    chances = np.exp([alpha * sum(map(unigram.scores().get, way)) for way in ways])
    rows = drawn_rows(words_of(unigram, ["mice"] * DRAWN, alpha), 1)
    found = [tuple(unigram.pieces(row[:-1])) for row in rows]
    counts = np.array([found.count(way) for way in ways])
    assert counts.sum() == DRAWN
    expected = DRAWN * chances / chances.sum()
    errors = (counts - expected) / np.sqrt(expected)
    assert (errors**2).sum() < len(ways) + 5 * np.sqrt(2 * len(ways))  # chi-square


def test_without_dropout_merges_are_those_of_sentencepiece(bpe):
    words = words_of(bpe, SENTENCES, 0.0)
    assert drawn_rows(words, 0) == bpe.rows(SENTENCES)
    assert len(words.segmentations) == len(words.first)  # one segmentation each


def test_with_all_merges_dropped_words_are_letters(bpe):
    words = words_of(bpe, ["the cat"], 1.0)
    [row] = drawn_rows(words, 0)
    assert list(bpe.pieces(row[:-1])) == list("\u2581the\u2581cat")


def one_by_one(word, scores, dropout, generator):
    """BPE-dropout as the paper has it."""
    pieces = list(word)
    while True:
        merges = [
            (scores[a + b], -place)
            for place, (a, b) in enumerate(itertools.pairwise(pieces))
            if a + b in scores and generator.random() >= dropout
        ]
        if not merges:
            return tuple(pieces)
        place = -max(merges)[1]
        pieces[place : place + 2] = ["".join(pieces[place : place + 2])]


@pytest.mark.parametrize("dropout", [0.1, 0.5])
@pytest.mark.parametrize("word", ["\u2581the", "\u2581jumped", "\u2581small", "aa"])
def test_merges_are_left_out_as_by_the_papers_algorithm(bpe, word, dropout):
    """A merge that is left out in one step is possible in the next."""
    names = bpe.pieces(range(bpe.vocab_size))
    scores, ids = bpe.scores(), {name: number for number, name in enumerate(names)}
    assert {name: ids[name] for name in scores}.keys() == set(names[4:])
    letters = np.array([[ids[letter] for letter in word]] * DRAWN)
    merges = module._Merges({name: ids[name] for name in scores}, scores)
    found = Counter()
    for rows, pieces in merges.sample(letters, dropout, np.random.default_rng(0)):
        assert len(rows) == len(pieces)
        found.update(tuple(bpe.pieces(row)) for row in pieces.tolist())
    assert found.total() == DRAWN
    generator = random.Random(0)
    expected = Counter(one_by_one(word, scores, dropout, generator) for _ in range(DRAWN))
    differences = [
        (found[way] - expected[way]) ** 2 / (found[way] + expected[way]) for way in found | expected
    ]
    assert sum(differences) < len(differences) + 5 * np.sqrt(2 * len(differences))  # chi-square


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
@pytest.mark.parametrize("letters", ["\u6211\u4eec\u7684\u732b\u559c\u6b22\u9c7c", "ab"])
def test_text_without_blanks_has_words_that_end_where_pieces_do(kind, letters):
    """A sentence of one word took 11 ms a time, and had hardly any other pieces."""
    generator = random.Random(0)
    syllables = [a + b for a in letters for b in letters[::2]]
    text = ["".join(generator.choices(syllables, k=25)) for _ in range(200)]
    tokenizer = train_tokenizer(text, kind, 30)
    words = words_of(tokenizer, text, 0.2)
    names = tokenizer.pieces(range(tokenizer.vocab_size))
    of_words = [
        "".join(names[token] for token in words.segmentations[first])
        for first in words.first.tolist()
    ]
    assert max(map(len, of_words)) < 32
    assert np.diff(words.begins).min() >= 50 // 32
    for row, sentence in zip(drawn_rows(words, 0), text):
        assert tokenizer.decode([row]) == [sentence]
    drawn = [tuple(row) for seed in range(5) for row in drawn_rows(words, seed)[:1]]
    assert len(set(drawn)) > 1


@pytest.mark.parametrize("strength", [0.05, 0.3])
def test_more_dropout_gives_more_and_shorter_pieces(bpe, strength):
    plain = sum(map(len, bpe.rows(SENTENCES)))
    lengths = [sum(map(len, drawn_rows(words_of(bpe, SENTENCES, s), 1))) for s in (strength, 0.6)]
    assert plain < lengths[0] < lengths[1]


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_unknown_characters_bytes_and_ends_stay(kind, bytewise):
    text = ["the \u732b sleeps", "", "\u732b"]
    plain = train_tokenizer(SENTENCES, kind, 44)
    for tokenizer in (plain, bytewise):
        for row, original in zip(
            drawn_rows(words_of(tokenizer, text, 0.2), 3), tokenizer.rows(text)
        ):
            assert tokenizer.decode([row]) == tokenizer.decode([original])
            assert row.count(EOS) == 1 and row[-1] == EOS


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_users_symbols_stay(kind):
    tokenizer = train_tokenizer(SENTENCES, kind, 44, DataConfig(user_symbols=("<2the>",)))
    text = ["<2the> the cat", "my<2the>bird sleeps"] * 20
    symbol = tokenizer.pieces(range(tokenizer.vocab_size)).index("<2the>")
    rows = drawn_rows(words_of(tokenizer, text, 0.5), 0)
    assert all(row.count(symbol) == 1 for row in rows) and tokenizer.decode(rows) == text
    assert len(set(map(tuple, rows))) > 2


def test_samples_depend_on_the_generator_alone(unigram):
    words = words_of(unigram, SENTENCES, 0.2)
    again = words_of(unigram, SENTENCES, 0.2)
    assert drawn_rows(words, 5) == drawn_rows(again, 5) != drawn_rows(words, 6)
