"""Data augmentation: some pairs of an epoch are changed as text, and tokenized again."""

import typing
from dataclasses import dataclass
from random import Random

import numpy as np
from jaxtyping import Bool, Int, Integer

from transformer.config import DataConfig
from transformer.config.settings import Perturbation
from transformer.data.buckets import fits
from transformer.data.perturbation import Texts, kept_symbols, perturbed
from transformer.data.token_store import CHUNK, TokenPairs, flat, joined
from transformer.data.vocabularies import Labels, Tokenizers
from transformer.model.batch import UNK

KINDS: tuple[Perturbation, ...] = typing.get_args(Perturbation)


def draw_kinds(data: DataConfig, count: int, seed: tuple[int, ...]) -> Int[np.ndarray, "N"]:
    """How each of `count` pairs is changed: a number in KINDS, or len(KINDS) for not at all."""
    upto = np.cumsum([data.changed.get(kind, 0.0) for kind in KINDS])
    return np.searchsorted(upto, np.random.default_rng(seed).random(count), side="right")


@dataclass(frozen=True)
class Augmentation:
    """A function that changes pairs of an epoch, by the shares of `data`.

    Pairs stay as they are if a change has no effect, makes them too long, or brings unknown tokens,
    and if they have unknown tokens themselves, whose text is lost.
    """

    data: DataConfig
    tokenizers: Tokenizers

    def __call__(
        self,
        pairs: TokenPairs,
        numbers: Integer[np.ndarray, "N"],
        longest_targets: Int[np.ndarray, "S"],
        seed: tuple[int, ...],
    ) -> tuple[TokenPairs, Int[np.ndarray, "N"]]:
        """The pairs, and after them changed ones; and the numbers of the pairs of the epoch, with
        those of changed ones in the places of their originals."""
        kinds = draw_kinds(self.data, len(numbers), seed)
        random, numbers = Random(str(seed)), numbers.astype(np.int64)
        parts, count = [pairs], len(pairs)
        chosen = np.flatnonzero(kinds < len(KINDS))
        for start in range(0, len(chosen), CHUNK):
            places = chosen[start : start + CHUNK]
            part, is_changed = self._changed(pairs, numbers[places], kinds[places], random)
            found = np.flatnonzero(
                is_changed & fits(part.source.lengths, part.target.lengths, longest_targets)
            )
            numbers[places[found]] = count + found
            parts.append(part)
            count += len(part)
        sides = ([getattr(part, side) for part in parts] for side in ("source", "target"))
        return TokenPairs(*map(joined, sides)), numbers

    def _changed(
        self,
        pairs: TokenPairs,
        numbers: Integer[np.ndarray, "C"],
        kinds: Int[np.ndarray, "C"],
        random: Random,
    ) -> tuple[TokenPairs, Bool[np.ndarray, "C"]]:
        """The pairs as changed, and whether they are."""
        source, target = self.tokenizers
        kept = kept_symbols(source.symbols + source.tags)
        following = (numbers + (kinds == KINDS.index("merged"))) % len(pairs)
        before, after = (self._texts(pairs, which.tolist()) for which in (numbers, following))
        texts = [
            own and others and perturbed(KINDS[kind], own, others, random, kept)
            for kind, own, others in zip(kinds.tolist(), before, after)
        ]
        rows = [source.rows([text[0] if text else "" for text in texts])]
        if isinstance(target, Labels):
            rows.append([pairs.target[number] for number in numbers.tolist()])
        else:
            rows.append(target.rows([text[1] if text else "" for text in texts]))
        types = pairs.source.ids.dtype.type, pairs.target.ids.dtype.type
        is_changed = [
            text not in ((), own) and not any(UNK in row for row in encoded)
            for text, own, *encoded in zip(texts, before, *rows)
        ]
        return TokenPairs(*map(flat, rows, types)), np.array(is_changed)

    def _texts(self, pairs: TokenPairs, numbers: list[int]) -> list[Texts]:
        """Source and target of some pairs, of a classifier the source; () with unknown tokens."""
        columns = []
        for tokenizer, side in zip(self.tokenizers, (pairs.source, pairs.target)):
            if not isinstance(tokenizer, Labels):
                rows = [side[number] for number in numbers]
                texts = tokenizer.decode(rows)
                columns.append([None if UNK in row else text for row, text in zip(rows, texts)])
        return [() if None in texts else texts for texts in zip(*columns)]
