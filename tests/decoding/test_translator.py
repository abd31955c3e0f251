"""Sentences in, sentences out, with a small random model and a real tokenizer."""

import time
from dataclasses import replace
from threading import Event

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.config import Config, DecodeConfig
from transformer.data.tokenizer import train_tokenizer
from transformer.data.vocabularies import Tokenizers
from transformer.decoding.alignment import word_attention
from transformer.decoding.batches import teacher_forced_batches
from transformer.decoding.ensemble import make_ensemble
from transformer.decoding.scoring import score_pairs, token_log_probabilities
from transformer.decoding.search import IMPOSSIBLE, SearchResult
from transformer.decoding.translator import (
    hypotheses,
    make_joint_translator,
    make_translator,
    search_batch,
    split,
    translate,
)
from transformer.errors import UserError
from transformer.model.batch import BOS, EOS, PAD, Batch
from transformer.model.encoder_decoder import predict

SENTENCES = [
    "the cat sleeps",
    "a dog",
    "",
    "we see the house and the garden behind it",
    "birds sing",
    "   ",
    "he goes",
    "she reads a book in the evening",
]


@pytest.fixture(scope="module")
def tokenizers():
    tokenizer = train_tokenizer([s for s in SENTENCES if s.strip()], "char", 40)
    return Tokenizers(tokenizer, tokenizer)


@pytest.fixture
def translator(tokenizers, small_model, random_params):
    """The config and the parameters of a model that has learned nothing, and its translate."""
    vocabulary = tokenizers.source.vocab_size
    model = small_model(
        source_vocab_size=vocabulary, target_vocab_size=vocabulary, output_bias=True
    )
    params = random_params(model)
    # It ends now and then, and would often say PAD and BOS if it could.
    bias = params.embedding.output_bias.at[jnp.asarray([PAD, BOS])].add(1.0).at[EOS].add(0.5)
    params = params.replace(embedding=params.embedding.replace(output_bias=bias))
    config = Config(model=model, decode=DecodeConfig(beam_size=2, max_extra_length=4))

    def run(sentences, params=params, **decode):
        changed = replace(config, decode=replace(config.decode, **decode))
        return translate(make_translator(changed, params, tokenizers), sentences)

    return config, params, run


def endless(params):
    """A model that never ends by itself."""
    bias = params.embedding.output_bias.at[EOS].set(-1e3)
    return params.replace(embedding=params.embedding.replace(output_bias=bias))


def test_every_sentence_gets_its_own_translation_in_order(translator):
    _, _, run = translator
    together = run(SENTENCES)
    assert len(together) == len(SENTENCES)
    assert together == [run([sentence])[0] for sentence in SENTENCES]
    assert len(set(together)) > 4  # else the order would not be tested


def test_blank_lines_stay_blank_and_the_others_do_not(translator):
    _, _, run = translator
    for sentence, translation in zip(SENTENCES, run(SENTENCES)):
        assert sentence.strip() or translation == sentence
    assert run([]) == []
    assert run(["", " "]) == ["", " "]


def test_neither_the_size_of_batches_nor_the_order_of_lines_changes_anything(translator):
    _, _, run = translator
    expected = run(SENTENCES)
    assert run(SENTENCES, batch_sentences=3) == expected
    order = [4, 0, 7, 2, 5, 1, 6, 3]
    assert run([SENTENCES[i] for i in order]) == [expected[i] for i in order]


def test_sentences_that_leave_their_batch_early_change_nothing(translator):
    """The search pauses, goes on with fewer sentences, and its cache grows twice."""
    _, _, run = translator
    sentences = lines_of([1, 2, 3] * 10)
    expected = run(sentences, batch_sentences=1, max_extra_length=30)
    assert run(sentences, batch_sentences=32, max_extra_length=30) == expected
    assert max(map(len, expected)) > 16  # tokens are characters; the cache begins with 16
    assert len(set(map(len, expected))) > 6


WORDS = ["the", "cat", "sleeps", "and", "we", "see", "a", "house", "behind", "garden"]


def lines_of(lengths):
    """Sentences of so many words each."""
    generator = np.random.default_rng(0)
    return [" ".join(generator.choice(WORDS, n)) for n in lengths]


