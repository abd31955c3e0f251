"""Words in other pieces: how often each way to cut them is drawn, and what is never cut anew."""

import numpy as np
import pytest
from sentences import SENTENCES

from transformer.data.segmentation import make_words
from transformer.data.token_store import flat, offsets
from transformer.data.tokenizer import train_tokenizer
from transformer.model.batch import EOS

DRAWN = 4000


def words_of(tokenizer, sentences, strength):
    ids, lengths = flat(tokenizer.rows(sentences))
    return make_words(tokenizer, ids, offsets(lengths), strength, np.random.default_rng(0))


def drawn_rows(words, seed):
    chosen = words.draw(np.random.default_rng(seed))
    return [
        row.tolist()
        for row in np.split(words.tokens(chosen), np.cumsum(words.lengths(chosen))[:-1])
    ]


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
def test_segmentations_are_drawn_by_their_probabilities_to_the_power_of_alpha(unigram, alpha):
    names = unigram.pieces(range(4, unigram.vocab_size))
    ways = every_way("\u2581mice", names)
    assert 4 <= len(ways) <= 64
    chances = np.exp([alpha * sum(map(unigram.score, way)) for way in ways])
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
    assert len(words.begins) - 1 == len(words.first)  # one segmentation each


def test_with_all_merges_dropped_words_are_letters(bpe):
    words = words_of(bpe, ["the cat"], 1.0)
    [row] = drawn_rows(words, 0)
    assert list(bpe.pieces(row[:-1])) == list("\u2581the\u2581cat")


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


def test_what_is_drawn_depends_on_the_generator_alone(unigram):
    words = words_of(unigram, SENTENCES, 0.2)
    again = words_of(unigram, SENTENCES, 0.2)
    assert drawn_rows(words, 5) == drawn_rows(again, 5) != drawn_rows(words, 6)
