"""Derived fields of `decode`, from the training pairs: how long translations become, and whether a
text without letters is its own translation."""

import math
from dataclasses import replace
from itertools import chain

import numpy as np

from transformer.config import Config
from transformer.data.capitals import in_capitals
from transformer.data.languages import base_of
from transformer.data.storage import slices
from transformer.data.token_store import TokenPairs
from transformer.data.tokenizer import has_letters
from transformer.data.vocabularies import Tokenizers
from transformer.model.batch import EOS, UNK

COVERED = 0.999
"""The fraction of the training targets that are within the limit on the output's length; the
longest of a corpus are often not translations."""

TENTHS = 10
"""A ratio of lengths is rounded up to tenths."""

ENOUGH = 10_000
"""Pairs without letters, and pairs, that are examined: the first of the corpus."""

KNOWN = 0.01
"""The least share of training sources in capitals with which a model knows capitals itself."""

CAPITALS = 100
"""Sources that tell whether the vocabulary has capitals."""

OWN_CASE = {"tr", "az", "ka"}
"""Turkish and Azerbaijani have two letters i; Georgian is not written in capitals."""


def with_derived(config: Config, tokenizers: Tokenizers, pairs: TokenPairs) -> Config:
    """The config of a translator with the derived fields of `decode`."""
    ratio, longest = length_limits(config, pairs)
    decode = replace(
        config.decode,
        length_ratio=ratio,
        longest_target=longest,
        copy_without_letters=copies_without_letters(tokenizers, pairs),
        restore_case=restores_case(config, tokenizers, pairs),
    )
    return replace(config, decode=decode)


def copies_without_letters(tokenizers: Tokenizers, pairs: TokenPairs) -> bool:
    """Whether most training sources without a letter, such as numbers, are their own translations;
    True if there are none. Those with unknown tokens do not count."""
    source = tokenizers.source
    pieces = source.pieces(range(source.vocab_size))
    lettered = np.array([has_letters(piece) for piece in pieces])
    lettered[[EOS, *chain(*source.tag_rows)]] = False
    examined = copied = 0
    for part in slices(len(pairs)):
        if examined == ENOUGH:
            break
        some = pairs.source.part(part)
        counts = np.append(0, lettered[some.tokens].cumsum())[some.offsets - some.offsets[0]]
        without = np.diff(counts) == 0
        numbers = np.flatnonzero(without & (some.lengths > 1))[: ENOUGH - examined] + part.start
        texts = [
            tokenizer.decode([rows[number] for number in numbers.tolist()])
            for tokenizer, rows in zip(tokenizers, (pairs.source, pairs.target))
        ]
        examined += len(numbers)
        untagged = [source.split_tag(text)[1] for text in texts[0]]
        copied += sum("".join(a.split()) == "".join(b.split()) for a, b in zip(untagged, texts[1]))
    return 2 * copied >= examined


def restores_case(config: Config, tokenizers: Tokenizers, pairs: TokenPairs) -> bool:
    """Whether lines in capitals are read in the usual case: unless text is lower-cased, one of the
    languages has its own rules of case, or a share of the training sources (of the first ones of
    the corpus) is in capitals."""
    data = config.data
    languages = {base_of(code) for code in (data.source, data.target, *data.targets)}
    if data.lowercase or languages & OWN_CASE:
        return False
    numbers = range(min(len(pairs), ENOUGH))
    texts = tokenizers.source.decode([pairs.source[number] for number in numbers])
    untagged = [tokenizers.source.split_tag(text)[1] for text in texts]
    capitals = tokenizers.source.encode([text.upper() for text in untagged[:CAPITALS]])
    if data.upper_case >= KNOWN and sum(UNK in row for row in capitals) < len(capitals) / 2:
        return False
    return sum(map(in_capitals, untagged)) < KNOWN * max(1, len(texts))


def length_limits(config: Config, pairs: TokenPairs) -> tuple[float, int]:
    """`decode.length_ratio` and `decode.longest_target` with which nearly all training targets are
    within the limit; (1.0, 0) if `decode.max_extra_length` suffices."""
    counts, longest = np.zeros(1, np.int64), 0
    for part in slices(len(pairs)):
        some = pairs.part(part)
        source, target = some.source.lengths.astype(np.int64), some.target.lengths.astype(np.int64)
        usable = (np.maximum(source, target) <= config.data.max_length) & (source > 1)
        source, target = source[usable] - 1, target[usable]  # a source without EOS
        needed = -(-TENTHS * (target - config.decode.max_extra_length) // source)
        found = np.bincount(np.maximum(needed, TENTHS))
        counts = np.pad(counts, (0, max(0, len(found) - len(counts))))
        counts[: len(found)] += found
        longest = max(longest, target.max(initial=0))
    covering = np.searchsorted(counts.cumsum(), math.ceil(COVERED * counts.sum()))
    ratio = max(int(covering), TENTHS) / TENTHS
    return ratio, int(longest) if ratio > 1 else 0