def test_in_a_large_batch_short_sentences_are_not_padded_to_the_longest(translator, monkeypatch):
    """A batch of 32 ends where the padding grows; whoever has less company goes with the longer."""
    batches = []

    def echo(ensemble, settings, asked, wanted):
        sources = [source for source, *_ in asked]
        batches.extend((source.shape[1], int((source != PAD).any(1).sum())) for source in sources)
        return [SearchResult(source[:, None], np.zeros((len(source), 1))) for source in sources]

    monkeypatch.setattr("transformer.decoding.translator.search_series", echo)
    sentences = lines_of([20, *[2] * 100, *[12] * 3, *[5] * 40])
    assert translator[2](sentences, batch_sentences=1000) == sentences
    lengths, counts = zip(*sorted(batches))
    assert lengths[0] == 16 and lengths[-1] >= 96 and len(set(lengths)) == len(lengths) > 2
    assert min(counts[:-1]) >= 32 and sum(counts) == len(sentences)
    batches.clear()
    translator[2](sentences, batch_sentences=32)
    assert sorted(count for _, count in batches) == [16, 32, 32, 32, 32]


def searched(config, params, source):
    ensemble = make_ensemble([(config.model, params)], config.decode.dtype)
    return search_batch(ensemble, config.decode, source)


@pytest.mark.slow
def test_decoding_in_16_bits_is_nearly_the_same_search(translator):
    config, params, _ = translator
    half = replace(config, decode=replace(config.decode, dtype="bfloat16"))
    [ready] = make_ensemble([(half.model, params)], "bfloat16").params
    matrices = [ready.embedding.source, ready.decoder.layers[0].feed_forward.w_1]
    assert {matrix.dtype for matrix in matrices} == {jnp.bfloat16.dtype}
    source = jnp.asarray([[5, 6, 7, 8, EOS], [9, 10, EOS, PAD, PAD]])
    scores = searched(half, params, source).scores[:, 0]
    np.testing.assert_allclose(scores, searched(config, params, source).scores[:, 0], rtol=0.05)


@pytest.mark.slow
def test_a_very_long_sentence_is_neither_dropped_nor_shortened(translator, tokenizers):
    _, params, run = translator
    long = " ".join(["the cat sleeps and the dog reads a book"] * 8)
    tokens = len(tokenizers.source.encode([long])[0])
    assert tokens > 256  # beyond every fixed length
    settings = {"params": endless(params), "beam_size": 1, "max_extra_length": 0}
    short, translation = run(["a dog", long], **settings)
    assert len(translation) >= tokens - 1
    assert short == run(["a dog"], **settings)[0]


def test_learned_positions_end_somewhere_and_there_a_sentence_is_cut_with_a_warning(
    translator, tokenizers, small_model, random_params
):
    model = replace(translator[0].model, positions="learned", max_positions=20)
    params = random_params(model)
    config = replace(translator[0], model=model)
    long = "the cat sleeps and the dog reads a book"
    with pytest.warns(UserWarning, match=r"truncated to 19 \(model\.max_positions\): 'the cat"):
        translations = translate(make_translator(config, params, tokenizers), ["a dog", long, ""])
    assert len(translations) == 3
    assert translations[0] == translate(make_translator(config, params, tokenizers), ["a dog"])[0]


@pytest.mark.slow
def test_a_very_long_line_is_cut_with_a_warning_and_keeps_its_place(translator, tokenizers):
    config, params, _ = translator
    config = replace(config, decode=replace(config.decode, max_source_length=12))
    lines = ["a dog", "the cat sleeps " * 10_000, ""]
    with pytest.warns(
        UserWarning, match=r"150,000 tokens was truncated to 12 \(decode\.max_source"
    ):
        translations = translate(make_translator(config, params, tokenizers), lines)
    run = make_translator(config, params, tokenizers)
    short, cut = (translate(run, [line])[0] for line in ("a dog", lines[1][:11]))
    assert translations == [short, cut + " ", ""]


