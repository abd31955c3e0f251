"""A beam search, step by step."""

from typing import NamedTuple

import jax
import numpy as np

from transformer.decoding.batches import SearchInput, pad_batch
from transformer.decoding.continuous import ensure_capacity, search_until_pause
from transformer.decoding.search import IMPOSSIBLE, BeamSearch
from transformer.decoding.translator import Translator, begin_search
from transformer.model.batch import PAD


class PartialHypothesis(NamedTuple):
    """The tokens of an unfinished hypothesis, and their log-probability."""

    tokens: tuple[int, ...]
    log_prob: float


def beam_steps(translator: Translator, sentence: str) -> list[list[PartialHypothesis]]:
    """The unfinished hypotheses after each token, likeliest first, until the search ends."""
    ensemble, settings = translator.ensemble, translator.settings
    source = pad_batch(ensemble.models, settings, translator.tokenizers.source.encode([sentence]))
    state = begin_search(ensemble.models, settings, ensemble.params, SearchInput(source))
    steps = []
    while not np.asarray(state.done)[0]:
        state, _ = search_until_pause(ensemble, BeamSearch(settings, 1), ensure_capacity(state), 1)
        rows, log_probs = jax.device_get((state.open[0], state.log_probs[0]))
        steps.append(
            [
                PartialHypothesis(tuple(int(t) for t in row if t != PAD), float(log_prob))
                for row, log_prob in zip(rows, log_probs)
                if log_prob > IMPOSSIBLE / 2
            ]
        )
    return steps
