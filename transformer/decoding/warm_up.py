"""Searches compiled before the first request."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from transformer.data.batching import pad_sources
from transformer.decoding.batches import (
    LENGTHS,
    SearchBatch,
    SearchInput,
    last_position,
    longest_output,
    longest_text,
    search_length,
)
from transformer.decoding.continuous import compile_capacity
from transformer.decoding.search import BeamSearch
from transformer.decoding.shortlist import with_shortlist
from transformer.decoding.translator import Translator, begin_search
from transformer.model.batch import UNK
from transformer.model.cached_decoder import FIRST_CAPACITY, initial_capacity


class SearchShape(NamedTuple):
    """A search for `rows` texts, padded to `length` tokens, with caches of `capacity` tokens."""

    rows: int
    length: int
    capacity: int

    @property
    def tokens(self) -> int:
        """Tokens of the text, or of its translation, that needs this shape."""
        return max(self.length, self.capacity)


def search_shapes(translator: Translator, rows: Sequence[int]) -> list[SearchShape]:
    """The shapes of searches for these numbers of texts, shortest first, as far as LENGTHS."""
    models, settings = translator.ensemble.models, translator.settings
    longest, positions = longest_text(models, settings) + 1, last_position(models)  # EOS
    found, known = [], set()
    for length in [length for before, length in pairwise((0, *LENGTHS)) if before < longest]:
        padded = search_length(length)
        most = longest_output(models, settings, padded)
        for count in rows:
            capacities = [initial_capacity(count, padded) or FIRST_CAPACITY]
            # Searches have fewer lengths than texts.
            while padded not in known and capacities[-1] < most:
                capacities.append(2 * capacities[-1])
            found += [SearchShape(count, min(length, positions), one) for one in capacities]
        known.add(padded)
    return sorted(found, key=lambda shape: (shape.tokens, shape))


def compile_search(translator: Translator, shape: SearchShape, wanted: int) -> None:
    """Compiles the programs of a search of this shape for the `wanted` best, without searching."""
    settings = translator.settings
    source = pad_sources([[UNK] * (shape.length - 1)] * shape.rows, shape.rows, shape.length)
    batch = SearchBatch([0], SearchInput(source))
    inputs = with_shortlist(translator.lexicon, settings, batch).inputs
    ensemble = translator.ensemble_for(inputs)
    state = begin_search(ensemble.models, settings, ensemble.params, inputs, ensemble.tokens)
    compile_capacity(ensemble, BeamSearch(settings, wanted), state, shape.capacity)
