"""A lexicon out of the attention of a model to the source while it predicts given translations."""

import itertools
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from jaxtyping import Int

from transformer.config import DecodeConfig
from transformer.data.tags import read_source
from transformer.data.vocabularies import Tokenizers
from transformer.decoding.alignment import attention_to_source, parts_with_targets
from transformer.decoding.batches import (
    SearchBatch,
    SearchInput,
    longest_text,
    teacher_forced_batches,
)
from transformer.decoding.shortlist import Lexicon, frequent_tokens, with_shortlist
from transformer.decoding.translator import Translator
from transformer.model.batch import EOS, PAD

LIKELY = 128
"""Target tokens that are kept for each source token."""

BLOCK = 16_384
"""Pairs of texts that are sorted by length together."""

FEWEST = 1_000_000
"""Links that are kept as they come, before equal ones are added up."""

LEAST = 0.02
"""Attention below this counts as none, of which there is too much to store."""


class AlignmentCounts:
    """How much attention each target token has paid to each source token, and how often each target
    token occurs."""

    def __init__(self, tokenizers: Tokenizers):
        self.tokenizers = tokenizers
        self.keys = [np.zeros(0, np.int64)]
        self.sums = [np.zeros(0)]
        self.frequencies = np.zeros(tokenizers.target.vocab_size, np.int64)

    def add(self, keys: np.ndarray, sums: np.ndarray) -> None:
        """Counts more pairs of tokens; a key is source token * vocabulary + target token."""
        self.keys.append(keys)
        self.sums.append(sums)
        if sum(map(len, self.keys[1:])) > max(len(self.keys[0]), FEWEST):
            self._merge()

    def _merge(self) -> None:
        keys, place = np.unique(np.concatenate(self.keys), return_inverse=True)
        self.sums = [np.bincount(place, np.concatenate(self.sums), len(keys))]
        self.keys = [keys]

    def lexicon(self) -> Lexicon:
        """The target tokens of each source token, those with the most attention first, the one of
        the same text second, so that names can be copied."""
        self._merge()
        source_side, target_side = self.tokenizers
        source, target = np.divmod(self.keys[0], target_side.vocab_size)
        order = np.lexsort((-self.sums[0], source))
        source, target = source[order], target[order]
        rank = np.arange(len(source)) - np.searchsorted(source, source)
        likely = np.full((source_side.vocab_size, LIKELY), PAD, np.int32)
        is_kept = rank < LIKELY
        likely[source[is_kept], rank[is_kept]] = target[is_kept]
        likely = np.insert(likely, 1, same_pieces(self.tokenizers), axis=1)
        frequent = np.argsort(-self.frequencies, kind="stable").astype(np.int32)
        return Lexicon(likely, frequent[: np.count_nonzero(self.frequencies)])


def same_pieces(tokenizers: Tokenizers) -> Int[np.ndarray, "V"]:
    """For each source token the target token that is the same piece of text, or PAD."""
    source, target = (side.pieces(range(side.vocab_size)) for side in tokenizers)
    numbers = {piece: number for number, piece in enumerate(target) if number > EOS}
    return np.array([numbers.get(piece, PAD) for piece in source], np.int32)


def make_lexicon(translator: Translator, pairs: Iterable[tuple[str, str]]) -> Lexicon:
    """The lexicon of pairs of texts; those that are too long or have an empty side are left out."""
    counts, pairs = AlignmentCounts(translator.tokenizers), iter(pairs)
    while block := list(itertools.islice(pairs, BLOCK)):
        sources, targets = _encoded(translator, block)
        for row in targets:
            np.add.at(counts.frequencies, row, 1)
        for found in _attention(translator, counts.frequencies.size, sources, targets):
            counts.add(*found)
    return counts.lexicon()


def _encoded(
    translator: Translator, pairs: list[tuple[str, str]]
) -> tuple[list[list[int]], list[list[int]]]:
    source_side, target_side = translator.tokenizers
    sources = source_side.encode(["".join(read_source(source_side, one)) for one, _ in pairs])
    targets = [[*row, EOS] for row in target_side.encode([one for _, one in pairs])]
    longest = longest_text(translator.ensemble.models, translator.settings)
    fits = [
        max(len(a), len(b)) <= longest and min(len(a), len(b) - 1) > 0
        for a, b in zip(sources, targets)
    ]
    return [*itertools.compress(sources, fits)], [*itertools.compress(targets, fits)]


def _attention(
    translator: Translator, vocabulary: int, sources: list[list[int]], targets: list[list[int]]
) -> Iterator[tuple[Int[np.ndarray, "N"], np.ndarray]]:
    """Pairs of tokens, as keys, and the attention between them."""
    models, settings = translator.ensemble.models, translator.settings
    for _, source, target in teacher_forced_batches(models, settings, sources, targets):
        attention = attention_to_source(translator.ensemble, source, target)
        between = (attention >= LEAST) & (target != PAD)[..., None] & (source != PAD)[:, None]
        row, position, place = np.nonzero(between)
        keys = source[row, place].astype(np.int64) * vocabulary + target[row, position]
        yield keys, attention[between]


def coverage(
    translator: Translator,
    lexicon: Lexicon,
    settings: DecodeConfig,
    sentences: Sequence[str],
    found: Sequence[Sequence[int]],
) -> float:
    """The share of translations, given as tokens, that a search with the shortlists of these
    settings could find."""
    parts, targets = parts_with_targets(translator, sentences, found)
    is_missed = np.zeros(len(sentences), bool)
    allowed = frequent_tokens(lexicon, settings.frequent)
    for part, target in zip(parts, targets):
        if settings.shortlist:
            alone = SearchBatch([0], SearchInput(np.array([[*part.source, EOS]])))
            allowed = with_shortlist(lexicon, settings, alone).inputs.shortlist
        is_missed[part.number] |= not np.isin(target, allowed).all()
    return 1 - float(is_missed.mean())
