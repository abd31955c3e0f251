"""How sentences are laid out for searches."""

from dataclasses import replace
from itertools import groupby

import hypothesis.strategies as st
import jax.numpy as jnp
import numpy as np
from hypothesis import given

from transformer.config import DecodeConfig, ModelConfig
from transformer.decoding.batches import balance, group_by_shape, longest_output, search_batches
from transformer.model.batch import PAD

MODELS = (ModelConfig(source_vocab_size=9, target_vocab_size=9),)
ROWS = st.lists(st.lists(st.integers(4, 8), max_size=70), max_size=60)


def batches_of(sources, prefixes, terms, rows=4):
    settings, continues = DecodeConfig(batch_sentences=rows), np.zeros(9, bool)
    return search_batches(MODELS, settings, sources, prefixes, terms, continues)


def terms_in(table, row):
    """The terms of a row of a table, each a tuple of its forms."""
    if table is None:
        return []
    filled = [
        (number, tuple(form[form != PAD].tolist()))
        for number, form in zip(table.numbers[row], table.forms[row])
        if form.any()
    ]
    return [tuple(form for _, form in own) for _, own in groupby(filled, lambda one: one[0])]


@given(ROWS, st.integers(1, 3), st.randoms())
def test_every_sentence_is_in_one_row_of_one_series(sources, count, random):
    prefixes = [random.choice(([], [4], [5] * 20)) for _ in sources]
    terms = [random.choice(([], [((4, 5),)], [((6,), (7,) * 5), ((8,),)] * 3)) for _ in sources]
    shares = balance(batches_of(sources, prefixes, terms), count)
    assert len(shares) <= count and all(shares)
    seen = []
    for series in (series for share in shares for series in group_by_shape(share)):
        shapes = set()
        for numbers, (source, prefix, table, *_) in series:
            forms = None if table is None else table.forms
            shapes.add((len(source), *(one is not None and one.shape for one in (prefix, forms))))
            for row, number in enumerate(numbers):
                seen.append(number)
                assert source[row][source[row] != PAD][:-1].tolist() == sources[number]
                given = [] if prefix is None else prefix[row][prefix[row] != PAD].tolist()
                assert given == prefixes[number]
                assert terms_in(table, row) == terms[number]
            assert not source[len(numbers) :].any()
        assert len(shapes) == 1 and len({batch.inputs.shape for batch in series}) == 1
    assert sorted(seen) == [number for number, ids in enumerate(sources) if ids]


def test_few_short_sentences_have_one_length():
    def shapes(sources):
        found = batches_of(sources, [[]] * len(sources), [[]] * len(sources))
        return len({batch.inputs.source.shape[1] for batch in found})

    lengths = [1, 5, 9, 20, 30, 40, 50, 62]
    few = [[4] * length for length in lengths] * 2
    assert shapes(few) == 1
    assert shapes([*few, [4]]) > 1  # a batch more
    assert shapes([*few[:-1], [4] * 63]) == 1
    assert shapes([*few[:-1], [4] * 64]) > 1  # with EOS, one token too long
    many = [[4] * length for length in range(1, 50)]
    assert len(batches_of(many, [[]] * 49, [[]] * 49, rows=49)) == 1  # not cut by lengths


def test_shares_are_of_about_as_many_tokens_and_begin_with_the_longest():
    generator = np.random.default_rng(0)
    sources = [[4] * n for n in generator.integers(1, 60, 200)]
    shares = balance(batches_of(sources, [[]] * 200, [[]] * 200), 2)
    tokens = [sum(np.count_nonzero(batch.inputs.source) for batch in share) for share in shares]
    assert abs(tokens[0] - tokens[1]) <= 4 * 61  # a batch
    for share in shares:
        lengths = [len(sources[batch.numbers[0]]) for batch in share]
        assert lengths == sorted(lengths, reverse=True)


def test_the_longest_output_is_the_same_of_a_number_and_of_an_array():
    learned = ModelConfig(source_vocab_size=9, target_vocab_size=9, positions="learned")
    for model, settings, longest in (
        (MODELS[0], DecodeConfig(), [51, 57, 350, 90]),
        (MODELS[0], DecodeConfig(length_ratio=1.5, longest_target=300), [52, 61, 350, 95]),
        (
            MODELS[0],
            DecodeConfig(length_ratio=9, longest_target=10, min_length=69),
            [70, 70, 350, 90],
        ),
        (MODELS[0], DecodeConfig(length_ratio=9, longest_target=90, max_length=55), [55] * 4),
        (replace(learned, max_positions=80), DecodeConfig(), [51, 57, 80, 80]),
    ):
        tokens, given = [1, 7, 300, 30], [0, 5, 2, 40]
        alone = [longest_output([model], settings, *pair) for pair in zip(tokens, given)]
        together = longest_output([model], settings, jnp.array(tokens), jnp.array(given))
        assert alone == together.tolist() == longest
