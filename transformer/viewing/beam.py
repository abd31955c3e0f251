"""A beam search, step by step."""

from typing import NamedTuple

import jax
import numpy as np

from transformer.decoding.batches import pad_batch
from transformer.decoding.continuous import ensure_capacity, search_until_pause
from transformer.decoding.search import IMPOSSIBLE, BeamSearch
from transformer.decoding.translator import Translator, begin_search
from transformer.model.batch import PAD


class Beginning(NamedTuple):
    """What a search keeps: the tokens chosen so far and their log-probability."""

    tokens: tuple[int, ...]
    log_prob: float


def beam_steps(translator: Translator, sentence: str) -> list[list[Beginning]]:
    """After each token the beginnings that go on, likeliest first, until the translation is known.

    Those that have ended are not among them any more.
    """
    ensemble, settings = translator.ensemble, translator.settings
    [read] = translator.tokenizers.source.encode([sentence])
    source = pad_batch(ensemble.models, settings, [read])
    state = begin_search(ensemble.models, settings, ensemble.params, source)
    steps = []
    while not np.asarray(state.done)[0]:
        state, _ = search_until_pause(ensemble, BeamSearch(settings, 1), ensure_capacity(state), 1)
        rows, log_probs = jax.device_get((state.open[0], state.log_probs[0]))
        steps.append(
            [
                Beginning(tuple(int(t) for t in row if t != PAD), float(log_prob))
                for row, log_prob in zip(rows, log_probs)
                if log_prob > IMPOSSIBLE / 2
            ]
        )
    return steps
