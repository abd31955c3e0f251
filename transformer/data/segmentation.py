"""Sentences in other pieces: subword regularisation and BPE-dropout, one word at a time.

Pieces end where words end. So to draw the pieces of a sentence is to draw those of its words, each
from a list of its segmentations with their probabilities, which is made once. (SentencePiece draws
too, but what it draws differs from process to process, whatever its seed.)
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from jaxtyping import Float, Int

from transformer.data.token_store import offsets
from transformer.data.tokenizer import BLANK, Tokenizer
from transformer.model.batch import BOS, EOS, PAD, UNK

BEST = 64
"""Segmentations of a word that subword regularisation draws from (Kudo, 2018: l = 64)."""

DRAWS = 32
"""Segmentations of a word by BPE-dropout, among which all epochs draw."""

Segmentation = tuple[int, ...]


@dataclass(frozen=True)
class Words:
    """The sentences of one side as words, and the segmentations of each word.

    places     [O]      the word at each place of the corpus, EOS being one
    sentences  [S + 1]  the place where each sentence begins
    first      [W]      the first segmentation of each word: the one that the tokenizer gives it
    edges      [C]      number of the word, plus the probability of its segmentations up to this one
    ids, begins         the tokens of all segmentations, and where each begins [C + 1]
    """

    places: Int[np.ndarray, "O"]
    sentences: Int[np.ndarray, "S+1"]
    first: Int[np.ndarray, "W"]
    edges: Float[np.ndarray, "C"]
    ids: Int[np.ndarray, "N"]
    begins: Int[np.ndarray, "C+1"]

    def draw(self, generator: np.random.Generator) -> Int[np.ndarray, "O"]:
        """A segmentation for each place."""
        wanted = self.places + generator.random(len(self.places))
        found = np.searchsorted(self.edges, wanted, side="right")
        # Where a sum of probabilities is a little below 1.
        return np.minimum(found, np.append(self.first[1:], len(self.edges))[self.places] - 1)

    def lengths(self, chosen: Int[np.ndarray, "O"]) -> Int[np.ndarray, "S"]:
        """Tokens of each sentence with these segmentations."""
        upto = offsets(np.diff(self.begins)[chosen])
        return np.diff(upto[self.sentences])

    def tokens(self, chosen: Int[np.ndarray, "O"]) -> Int[np.ndarray, "N"]:
        """The sentences with these segmentations, one after the other."""
        lengths = np.diff(self.begins)[chosen]
        ends = np.cumsum(lengths)
        shift = np.repeat(self.begins[chosen] - (ends - lengths), lengths)
        return self.ids[np.arange(len(shift)) + shift]

    def sentence_of_place(self) -> Int[np.ndarray, "O"]:
        """For each place the number of the sentence that it is in."""
        return np.repeat(np.arange(len(self.sentences) - 1), np.diff(self.sentences))


def make_words(
    tokenizer: Tokenizer,
    ids: np.ndarray,
    sentence_begins: np.ndarray,
    strength: float,
    generator: np.random.Generator,
) -> Words:
    """The words of a corpus as token ids, with EOS; `strength` is `data.sampling`."""
    cutter = _Cutter(tokenizer, strength, generator)
    begins_word = np.array([name.startswith(BLANK) for name in cutter.names])
    begins_word[[PAD, BOS, EOS]] = True
    is_first = begins_word[ids]
    is_first[sentence_begins[:-1]] = True  # with no token it is the next sentence's
    edges = np.append(np.flatnonzero(is_first), len(ids))
    numbers: dict[Segmentation, int] = {}
    flat = ids.tolist()
    places = np.array(
        [
            numbers.setdefault(tuple(flat[start:end]), len(numbers))
            for start, end in zip(edges.tolist(), edges[1:].tolist())
        ],
        np.int32,
    )
    found = [cutter.segmentations(word) for word in numbers]
    probabilities = [np.cumsum([chance for _, chance in of_word]) for of_word in found]
    cut = [segmentation for of_word in found for segmentation, _ in of_word]
    return Words(
        places=places,
        sentences=np.searchsorted(edges, sentence_begins),
        first=offsets(np.array([len(of_word) for of_word in found]))[:-1],
        edges=np.concatenate([number + edge for number, edge in enumerate(probabilities)]),
        ids=np.array([token for segmentation in cut for token in segmentation], np.int32),
        begins=offsets(np.array([len(segmentation) for segmentation in cut])),
    )


class _Cutter:
    """Cuts words into pieces."""

    def __init__(self, tokenizer: Tokenizer, strength: float, generator: np.random.Generator):
        self.tokenizer, self.strength, self.generator = tokenizer, strength, generator
        self.names = tokenizer.pieces(range(tokenizer.vocab_size))
        self.ids = {name: number for number, name in enumerate(self.names) if number > UNK}
        scores = {name: tokenizer.score(name) for name in self.ids}
        self.scores = {name: score for name, score in scores.items() if score is not None}

    def segmentations(self, word: Segmentation) -> list[tuple[Segmentation, float]]:
        """Those of a word, given in the pieces that it has without drawing, which come first; and
        the probability of each. Special tokens, language tags and characters spelt as bytes stay as
        they are."""
        text = "".join(self.names[token] for token in word)
        if min(word) <= UNK or not text.startswith(BLANK) or "<0x" in text:
            return [(word, 1.0)]
        found = {word: 0.0}
        cut = self.tokenizer.segmentations(text.removeprefix(BLANK), BEST)
        if cut is None:
            cut, chances = [self._dropped_out(text) for _ in range(DRAWS)], np.ones(DRAWS)
        else:
            log_probs = [sum(self.scores.get(piece, 0.0) for piece in pieces) for pieces in cut]
            chances = np.exp(self.strength * (np.array(log_probs) - max(log_probs)))
        for pieces, chance in zip(cut, chances.tolist()):
            if "".join(pieces) == text and all(piece in self.ids for piece in pieces):
                ids = tuple(self.ids[piece] for piece in pieces)
                found[ids] = found.get(ids, 0.0) + chance
        total = sum(found.values())
        return [(ids, chance / total if total else 1.0) for ids, chance in found.items()]

    def _dropped_out(self, text: str) -> list[str]:
        """BPE-dropout (Provilkov et al., 2020, algorithm 1): in each step every merge that is
        possible is left out with a probability, and the best of the rest is made."""
        pieces = list(text)
        while len(pieces) > 1:
            kept = self.generator.random(len(pieces) - 1) >= self.strength
            merges = [
                (self.scores[joined], -place)
                for place, pair in enumerate(pairwise(pieces))
                if kept[place] and (joined := "".join(pair)) in self.scores
            ]
            if not merges:
                break
            place = -max(merges)[1]
            pieces[place : place + 2] = ["".join(pieces[place : place + 2])]
        return pieces
