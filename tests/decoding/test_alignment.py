"""Words that belong together: in a model whose alignment is known, and how pieces become words."""

from dataclasses import replace
from functools import cache

import jax
import numpy as np
import pytest

from transformer.config import Config, DecodeConfig, ModelConfig, OptimizerConfig, TrainConfig
from transformer.data.tokenizer import train_tokenizer
from transformer.data.vocabularies import Tokenizers
from transformer.decoding.alignment import (
    alignments,
    attention_to_source,
    pharaoh,
    word_attention,
    word_links,
    word_numbers,
    word_weights,
)
from transformer.decoding.ensemble import make_ensemble
from transformer.decoding.translator import hypotheses, make_translator
from transformer.model.batch import BOS, EOS, PAD, Batch
from transformer.model.encoder_decoder import decode, encode
from transformer.training.step import init_state

WORDS = ["ant", "bee", "cat", "dog", "eel", "fox", "gnu", "hen", "ibis", "jay", "kiwi", "lynx"]
LONGEST = 7


def reversed_batch(tokenizer, generator, rows=64):
    """Words, each at most once, and as their translation the same words from last to first."""
    source, target, target_in = np.full((3, rows, 2 * LONGEST), PAD, np.int32)
    for row in range(rows):
        words = generator.choice(WORDS, generator.integers(2, LONGEST), replace=False)
        ids, backwards = tokenizer.rows([" ".join(words), " ".join(words[::-1])])
        source[row, : len(ids)], target[row, : len(backwards)] = ids, backwards
        target_in[row, : len(backwards)] = [BOS, *backwards[:-1]]
    return Batch(source, target_in, target)


@pytest.fixture(scope="module")
def config():
    """A model of one layer in each stack whose vocabulary has the words."""
    layers = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 32, "d_ff": 64, "num_heads": 2}
    size = words_alone().vocab_size
    return Config(
        model=ModelConfig(size, size, **layers, dropout=0.0, norm="pre"),
        optimizer=OptimizerConfig(warmup_steps=100),
        train=TrainConfig(label_smoothing=0.0),
        decode=DecodeConfig(beam_size=2),
    )


@cache
def words_alone():
    """The tokenizer of the words."""
    return train_tokenizer([" ".join([*WORDS, "."])] * 2, "word", 40)


@pytest.fixture(scope="module")
def untrained(config, random_params):
    """A translator that writes any words."""
    tokenizers = Tokenizers(words_alone(), words_alone())
    return make_translator(config, random_params(config.model), tokenizers)


@pytest.fixture(scope="module")
def reversing(config, compiled_update):
    """A translator that has learned to turn the order of words around."""
    state, tokenizer = init_state(config, jax.random.key(0)), words_alone()
    step = compiled_update(config)
    generator = np.random.default_rng(0)
    for _ in range(500):
        state, _ = step(state, reversed_batch(tokenizer, generator))
    return make_translator(config, state.params, Tokenizers(tokenizer, tokenizer))


@pytest.mark.slow
def test_the_words_of_a_reversal_are_linked_to_their_places(reversing):
    generator = np.random.default_rng(1)
    sources = [
        " ".join(generator.choice(WORDS, generator.integers(2, LONGEST), replace=False))
        for _ in range(100)
    ]
    found = [one[0] for one in hypotheses(reversing, sources)]
    right = [" ".join(source.split()[::-1]) == one.text for source, one in zip(sources, found)]
    assert np.mean(right) > 0.9, "it has not learned the task"
    links = alignments(reversing, sources, [one.tokens for one in found])
    count = [len(source.split()) for source in sources]
    expected = [[(n - 1 - word, word) for word in range(n)] for n in count]
    hits = [
        link in wanted
        for of_one, wanted, is_right in zip(links, expected, right)
        if is_right
        for link in of_one
    ]
    assert np.mean(hits) > 0.95
    assert all(len(of_one) == n for of_one, n, is_right in zip(links, count, right) if is_right)


@pytest.mark.slow
def test_a_text_in_parts_is_linked_as_its_parts_are(reversing):
    sentences = ["ant bee cat .", "dog eel .", "fox gnu hen ."]
    alone = [one[0] for one in hypotheses(reversing, sentences)]
    apart = alignments(reversing, sentences, [one.tokens for one in alone])
    settings = reversing.settings
    longest = max(map(len, reversing.tokenizers.source.encode(sentences)))
    cut = replace(reversing, settings=replace(settings, max_source_length=longest))
    text = " ".join(sentences)
    [[whole]] = hypotheses(cut, [text])
    assert whole.text == " ".join(one.text for one in alone)
    assert whole.log_prob == pytest.approx(sum(one.log_prob for one in alone), abs=1e-4)
    [links] = alignments(cut, [text], [whole.tokens])
    expected, before = [], [0, 0]
    for sentence, one, of_one in zip(sentences, alone, apart):
        expected += [(s + before[0], t + before[1]) for s, t in of_one]
        before = [before[0] + len(sentence.split()), before[1] + len(one.text.split())]
    assert links == expected


