"""Token pairs for tests of plans and batches."""

import numpy as np
from hypothesis import strategies as st

from transformer.data.token_store import Sentences, TokenPairs
from transformer.model.batch import EOS

FIRST_TOKEN = 4


def token_pairs(source_lengths, target_lengths) -> TokenPairs:
    """Pairs in which the source of pair i is all i + 4, and its target too; then comes EOS."""

    def side(lengths):
        ends = np.cumsum(np.asarray(lengths, int) + 1)
        numbers = np.repeat(np.arange(len(lengths)) + FIRST_TOKEN, np.asarray(lengths, int) + 1)
        numbers[ends - 1] = EOS
        return Sentences(numbers, np.concatenate([[0], ends]).astype(int))

    return TokenPairs(side(source_lengths), side(target_lengths))


pair_lengths = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=1)
"""Source and target lengths, empty and too long ones among them."""
