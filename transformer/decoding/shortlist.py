"""Lexical shortlists: a translation chooses among few tokens of the vocabulary, those that its
source makes likely (Jean et al., 2015, https://aclanthology.org/P15-1001).

The output layer of a small model takes most of the time of a step, and a sentence needs few of its
rows. Tokens of other sentences in the batch do not count.
"""

import zipfile
import zlib
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
from jaxtyping import Int

from transformer.config import Config, DecodeConfig, ModelConfig
from transformer.decoding.batches import SearchBatch, search_length
from transformer.errors import UserError
from transformer.model.batch import BOS, EOS, PAD

FILE = "shortlist.npz"
"""In a run folder: its lexicon."""

FREQUENT = 4
"""One in this many tokens of a shortlist is there because it is frequent."""


class Lexicon(NamedTuple):
    """Which target tokens each source token is translated by.

    likely    [V, N]  of each source token, the target tokens that are aligned with it most often,
                      best first, then PAD
    frequent  [C]     all target tokens that occur, the most frequent first
    """

    likely: Int[np.ndarray, "V N"]
    frequent: Int[np.ndarray, "C"]

    @property
    def size(self) -> int:
        """Source tokens that have a target token."""
        return int((self.likely != PAD).any(1).sum())


def save_lexicon(file: IO[bytes], lexicon: Lexicon) -> None:
    """Writes it to a file for `load_lexicon`."""
    np.savez_compressed(file, **lexicon._asdict())


def load_lexicon(run: Path, config: Config) -> Lexicon | None:
    """The lexicon of a run without tokens that are never chosen, None if the search uses none.
    Raises UserError as `read_lexicon`."""
    for setting in ("shortlist", "frequent"):
        if getattr(config.decode, setting):
            return read_lexicon(run, config, f"decode.{setting}")
    return None


def read_lexicon(run: Path, config: Config, setting: str) -> Lexicon:
    """The lexicon of a run without tokens that are never chosen. Raises UserError naming the
    setting that needs it, if it is missing, damaged, or of other vocabularies."""
    path = run / FILE
    remedy = f"make it with: python -m transformer.commands.shortlist {run}"
    try:
        with np.load(path) as file:
            lexicon = Lexicon(**file)
    except FileNotFoundError:
        raise UserError(f"{setting}: {run} has no {FILE}: {remedy}") from None
    except (OSError, ValueError, TypeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise UserError(f"{path} cannot be read: delete it, and {remedy}") from error
    if not _fits(lexicon, config.model):
        raise UserError(f"{path} belongs to other vocabularies: delete it, and {remedy}")
    never = (PAD, BOS, *config.decode.forbidden)
    return Lexicon(
        np.where(np.isin(lexicon.likely, never), PAD, lexicon.likely),
        lexicon.frequent[~np.isin(lexicon.frequent, never)],
    )


def _fits(lexicon: Lexicon, model: ModelConfig) -> bool:
    return (
        lexicon.likely.ndim == 2
        and len(lexicon.likely) == model.source_vocab_size
        and lexicon.frequent.ndim == 1
        and all(array.dtype.kind in "iu" for array in lexicon)
        and all(((array >= 0) & (array < model.target_vocab_size)).all() for array in lexicon)
    )


def with_shortlist(
    lexicon: Lexicon | None, settings: DecodeConfig, batch: SearchBatch
) -> SearchBatch:
    """The batch with a shortlist for each sentence, then PAD up to the longest; without one if a
    prefix may not fit, or where translations must have terms."""
    inputs = batch.inputs
    if lexicon is None or not settings.shortlist or inputs.terms is not None:
        return batch
    size, given = shortlist_size(lexicon, settings, inputs.length), inputs.prefix
    if given is None:
        given = np.full((len(inputs.source), 1), PAD, np.int32)
    if given.shape[1] >= size:
        return batch
    table = np.full((len(inputs.source), size), PAD, np.int32)
    for row in range(len(batch.numbers)):
        source, prefix = (tokens[row][tokens[row] != PAD] for tokens in (inputs.source, given))
        own = min(size, shortlist_size(lexicon, settings, max(len(source), len(prefix) + 1)))
        table[row, :own] = shortlist(lexicon, source, prefix, own)
    return batch._replace(inputs=inputs._replace(shortlist=table))


def frequent_tokens(lexicon: Lexicon, count: int) -> Int[np.ndarray, "C"]:
    """The most frequent tokens, and EOS, in ascending order."""
    return np.union1d(lexicon.frequent[:count], [EOS]).astype(np.int32)


def shortlist_size(lexicon: Lexicon, settings: DecodeConfig, length: int) -> int:
    """The tokens of the shortlist of a sentence of this length: the same for all lengths that are
    padded alike, and at most half of those that can be chosen."""
    return min(settings.shortlist * search_length(length), len(lexicon.frequent) // 2)


def shortlist(
    lexicon: Lexicon, source: Int[np.ndarray, "S"], prefix: Int[np.ndarray, "P"], size: int
) -> Int[np.ndarray, "C"]:
    """The tokens that a translation of `source` may have, `size` in all, in ascending order: EOS,
    those of the prefix, the most frequent ones, and the likeliest translations of each token: first
    the likeliest of all, then the second of all, and so on; where these are too few, more frequent
    ones."""
    likely = lexicon.likely[np.unique(source)].T.ravel()
    frequent = lexicon.frequent[:size]
    wanted = [[EOS], prefix, frequent[: size // FREQUENT], likely[likely != PAD], frequent]
    tokens = np.concatenate(wanted).astype(np.int32)
    place = np.arange(len(tokens))
    first = np.empty(tokens.max() + 1, np.int64)
    first[tokens[::-1]] = place[::-1]  # of equal tokens the first is written last
    return np.sort(tokens[first[tokens] == place][:size])
