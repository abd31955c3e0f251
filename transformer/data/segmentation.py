"""Subword regularisation and BPE-dropout: other segmentations of words, one word at a time.

A word ends where no piece of the vocabulary can continue: before a space, and between two
characters that are neighbours in no piece, so that Chinese and Thai have words too. A sentence is
sampled word by word, each from a list of segmentations with their probabilities, made once.
(SentencePiece can sample too, but differently in every process, whatever its seed.)
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from jaxtyping import Bool, Float, Int

from transformer.data.progress import Log, quiet, with_progress
from transformer.data.token_store import Sentences, flat, offsets
from transformer.data.tokenizer import BLANK, Tokenizer

BEST = 64
"""Segmentations of a word that subword regularisation samples from (Kudo, 2018: l = 64)."""

SAMPLES = 32
"""Samples of BPE-dropout for each word, from which all epochs sample."""

LONGEST = 16
"""A word of more characters is cut at the end of a piece: time and memory for its segmentations
grow with the square of its length."""

WORDS_AT_ONCE = 4_096
"""Words whose merges are sampled together."""

Segmentation = tuple[int, ...]


@dataclass(frozen=True)
class Words:
    """The sentences of one side as words, and the segmentations of each word.

    words         [O]      the word at each place of the corpus, EOS being one
    begins        [S + 1]  the place where each sentence begins
    first         [W]      the first segmentation of each word: the one that the tokenizer gives it
    edges         [C]      number of the word, plus the probability of its segmentations up to this
    segmentations          the tokens of all segmentations
    """

    words: Int[np.ndarray, "O"]
    begins: Int[np.ndarray, "S+1"]
    first: Int[np.ndarray, "W"]
    edges: Float[np.ndarray, "C"]
    segmentations: Sentences

    def sample(self, generator: np.random.Generator) -> Int[np.ndarray, "O"]:
        """A segmentation for each place."""
        wanted = self.words + generator.random(len(self.words))
        found = np.searchsorted(self.edges, wanted, side="right")
        # The sum of the probabilities may be a little below 1.
        return np.minimum(found, np.append(self.first[1:], len(self.edges))[self.words] - 1)

    def lengths(self, chosen: Int[np.ndarray, "O"]) -> Int[np.ndarray, "S"]:
        """Tokens of each sentence with these segmentations."""
        return np.diff(offsets(self.segmentations.lengths[chosen])[self.begins])

    def sentences(self, chosen: Int[np.ndarray, "O"]) -> Sentences:
        """The sentences with these segmentations."""
        lengths = self.segmentations.lengths[chosen]
        begins = offsets(lengths)
        shift = np.repeat(self.segmentations.offsets[chosen] - begins[:-1], lengths)
        return Sentences(self.segmentations.ids[np.arange(len(shift)) + shift], begins[self.begins])

    def where(
        self, fits: Bool[np.ndarray, "S"], chosen: Int[np.ndarray, "O"]
    ) -> Int[np.ndarray, "O"]:
        """The chosen segmentations in the sentences that fit, and the first ones elsewhere."""
        return np.where(np.repeat(fits, np.diff(self.begins)), chosen, self.first[self.words])


def make_words(
    tokenizer: Tokenizer,
    text: Sentences,
    strength: float,
    generator: np.random.Generator,
    log: Log = quiet,
) -> Words:
    """The words of a corpus as token ids; `strength` is `data.sampling`, and `log` gets the
    progress."""
    segmenter = _Segmenter(tokenizer, strength, generator)
    edges = np.append(np.flatnonzero(segmenter.word_begins(text)), len(text.ids))
    numbers: dict[Segmentation, int] = {}
    ids = text.ids.tolist()
    words = np.array(
        [
            numbers.setdefault(tuple(ids[start:end]), len(numbers))
            for start, end in pairwise(edges.tolist())
        ],
        np.int32,
    )
    found = list(with_progress(segmenter.segmentations(list(numbers)), "words segmented", log))
    probabilities = [np.cumsum([chance for _, chance in of_word]) for of_word in found]
    return Words(
        words,
        begins=np.searchsorted(edges, text.offsets),
        first=offsets(np.array([len(of_word) for of_word in found]))[:-1],
        edges=np.concatenate([number + edge for number, edge in enumerate(probabilities)]),
        segmentations=flat([segmentation for of_word in found for segmentation, _ in of_word]),
    )


class _Segmenter:
    """Finds words and their segmentations. Special tokens, language tags, user-defined symbols and
    characters spelt as bytes are words with one segmentation."""

    def __init__(self, tokenizer: Tokenizer, strength: float, generator: np.random.Generator):
        self.tokenizer, self.strength, self.generator = tokenizer, strength, generator
        names, scores = tokenizer.pieces(range(tokenizer.vocab_size)), tokenizer.scores()
        self.names = [name if name in scores else "" for name in names]
        self.ids = {name: number for number, name in enumerate(self.names) if name}
        self.scores = {name: scores[name] for name in self.ids}
        self.merges = _Merges(self.ids, self.scores) if tokenizer.is_bpe else None

    def word_begins(self, text: Sentences) -> np.ndarray:
        """For each token whether it begins a word."""
        numbers = {c: n for n, c in enumerate(sorted(set("".join(self.names))), start=1)}
        base = len(numbers) + 1
        first, last = (
            np.array([numbers[name[end]] if name else 0 for name in self.names])[text.ids]
            for end in (0, -1)
        )
        neighbours = {
            numbers[a] * base + numbers[b]
            for name in self.names
            for a, b in pairwise(name)
            if b != BLANK
        }
        begins = np.ones(len(text.ids), bool)
        begins[1:] = ~np.isin(last[:-1] * base + first[1:], list(neighbours))
        begins[text.offsets[:-1]] = True  # without tokens it is the next sentence's
        start = offsets(np.array([len(name) for name in self.names])[text.ids])[:-1]
        part = (start - np.maximum.accumulate(np.where(begins, start, 0))) // LONGEST
        begins[1:] |= part[1:] > part[:-1]
        return begins

    def segmentations(
        self, words: Sequence[Segmentation]
    ) -> Iterator[list[tuple[Segmentation, float]]]:
        """The segmentations of each word with their probabilities. The first one is that of the
        tokenizer, in which words are given."""
        for start in range(0, len(words), WORDS_AT_ONCE):
            some = words[start : start + WORDS_AT_ONCE]
            texts = ["".join(self.names[token] for token in word) for word in some]
            chances = self._by_merges(texts) if self.merges else map(self._by_score, texts)
            for word, found in zip(some, chances):
                found = {word: 0.0} | found
                total = sum(found.values())
                yield [(ids, chance / total if total else 1.0) for ids, chance in found.items()]

    def _by_score(self, text: str) -> dict[Segmentation, float]:
        """The likeliest segmentations by a unigram model, with unnormalised probabilities."""
        cut = self.tokenizer.segmentations(text, BEST) if text else []
        cut = [way for way in cut if all(map(self.ids.__contains__, way))]
        if not cut:
            return {}
        log_probs = np.array([sum(map(self.scores.__getitem__, way)) for way in cut])
        chances = np.exp(self.strength * (log_probs - max(log_probs)))
        ways = (tuple(map(self.ids.__getitem__, way)) for way in cut)
        return dict(zip(ways, chances.tolist()))

    def _by_merges(self, texts: Sequence[str]) -> list[Counter[Segmentation]]:
        """The number of samples of BPE-dropout for each segmentation."""
        found: list[Counter[Segmentation]] = [Counter() for _ in texts]
        by_length: dict[int, list[int]] = {}
        for number, text in enumerate(texts):
            if all(character in self.ids for character in text):
                by_length.setdefault(len(text), []).append(number)
        for length, numbers in by_length.items():
            if length > 1:
                letters = [[self.ids[letter] for letter in texts[number]] for number in numbers]
                rows = np.repeat(np.array(letters), SAMPLES, axis=0)
                for which, pieces in self.merges.sample(rows, self.strength, self.generator):
                    for row, way in zip(which.tolist(), pieces.tolist()):
                        found[numbers[row // SAMPLES]][tuple(way)] += 1
        return found


class _Merges:
    """The merges of a BPE vocabulary, and their ranks: a lower rank is merged first."""

    def __init__(self, ids: dict[str, int], scores: dict[str, float]):
        order = sorted(ids, key=lambda name: (-scores[name], ids[name]))
        rank = {name: number for number, name in enumerate(order)}
        self.ids = np.array([ids[name] for name in order])
        self.never = len(order)
        """The rank of two pieces that cannot be merged."""
        self.base = max(ids.values(), default=0) + 1
        ranks = {
            ids[a] * self.base + ids[b]: rank[name]
            for name in order
            for place in range(1, len(name))
            if (a := name[:place]) in ids and (b := name[place:]) in ids
        }
        self.pairs = np.array(sorted(ranks), np.int64)
        self.ranks = np.array([*(ranks[pair] for pair in self.pairs.tolist()), self.never])

    def rank(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """The ranks of the merges of neighbouring pieces."""
        wanted = left.astype(np.int64) * self.base + right
        place = np.searchsorted(self.pairs, wanted)
        known = np.append(self.pairs, -1)[place] == wanted
        return self.ranks[np.where(known, place, len(self.pairs))]

    def sample(
        self, pieces: np.ndarray, dropout: float, generator: np.random.Generator
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """BPE-dropout (Provilkov et al., 2020, algorithm 1) of words of equal length, one per row:
        in each step every possible merge is dropped with a probability, and the first of the
        others is made. Yields the numbers of finished rows, and their pieces."""
        rows = np.arange(len(pieces))
        ranks = self.rank(pieces[:, :-1], pieces[:, 1:])
        while ranks.size:
            kept = np.where(generator.random(ranks.shape) < dropout, self.never, ranks)
            place = kept.argmin(axis=1)
            is_open = kept.min(axis=1) < self.never
            yield rows[~is_open], pieces[~is_open]
            rows, pieces, ranks, place = (a[is_open] for a in (rows, pieces, ranks, place))
            row, width = np.arange(len(rows)), ranks.shape[1]
            pieces[row, place] = self.ids[ranks[row, place]]
            pieces = pieces[np.arange(width + 1) != place[:, None] + 1].reshape(-1, width)
            ranks = ranks[np.arange(width) != place[:, None]].reshape(len(rows), width - 1)
            for side in (place - 1, place):  # the pairs that the new piece is in
                row = np.flatnonzero((side >= 0) & (side < width - 1))
                at = side[row]
                ranks[row, at] = self.rank(pieces[row, at], pieces[row, at + 1])
        yield rows, pieces