def test_after_a_truncated_sentence_words_are_counted_from_the_whole_text(untrained):
    long, short = "ant bee cat dog eel fox gnu hen .", "bee dog ."
    few = len(untrained.tokenizers.source.encode([short])[0])
    settings = replace(untrained.settings, max_source_length=few)
    cut = replace(untrained, settings=settings)
    with pytest.warns(UserWarning, match="was truncated"):
        [[alone], [whole]] = hypotheses(cut, [short, f"{long} {short}"])
    with pytest.warns(UserWarning, match="was truncated"):
        of_short, of_whole = alignments(
            cut, [short, f"{long} {short}"], [alone.tokens, whole.tokens]
        )
    words, written = len(long.split()), len(whole.text.split()) - len(alone.text.split())
    last = [(s - words, t - written) for s, t in of_whole[-len(of_short) :]]
    assert last == of_short


def test_what_is_copied_is_linked_to_itself(untrained):
    settings = replace(untrained.settings, copy_without_letters=True)
    copying, texts = replace(untrained, settings=settings), ["ant bee .", ". .\nant bee ."]
    tokens = [one.tokens for one, *_ in hypotheses(copying, texts)]
    of_alone, of_whole = alignments(copying, texts, tokens)
    assert of_whole == [(0, 0), (1, 1), *((s + 2, t + 2) for s, t in of_alone)]


def test_a_line_that_fills_all_positions_is_linked_and_followed_by_others(config, random_params):
    model = replace(config.model, positions="learned", max_positions=6, output_bias=True)
    tokenizers = Tokenizers(words_alone(), words_alone())
    config = replace(config, model=model, decode=replace(config.decode, max_extra_length=50))
    params = random_params(model)
    endless = params.embedding.output_bias.at[EOS].set(-100)
    params = params.replace(embedding=params.embedding.replace(output_bias=endless))
    translator = make_translator(config, params, tokenizers)
    [[whole]] = hypotheses(translator, ["ant bee\ncat"])
    first, second = whole.tokens[:7], whole.tokens[7:]
    assert first[-1] == EOS and EOS not in [*first[:-1], *second] and whole.truncated
    [links] = alignments(translator, ["ant bee\ncat"], [whole.tokens])
    assert max(t for _, t in links) == len(whole.text.split()) - 1


def test_pieces_of_a_word_count_together():
    source = ["\u2581the", "\u2581ho", "u", "se"]
    target = ["\u2581das", "\u2581Ha", "us"]
    attention = np.zeros((4, 6))  # a row and two columns more, which do not count
    attention[0, 0] = 1
    attention[1, [0, 1, 2, 3]] = [0.4, 0.25, 0.25, 0.1]
    attention[2, 0] = 0.5
    attention[:, 5] = 9
    assert word_links(attention, source, target) == [(0, 0), (0, 1)]
    attention[2, 3] = 0.7
    assert word_links(attention, source, target) == [(0, 0), (1, 1)]


def test_a_words_row_is_the_mean_over_its_pieces():
    source, target = ["\u2581the", "\u2581ho", "use"], ["\u2581das", "\u2581Ha", "us"]
    attention = np.array([[0.5, 0.25, 0.25], [0.0, 0.5, 0.25], [0.5, 0.0, 0.0]])
    expected = [[0.5, 0.5], [0.25, 0.375]]
    np.testing.assert_array_equal(word_weights(attention, source, target), expected)


def test_words_are_those_of_the_texts_and_what_was_truncated_has_no_weight(untrained):
    settings = replace(untrained.settings, max_source_length=3)
    short = replace(untrained, settings=settings)
    text = "ant bee cat dog eel"
    with pytest.warns(UserWarning, match="was truncated"):
        found = hypotheses(short, [text])[0][0]
    with pytest.warns(UserWarning, match="was truncated"):
        [[part]] = word_attention(short, [text], [found.tokens])
    assert part.source == text.split() and part.target == found.text.split()
    assert part.weights.shape == (len(part.target), 5)
    assert (part.weights[:, 3:] == 0).all() and (part.weights[:, :3] > 0).all()
    assert (part.weights.sum(1) <= 1 + 1e-5).all()


@pytest.mark.parametrize(
    "pieces, words",
    [
        (["\u2581a", "b", "\u2581c"], [0, 0, 1]),
        (["\u2581", "a", "\u2581", "b"], [0, 0, 1, 1]),
        (["\u2581a", "\u2581", "\u2581b"], [0, 1, 1]),
        (["a", "b", "\u2581c"], [0, 0, 1]),
        ([], []),
    ],
)
def test_words_begin_with_blanks(pieces, words):
    assert word_numbers(pieces).tolist() == words


def test_links_are_written_by_source_word_then_target_word():
    assert pharaoh([(2, 0), (0, 1), (0, 0)]) == "0-0 0-1 2-0"
    assert pharaoh([]) == ""


def test_what_is_empty_has_no_links(untrained):
    assert alignments(untrained, ["", "ant"], [[], [EOS]]) == [[], []]


@pytest.mark.parametrize("layers, taken", [(1, [0]), (2, [1]), (4, [1, 2, 3])])
def test_attention_is_that_of_all_layers_but_the_first(
    small_model, random_params, random_batch, layers, taken
):
    model = small_model(decoder_layers=layers)
    params, batch = random_params(model), random_batch()
    memory = encode(model, params, batch.source)
    weights = decode(model, params, memory, batch.target_in)[2].cross
    ensemble = make_ensemble([(model, params)], "float32")
    found = attention_to_source(ensemble, np.asarray(batch.source), np.asarray(batch.target_out))
    expected = np.stack([weights[layer] for layer in taken]).mean((0, 2))
    real = np.asarray(batch.target_out) != PAD
    np.testing.assert_allclose(found[real], expected[real], atol=1e-5)