@pytest.mark.parametrize("beam", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_limits_are_the_source_tokens_and_a_few_more(translator, beam):
    config, params, _ = translator
    config = replace(config, decode=replace(config.decode, beam_size=beam, max_extra_length=3))
    source = jnp.asarray([[5, 6, 7, 8, EOS], [5, EOS, PAD, PAD, PAD], [PAD] * 5])
    tokens = np.asarray(searched(config, endless(params), source).tokens[:, 0])
    assert (tokens != PAD).sum(1).tolist() == [4 + 3, 1 + 3, 0]


def test_scores_are_those_of_the_model_on_the_whole_translation(translator):
    config, params, _ = translator
    config = replace(config, decode=replace(config.decode, beam_size=3))
    source = jnp.asarray([[5, 6, 7, 8, EOS], [9, 10, EOS, PAD, PAD], [11, 12, 13, EOS, PAD]])
    result = searched(config, params, source)
    sources = jnp.repeat(source, 3, axis=0)
    tokens = np.asarray(result.tokens).reshape(9, -1)
    target_in = np.concatenate([np.full((9, 1), BOS), tokens[:, :-1]], 1)
    logits = jax.jit(lambda s, t: predict(config.model, params, Batch(s, t, t)))(
        sources, jnp.asarray(target_in)
    )
    log_probs = np.take_along_axis(np.asarray(jax.nn.log_softmax(logits)), tokens[..., None], 2)
    lengths = (tokens != PAD).sum(1)
    totals = (log_probs[..., 0] * (tokens != PAD)).sum(1)
    expected = totals / ((5 + lengths) / 6) ** config.decode.alpha
    scores = np.asarray(result.scores).reshape(9)
    real = scores > IMPOSSIBLE / 2
    assert real.sum() >= 6
    np.testing.assert_allclose(scores[real], expected[real], atol=1e-4)


def test_hypotheses_are_all_that_the_search_found_best_first(translator, tokenizers):
    config, params, run = translator
    config = replace(config, decode=replace(config.decode, beam_size=4))
    found = hypotheses(make_translator(config, params, tokenizers), SENTENCES, 4)
    best = run(SENTENCES, beam_size=4)
    assert [of_one[0].text for of_one in found] == best
    for sentence, of_one in zip(SENTENCES, found):
        scores = [one.score for one in of_one]
        assert scores == sorted(scores, reverse=True)
        if not sentence.strip():
            assert of_one[0].tokens == () and len(of_one) == 1
            continue
        assert len({one.text for one in of_one}) == len(of_one) > 1
        for one in of_one:
            assert PAD not in one.tokens and BOS not in one.tokens
            assert " ".join(tokenizers.target.decode([one.tokens])[0].splitlines()) == one.text


def test_the_log_probability_of_a_hypothesis_is_that_of_reading_it_at_once(translator, tokenizers):
    config, params, _ = translator
    config = replace(config, decode=replace(config.decode, beam_size=3))
    ready = make_translator(config, params, tokenizers)
    found = hypotheses(ready, SENTENCES, 3)
    pairs = [
        (sentence, one)
        for sentence, of_one in zip(SENTENCES, found)
        for one in of_one
        if one.tokens
    ]
    assert len(pairs) > 12
    parts = [tokenizers.source.encode([sentence])[0] for sentence, _ in pairs]
    targets = [list(one.tokens) for _, one in pairs]
    batches = teacher_forced_batches(ready.ensemble.models, config.decode, parts, targets)
    for numbers, source, target in batches:
        log_probs = token_log_probabilities(ready.ensemble, source, target).sum(1)
        for number, log_prob in zip(numbers, log_probs):
            assert pairs[number][1].log_prob == pytest.approx(float(log_prob), abs=1e-4)


@pytest.mark.parametrize("beam", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_translations_begin_as_they_are_told_to(translator, tokenizers, beam):
    config, params, _ = translator
    config = replace(config, decode=replace(config.decode, beam_size=beam))
    ready = make_translator(config, params, tokenizers)
    free = hypotheses(ready, SENTENCES, beam)
    prefixes = ["the cat", "", "", "in the garden a dog", "b", "", "he", ""]
    told = hypotheses(ready, SENTENCES, beam, prefixes)
    for sentence, prefix, of_one, without in zip(SENTENCES, prefixes, told, free):
        if not (prefix and sentence.strip()):
            assert [one.tokens for one in of_one] == [one.tokens for one in without]
            continue
        [ids] = tokenizers.target.encode([prefix])
        assert all(list(one.tokens[: len(ids)]) == ids for one in of_one)
        assert len({one.tokens for one in of_one}) == len(of_one)


def test_given_translations_are_scored_by_the_chain_rule(translator, tokenizers):
    config, params, _ = translator
    ready = make_translator(config, params, tokenizers)
    targets = ["the dog", "a", "he", "birds", "", "we", "sing", "he"]
    found = score_pairs(ready, SENTENCES, targets)
    model = config.model
    for source, target, one in zip(SENTENCES, targets, found):
        if not source.strip():
            assert one.tokens == () and one.log_prob == -np.inf
            continue
        [read], [given] = tokenizers.source.rows([source]), tokenizers.target.rows([target])
        assert list(one.tokens) == given
        shifted = jnp.asarray([[BOS, *given[:-1]]])
        logits = predict(model, params, Batch(jnp.asarray([read]), shifted, shifted))
        expected = jax.nn.log_softmax(logits)[0, jnp.arange(len(given)), jnp.asarray(given)]
        np.testing.assert_allclose(one.log_probs, expected, atol=1e-4)
        assert one.log_prob == pytest.approx(float(expected.sum()), abs=1e-4)


def test_an_ensemble_gives_the_mean_probability_of_its_models(
    translator, tokenizers, random_params
):
    config, params, _ = translator
    members = [(config.model, params), (config.model, random_params(config.model, seed=5))]
    joint = make_joint_translator(members, config.decode, tokenizers)
    alone = [make_translator(config, member, tokenizers) for _, member in members]
    pair = ["we see the house"], ["the dog sings"]
    [both], [first], [second] = (score_pairs(t, *pair) for t in (joint, *alone))
    mean = np.log((np.exp(first.log_probs) + np.exp(second.log_probs)) / 2)
    np.testing.assert_allclose(both.log_probs, mean, atol=1e-4)


def test_a_pair_that_is_too_long_to_be_scored_is_refused(translator, tokenizers):
    config, params, _ = translator
    config = replace(config, decode=replace(config.decode, max_source_length=10))
    ready = make_translator(config, params, tokenizers)
    with pytest.raises(UserError, match="^the text or its translation has"):
        score_pairs(ready, ["a", "a dog"], ["a", "the garden " * 3])


def test_a_prefix_that_leaves_no_room_is_cut_and_named(translator, tokenizers):
    config, params, _ = translator
    config = replace(config, decode=replace(config.decode, max_length=4))
    ready, prefix = make_translator(config, params, tokenizers), "the garden the garden"
    [ids] = tokenizers.target.encode([prefix])
    with pytest.warns(
        UserWarning, match=r"was truncated to 3 \(decode\.max_length.*'the garden the"
    ):
        [[told]] = hypotheses(ready, ["a dog"], 1, [prefix])
    assert list(told.tokens[:3]) == ids[:3]


def test_a_text_that_is_too_long_is_translated_sentence_by_sentence(translator, tokenizers):
    run = translator[2]
    sentences = ["we see the house. ", "birds sing.  ", "he goes."]
    apart = run(sentences)
    longest = max(map(len, tokenizers.source.encode(sentences)))
    assert run(["".join(sentences), "a dog"], max_source_length=longest) == [
        "".join(apart),
        *run(["a dog"]),
    ]


def test_every_part_of_a_long_text_has_its_target_tag(
    tagged, tokenizers, small_model, random_params
):
    source = tagged(tokenizers.source, ">>deu<<", ">>fra<<")
    size = source.vocab_size
    model = small_model(source_vocab_size=size, target_vocab_size=size)
    sentences = ["we see the house. ", "birds sing. ", "he goes."]
    longest = 1 + max(map(len, source.encode(sentences)))
    decode = DecodeConfig(beam_size=2, max_extra_length=4, max_source_length=longest)
    translator = make_translator(
        Config(model=model, decode=decode), random_params(model), Tokenizers(source, source)
    )
    text = f">>deu<< {''.join(sentences)}"
    parts = split(translator, [text, ">>fra<< he goes.", ">>deu<<", ""])
    [deu], [fra] = source.encode([">>deu<<", ">>fra<<"])
    assert [part.source[:1] for part in parts] == [[deu]] * 3 + [[fra], [], []]
    assert [part.repeated for part in parts] == [0, 1, 1, 0, 0, 0]
    lines = split(translator, [">>deu<< he goes.\n\n he goes.\n>>fra<<he goes.\nhe goes."])
    assert [part.source[:1] for part in lines] == [[deu], [], [deu], [fra], [fra]]
    assert [part.repeated for part in lines] == [0, 0, 1, 0, 1]
    assert [part.line.before for part in lines] == ["", "", " ", "", ""]
    apart = translate(translator, [f">>deu<<{sentence}" for sentence in sentences])
    assert translate(translator, [text, ">>deu<<"]) == ["".join(apart), ""]
    [[found]] = hypotheses(translator, [text])
    [looked] = word_attention(translator, [text], [found.tokens])
    words = [word.strip("\u2047 ") for part in looked for word in part.source]  # "." is unknown
    assert words == text.replace(".", "").split()
    assert score_pairs(translator, [">>deu<<"], ["a"])[0].log_probs == ()
    with pytest.raises(UserError, match=">>xyz<<"):
        score_pairs(translator, [">>xyz<< a"], ["a"])


def test_a_place_in_the_beam_that_nothing_took_is_no_hypothesis(
    translator, tokenizers, monkeypatch
):
    config, params, _ = translator

    def one_of_two(ensemble, settings, asked, wanted):
        [(source, *_)] = asked
        scores = np.tile([-1.0, IMPOSSIBLE], (len(source), 1))
        other = np.where(np.arange(source.shape[1]) < 2, PAD, source)  # has another text
        return [SearchResult(np.stack([source, other], axis=1), scores)]

    monkeypatch.setattr("transformer.decoding.translator.search_series", one_of_two)
    [found] = hypotheses(make_translator(config, params, tokenizers), ["a dog"], 2)
    assert [(one.text, one.score) for one in found] == [("a dog", -1.0)]


def test_greedy_search_equals_argmax_over_whole_prefixes_without_a_cache(translator):
    config, params, _ = translator
    config = replace(config, decode=replace(config.decode, beam_size=1))
    source = jnp.asarray([[5, 6, 7, 8, EOS], [9, 10, EOS, PAD, PAD]])
    result = np.asarray(searched(config, params, source).tokens[:, 0])
    compiled = jax.jit(lambda row: predict(config.model, params, Batch(source, row, row)))
    prefix = np.full((2, 9), PAD, np.int32)
    prefix[:, 0] = BOS
    chosen = np.full((2, 9), PAD, np.int32)
    for position in range(9):
        logits = compiled(jnp.asarray(prefix))[:, position]
        chosen[:, position] = logits.at[:, jnp.asarray([PAD, BOS])].set(-jnp.inf).argmax(-1)
        prefix[:, position + 1 : position + 2] = chosen[:, position : position + 1]
    for row, limit in enumerate([4 + 4, 2 + 4]):
        ends = np.flatnonzero(chosen[row, :limit] == EOS)
        length = ends[0] + 1 if len(ends) else limit
        assert result[row, :length].tolist() == chosen[row, :length].tolist()
        assert (result[row, length:] == PAD).all()


def test_a_least_length_is_kept_whatever_the_source_allows(translator, tokenizers):
    config, params, _ = translator
    settings = replace(config.decode, min_length=20, max_extra_length=1)
    ready = make_translator(replace(config, decode=settings), params, tokenizers)
    for [best] in hypotheses(ready, ["a dog", "he goes"]):
        assert len(best.tokens) > 20 and EOS not in best.tokens[:20]


@pytest.mark.parametrize("longest_fails", [True, False])
def test_when_one_search_fails_the_other_does_not_begin_another_batch(
    translator, tokenizers, monkeypatch, longest_fails
):
    config, params, _ = translator
    config = replace(config, decode=replace(config.decode, batch_sentences=1))
    begun, failed = [], Event()

    def fails_or_goes_on(ensemble, settings, asked, wanted):
        source, *_ = next(asked)
        if ((source != PAD).sum() > 10) == longest_fails:
            failed.set()
            raise ValueError("one of two")
        failed.wait(60)
        for batch in asked:
            begun.append(batch)
            time.sleep(0.1)
        return []

    monkeypatch.setattr("transformer.decoding.translator.search_series", fails_or_goes_on)
    with pytest.raises(ValueError, match="one of two"):
        translate(make_translator(config, params, tokenizers), [SENTENCES[3], *["a dog"] * 99])
    assert len(begun) < 25  # of 50
