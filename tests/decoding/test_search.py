"""Greedy and beam search over small step functions, against all sequences there are."""

import itertools
import math
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.config import DecodeConfig
from transformer.decoding.batches import pad_terms
from transformer.decoding.candidates import (
    best,
    of_log_probs,
    of_logits,
    of_probabilities,
    of_token,
)
from transformer.decoding.search import (
    IMPOSSIBLE,
    BeamSearch,
    SearchState,
    advance,
    advance_greedily,
    farthest,
    finish,
    keep_more,
    normalise,
    search,
    start,
)
from transformer.decoding.terms import count_terms, start_terms
from transformer.model.batch import BOS, EOS, PAD

VOCABULARY = 7
STATES = 97


def random_table(seed, end=0.0):
    """Logits for each state of the step function. `end` is added to those of EOS.

    Those of PAD and BOS are as large as any, though neither may be chosen.
    """
    table = np.random.default_rng(seed).normal(0, 2, (STATES, VOCABULARY))
    table[:, EOS] += end
    return table.astype(np.float32)


def next_state(state, token):
    """Depends on all tokens read so far, so that a beam whose cache is not reordered goes wrong."""
    return (state * 31 + token * 7 + 1) % STATES


def table_step(table, cache, tokens):
    state = next_state(cache["state"], tokens)
    return jnp.asarray(table)[state], {"state": state}


def take_rows(cache, rows):
    return {"state": cache["state"][rows]}


@partial(jax.jit, static_argnums=(0, 3, 5))
def run(config, table, limits, max_length, sentences, wanted):
    """A search whose sentence number n begins in state sentences[n]."""
    cache = {"state": jnp.repeat(sentences, config.beam_size)}
    step = partial(table_step, table)
    state = start(config, cache, limits, max_length)
    return finish(config, advanced(BeamSearch(config, wanted), step, state))


def advanced(method, step, state, position=2**30):
    """The search when its sentences have `position` tokens, or all are finished."""

    def goes_on(state):
        return (farthest(state) < position) & ~state.done.all()

    return search(method, step, take_rows, state, goes_on)


def run_on(config, table, limits, max_length=None, sentences=None, wanted=1):
    sentences = jnp.asarray(range(len(limits)) if sentences is None else sentences)
    return run(config, table, jnp.asarray(limits), max_length or max(limits), sentences, wanted)


def log_prob(table, sentence, tokens):
    """The log-probability of a sequence, one token after the other, in float64."""
    state, last, total = sentence, BOS, 0.0
    for token in tokens:
        state = next_state(state, last)
        logits = table[state].astype(np.float64)
        total += logits[token] - np.log(np.exp(logits).sum())
        last = token
    return total


def penalty(config, length):
    base = (5 + length) / 6 if config.normalisation == "gnmt" else length
    return base**config.alpha


def brute_force(config, table, sentence, limit):
    """All sequences that end, and their scores, best first."""
    others = [token for token in range(VOCABULARY) if token not in (PAD, BOS, EOS)]
    candidates = [
        [*words, EOS]
        for length in range(limit)
        for words in itertools.product(others, repeat=length)
    ]
    scores = [log_prob(table, sentence, c) / penalty(config, len(c)) for c in candidates]
    return [(candidates[i], scores[i]) for i in np.argsort(-np.array(scores))]


def without_pad_and_bos(logits):
    """Values of tokens, last axis, with those two out of the question."""
    return np.where(np.isin(np.arange(logits.shape[-1]), [PAD, BOS]), -np.inf, logits)


def words(row):
    """Tokens without the padding on the right."""
    row = np.asarray(row).tolist()
    while row and row[-1] == PAD:
        row.pop()
    return row


@partial(jax.jit, static_argnums=(0, 4))
def run_among(config, table, shortlist, limits, max_length, prefix):
    """The search whose step function has logits of the tokens of a shortlist alone."""

    def step(cache, tokens):
        logits, cache = table_step(table, cache, tokens)
        rows = jnp.repeat(shortlist, config.beam_size, axis=0)
        return jnp.take_along_axis(logits, rows, 1), cache

    cache = {"state": jnp.repeat(jnp.arange(len(limits)), config.beam_size)}
    state = start(config, cache, limits, max_length, prefix=prefix)
    state = state.replace(shortlist=shortlist)
    return finish(config, advanced(BeamSearch(config), step, state))


@pytest.mark.parametrize("beam, renormalise", [(3, False), (1, True)])
def test_a_search_among_few_tokens_is_that_in_which_the_others_are_impossible(beam, renormalise):
    config = DecodeConfig(beam_size=beam, renormalise=renormalise)
    table = random_table(4, end=-1.0)
    shortlist = jnp.asarray([[EOS, 3, 6], [EOS, 4, 5], [EOS, 3, 4]])
    limits, prefix = jnp.asarray([6, 5, 6]), jnp.asarray([[PAD, PAD], [5, PAD], [4, 3]])
    found = run_among(config, table, shortlist, limits, 6, prefix)
    for row, tokens in enumerate(np.asarray(shortlist)):
        others = ~np.isin(np.arange(VOCABULARY), tokens)
        own = np.where(others, -np.inf, table)
        cache = {"state": jnp.full(beam, row)}
        one = slice(row, row + 1)
        state = start(config, cache, limits[one], 6, prefix=prefix[one])
        state = advanced(BeamSearch(config), partial(table_step, own), state)
        alone = finish(config, state)
        np.testing.assert_array_equal(found.tokens[row], alone.tokens[0])
        np.testing.assert_allclose(found.scores[row], alone.scores[0], rtol=1e-5)
        assert {*found.tokens[row, 0].tolist()} <= {PAD, *tokens.tolist()}


# ---------------------------------------------------------------- exactness

SCORINGS = pytest.mark.parametrize(
    "alpha, normalisation", [(0.0, "gnmt"), (0.6, "gnmt"), (0.6, "length"), (1.0, "length")]
)


@SCORINGS
@pytest.mark.parametrize("stop", ["bound", "full"])
def test_a_wide_enough_beam_finds_what_brute_force_finds(alpha, normalisation, stop):
    config = DecodeConfig(beam_size=340, alpha=alpha, normalisation=normalisation, stop=stop)
    for seed in range(4):
        table, limits = random_table(seed, end=-seed), [4, 2, 3, 1, 4]
        result = run_on(config, table, limits)
        for sentence, limit in enumerate(limits):
            tokens, score = brute_force(config, table, sentence, limit)[0]
            assert words(result.tokens[sentence, 0]) == tokens
            assert float(result.scores[sentence, 0]) == pytest.approx(score, abs=1e-4)


@SCORINGS
def test_as_many_as_are_wanted_are_the_best_that_there_are(alpha, normalisation):
    config = DecodeConfig(beam_size=340, alpha=alpha, normalisation=normalisation)
    table, limits = random_table(2, end=1), [4, 3, 4, 2]
    result = run_on(config, table, limits, wanted=5)
    for sentence, limit in enumerate(limits):
        best = brute_force(config, table, sentence, limit)[:5]
        assert [words(row) for row in result.tokens[sentence, :5]] == [words for words, _ in best]
        np.testing.assert_allclose(result.scores[sentence, :5], [s for _, s in best], atol=1e-4)


def test_behind_those_that_ended_come_the_best_that_reached_the_limit():
    config = DecodeConfig(beam_size=30, alpha=0.0)
    result = run_on(config, random_table(2, end=1), [2], wanted=30)
    others = [token for token in range(VOCABULARY) if token not in (PAD, BOS, EOS)]
    whole = [[*pair] for pair in itertools.product(others, repeat=2)]
    whole.sort(key=lambda tokens: -log_prob(random_table(2, end=1), 0, tokens))
    found = [words(row) for row in result.tokens[0]]
    assert found[:5] == [tokens for tokens, _ in brute_force(config, random_table(2, end=1), 0, 2)]
    assert found[5:21] == whole  # four tokens and EOS: 5 ends and 16 open pairs
    assert (np.asarray(result.scores[0, 21:]) < IMPOSSIBLE / 2).all()


def test_normalisation_changes_what_is_best():
    table, limits = random_table(1, end=-1), [4] * 8
    none, strong = (
        run_on(DecodeConfig(beam_size=340, alpha=alpha), table, limits).tokens for alpha in (0, 3)
    )
    assert (none[:, 0] != strong[:, 0]).any()


@pytest.mark.parametrize("normalisation", ["gnmt", "length"])
def test_scores_are_the_normalised_log_probabilities_of_the_tokens(normalisation):
    config = DecodeConfig(beam_size=4, alpha=0.6, normalisation=normalisation)
    table = random_table(3)
    result = run_on(config, table, [9] * 6)
    seen = 0
    for sentence, beam in itertools.product(range(6), range(4)):
        score = float(result.scores[sentence, beam])
        if score > IMPOSSIBLE / 2:
            tokens = words(result.tokens[sentence, beam])
            expected = log_prob(table, sentence, tokens) / penalty(config, len(tokens))
            assert score == pytest.approx(expected, abs=1e-4)
            assert tokens.index(EOS) == len(tokens) - 1
            seen += 1
    assert seen > 12
    assert (np.diff(result.scores, axis=1) <= 0).all()  # best first


def test_a_wide_beam_never_scores_lower_than_a_narrow_one():
    table, limits = random_table(5, end=-1), [4] * 8
    wide = run_on(DecodeConfig(beam_size=340), table, limits).scores[:, 0]
    for beam in (1, 2, 4, 8):
        narrow = run_on(DecodeConfig(beam_size=beam), table, limits)
        ended = np.asarray([EOS in words(row) for row in narrow.tokens[:, 0]])
        assert (wide[ended] >= narrow.scores[:, 0][ended] - 1e-5).all()


def test_hypotheses_of_a_beam_are_all_different():
    result = run_on(DecodeConfig(beam_size=4, stop="full"), random_table(2), [6] * 4)
    for tokens, scores in zip(result.tokens, result.scores):
        real = [tuple(words(row)) for row, score in zip(tokens, scores) if score > IMPOSSIBLE / 2]
        assert len(set(real)) == len(real) > 1


# ---------------------------------------------------------------- greedy


@partial(jax.jit, static_argnums=(0, 3))
def run_beam_of_one(config, table, limits, max_length, sentences):
    """Beam search with a beam of 1, where `search` would take the shorter way."""

    def move(state):
        return advance(config, partial(table_step, table), state, take_rows)

    state = start(config, {"state": sentences}, limits, max_length)
    return finish(config, jax.lax.while_loop(lambda state: ~state.done.all(), move, state))


def test_a_beam_of_one_is_greedy_search():
    config = DecodeConfig(beam_size=1, alpha=0.0)
    for seed in range(4):
        table, limits = random_table(seed, end=1), jnp.asarray([12] * 8)
        greedy = run_on(config, table, limits.tolist())
        beam = run_beam_of_one(config, table, limits, 12, jnp.arange(8))
        ended = np.asarray([EOS in words(row) for row in greedy.tokens[:, 0]])
        assert ended.any()
        np.testing.assert_array_equal(beam.tokens[ended], greedy.tokens[ended])
        np.testing.assert_allclose(beam.scores[ended], greedy.scores[ended], rtol=1e-5)


def test_greedy_search_takes_the_likeliest_token_each_time():
    table = random_table(0, end=1)
    result = run_on(DecodeConfig(beam_size=1), table, [12] * 8)
    for sentence in range(8):
        state, tokens = sentence, [BOS]
        while tokens[-1] != EOS and len(tokens) <= 12:
            state = next_state(state, tokens[-1])
            tokens.append(int(without_pad_and_bos(table[state]).argmax()))
        assert words(result.tokens[sentence, 0]) == tokens[1:]


# ---------------------------------------------------------------- batches, lengths and limits

BEAMS = pytest.mark.parametrize("beam", [1, 3])


@BEAMS
def test_a_sentence_gets_the_same_result_whatever_is_beside_it(beam):
    config, table, limits = DecodeConfig(beam_size=beam), random_table(4), [9, 3, 6, 1, 9]
    together = run_on(config, table, limits, 9)
    for sentence, limit in enumerate(limits):
        alone = run_on(config, table, [limit], 9, [sentence])
        np.testing.assert_array_equal(together.tokens[sentence], alone.tokens[0])
        np.testing.assert_allclose(together.scores[sentence], alone.scores[0], rtol=1e-6)


@BEAMS
def test_room_for_more_tokens_changes_nothing(beam):
    config, table, limits = DecodeConfig(beam_size=beam), random_table(4), [6, 3]
    tight, roomy = (run_on(config, table, limits, length) for length in (6, 20))
    np.testing.assert_array_equal(roomy.tokens[..., :6], tight.tokens)
    assert (roomy.tokens[..., 6:] == PAD).all()
    np.testing.assert_allclose(roomy.scores, tight.scores, rtol=1e-6)


@BEAMS
def test_a_sentence_that_reaches_its_limit_gets_its_best_open_hypothesis(beam):
    # EOS is out of reach, so every sentence runs into its own limit.
    config, table = DecodeConfig(beam_size=beam), random_table(6, end=-100)
    limits = [2, 7, 4, 0]
    result = run_on(config, table, limits)
    for sentence, limit in enumerate(limits):
        tokens = words(result.tokens[sentence, 0])
        assert len(tokens) == limit and EOS not in tokens
        expected = log_prob(table, sentence, tokens) / penalty(config, max(limit, 1))
        if limit:
            assert float(result.scores[sentence, 0]) == pytest.approx(expected, abs=1e-4)


@BEAMS
def test_an_ended_hypothesis_is_preferred_to_an_open_one(beam):
    config = DecodeConfig(beam_size=beam, alpha=0.0)
    result = run_on(config, random_table(6, end=1), [4] * 8)
    for tokens, scores in zip(result.tokens, result.scores):
        any_ended = any(EOS in words(row) for row in tokens)
        assert (EOS in words(tokens[0])) == any_ended
        assert scores[0] > IMPOSSIBLE / 2


# ---------------------------------------------------------------- stopping


def steps_taken(config, table, limit):
    """How many tokens a search of one sentence chooses before it is done."""
    move = jax.jit(lambda state: advance(config, partial(table_step, table), state, take_rows))
    cache = {"state": jnp.zeros(config.beam_size, jnp.int32)}
    state = start(config, cache, jnp.asarray([limit]), limit)
    while not state.done.all():
        state = move(state)
    return int(state.position[0])


def certain_end():
    """At any time EOS has nine tenths of the probability."""
    table = np.full((STATES, VOCABULARY), -50, np.float32)
    table[:, EOS], table[:, -2:] = math.log(0.9), math.log(0.05)
    return table


def test_bound_stops_as_soon_as_nothing_open_can_still_win():
    assert steps_taken(DecodeConfig(beam_size=2, alpha=0.0), certain_end(), 30) == 1
    # With alpha 1, log 0.1 over a length of 30 could beat log 0.9 over 1, or so the bound says.
    long = DecodeConfig(beam_size=2, alpha=1.0, normalisation="length")
    assert 1 < steps_taken(long, certain_end(), 30) < 30


def test_full_stops_when_as_many_have_ended_as_the_beam_is_wide():
    config = DecodeConfig(beam_size=3, stop="full", alpha=0.0)
    # One ends in the first step; then the best continuation of each of the other two.
    assert steps_taken(config, certain_end(), 30) == 2
    assert steps_taken(config, random_table(0, end=-40), 30) == 30


def test_heuristic_stops_when_nothing_open_would_beat_the_worst_that_ended_if_it_ended_now():
    # EOS nine tenths at any time: the second end comes from the open one, a step later.
    config = DecodeConfig(beam_size=2, stop="heuristic", alpha=0.0)
    assert steps_taken(config, certain_end(), 30) == 2
    # With a length penalty of 1, log 0.05 a token is what the open ones have, at any length.
    assert steps_taken(replace(config, alpha=1.0, normalisation="length"), certain_end(), 30) == 2
    assert steps_taken(config, random_table(0, end=-40), 30) == 30


def all_there_are(config, table, sentence, limit):
    """`brute_force` with what `forbidden`, `renormalise` and `forced_end` change."""
    never = {PAD, BOS, *config.forbidden}
    others = [token for token in range(VOCABULARY) if token not in never | {EOS}]
    found = []
    for length in range(limit):
        for chosen in itertools.product(others, repeat=length):
            state, last, total = sentence, BOS, 0.0
            for number, token in enumerate([*chosen, EOS], start=1):
                state = next_state(state, last)
                logits = table[state].astype(np.float64)
                shares = [t for t in range(VOCABULARY) if t not in never or not config.renormalise]
                if not (config.forced_end and number == limit):
                    total += logits[token] - np.log(np.exp(logits[shares]).sum())
                last = token
            found.append(([*chosen, EOS], total / penalty(config, length + 1)))
    return sorted(found, key=lambda pair: -pair[1])


@pytest.mark.parametrize("forbidden", [(), (4,), (3, 6)])
@pytest.mark.parametrize("renormalise", [False, True])
@pytest.mark.parametrize("forced_end", [False, True])
def test_settings_of_others_change_the_search_as_they_say(forbidden, renormalise, forced_end):
    config = DecodeConfig(
        beam_size=100, alpha=0.7, normalisation="length", stop="full", forbidden=forbidden,
        renormalise=renormalise, forced_end=forced_end,
    )  # fmt: skip
    table, limits = random_table(3, end=-1), [3, 2, 1, 3]
    result = run_on(config, table, limits, wanted=4)
    for sentence, limit in enumerate(limits):
        best = all_there_are(config, table, sentence, limit)[:4]
        found = [words(row) for row in result.tokens[sentence, : len(best)]]
        assert found == [tokens for tokens, _ in best]
        scores = [score for _, score in best]
        np.testing.assert_allclose(result.scores[sentence, : len(best)], scores, atol=1e-4)


def test_greedy_search_chooses_nothing_that_is_forbidden_and_ends_where_it_must():
    table = random_table(3, end=-30)
    config = DecodeConfig(beam_size=1, forbidden=(4, 5), forced_end=True)
    result = run_on(config, table, [6, 4, 5])
    for row, limit in zip(result.tokens[:, 0], (6, 4, 5)):
        found = words(row)
        assert len(found) == limit and found[-1] == EOS and not {4, 5} & set(found)


def test_what_is_found_for_a_finished_sentence_stays_as_it_is():
    config, table = DecodeConfig(beam_size=3, alpha=0.0), random_table(0, end=2)
    move = jax.jit(lambda state: advance(config, partial(table_step, table), state, take_rows))
    cache = {"state": jnp.repeat(jnp.arange(4), 3)}
    state: SearchState = start(config, cache, jnp.asarray([12] * 4), 12)
    before = None
    for _ in range(12):
        state = move(state)
        if before is not None:
            done = np.asarray(before.done)
            np.testing.assert_array_equal(state.ended[done], before.ended[done])
            np.testing.assert_array_equal(state.scores[done], before.scores[done])
            assert state.done[done].all()
        before = state
    assert state.done.all()


# ---------------------------------------------------------------- constraints


def all_sequences(longest):
    """Every sequence of text tokens with EOS behind it."""
    words = [token for token in range(VOCABULARY) if token not in (PAD, BOS, EOS)]
    for length in range(longest):
        yield from ((*chosen, EOS) for chosen in itertools.product(words, repeat=length))


def ngrams(sequence, order):
    return [sequence[start : start + order] for start in range(len(sequence) - order + 1)]


CONSTRAINTS = {
    "no repeated token": ({"no_repeat_ngram": 1}, lambda s: len(set(s)) == len(s)),
    "no repeated bigram": (
        {"no_repeat_ngram": 2}, lambda s: len(set(ngrams(s, 2))) == len(ngrams(s, 2)),
    ),
    "no repeated trigram": (
        {"no_repeat_ngram": 3}, lambda s: len(set(ngrams(s, 3))) == len(ngrams(s, 3)),
    ),
    "at least three tokens": ({"min_length": 3}, lambda s: len(s) > 3),
}  # fmt: skip


@pytest.mark.parametrize("name", CONSTRAINTS)
@pytest.mark.parametrize("seed", [0, 1, 13, 14, 17, 30])  # from 1 on tokens are worth repeating
def test_a_wide_beam_finds_the_best_of_all_sequences_that_are_allowed(name, seed):
    settings, is_allowed = CONSTRAINTS[name]
    longest, table = 5, random_table(seed, end=1.0)
    config = DecodeConfig(beam_size=700, alpha=0.6, **settings)
    result = run_on(config, table, [longest])
    best = max(
        (log_prob(table, 0, s) / penalty(config, len(s)), s)
        for s in all_sequences(longest)
        if is_allowed(s)
    )
    found = tuple(token for token in np.asarray(result.tokens)[0, 0].tolist() if token != PAD)
    assert found == best[1]
    assert float(result.scores[0, 0]) == pytest.approx(best[0], rel=1e-4)


@pytest.mark.parametrize("name", CONSTRAINTS)
@pytest.mark.parametrize("beam", [1, 3])
def test_no_hypothesis_breaks_a_constraint(name, beam):
    settings, is_allowed = CONSTRAINTS[name]
    for seed in range(3):
        result = run_on(DecodeConfig(beam_size=beam, **settings), random_table(seed), [3, 5, 9, 4])
        real = np.asarray(result.scores) > IMPOSSIBLE / 2
        rows = [
            tuple(t for t in row if t != PAD) for row in np.asarray(result.tokens)[real].tolist()
        ]
        assert rows
        assert all(is_allowed(row) for row in rows if row[-1] == EOS)


TERMS = [[(3, 4)], [(5,), (6, 3)]]
"""The forms of two terms."""

CONTINUING = np.arange(VOCABULARY) == 6


def has_terms(sequence, terms=TERMS):
    """Which of the terms a sequence has; behind the first of its forms, no token continues a
    word."""
    text = list(sequence)
    return [
        any(text[n : n + len(form)] == list(form) for form in forms for n in range(len(text)))
        for forms in terms
    ]


def with_table(config, table, limits, terms=TERMS, continuing=CONTINUING):
    """A search whose translations have these terms."""
    state = start(
        config,
        {"state": jnp.repeat(jnp.arange(len(limits)), config.beam_size)},
        jnp.asarray(limits),
        max(limits),
    )
    rows = len(limits)
    demanded = pad_terms([terms] * rows, rows, continuing)
    state = state.replace(terms=start_terms(demanded, config.beam_size))
    method, step = BeamSearch(config), partial(table_step, table)
    return method.finish(search(method, step, take_rows, state, lambda s: ~s.done.all()))


@pytest.mark.parametrize("seed", range(4))
def test_a_wide_beam_finds_the_best_sequence_with_all_terms(seed):
    longest, table = 5, random_table(seed, end=1.0)
    config = DecodeConfig(beam_size=700)
    result = with_table(config, table, [longest], continuing=np.zeros(VOCABULARY, bool))
    best = max(
        (log_prob(table, 0, s) / penalty(config, len(s)), s)
        for s in all_sequences(longest)
        if all(has_terms(s))
    )
    found = tuple(token for token in np.asarray(result.tokens)[0, 0].tolist() if token != PAD)
    assert found == best[1]
    assert float(result.scores[0, 0]) == pytest.approx(best[0], rel=1e-4)


@pytest.mark.parametrize("beam", [2, 3, 5])
def test_every_translation_has_all_terms_and_their_words_end(beam):
    for seed in range(4):
        result = with_table(DecodeConfig(beam_size=beam), random_table(seed), [5, 6, 9, 7])
        is_real = np.asarray(result.scores) > IMPOSSIBLE / 2
        assert is_real[:, 0].all()
        for row in np.asarray(result.tokens)[is_real].tolist():
            text = [token for token in row if token != PAD]
            assert all(has_terms(text))
            places = [n for n in range(len(text)) if text[n - 2 : n] == [3, 4] and n > 1]
            assert text[places[0]] != 6 if places and places[0] < len(text) else True


def test_a_translation_that_has_its_terms_may_end_although_others_are_likelier():
    table = np.zeros((STATES, VOCABULARY), np.float32)
    table[:, EOS], table[:, 5] = 1, -6
    result = with_table(DecodeConfig(beam_size=3, alpha=0.0), table, [6], [[(5,)]])
    assert result.hypotheses(0)[0][0] == [5, EOS]


def test_what_is_forbidden_is_in_no_translation_with_terms():
    for seed in range(3):
        table = random_table(seed)
        table[:, 4] += 5
        result = with_table(DecodeConfig(beam_size=2, forbidden=(4,)), table, [6, 5], [[(5,)]])
        assert result.hypotheses(0) and not (np.asarray(result.tokens) == 4).any()


def test_a_bonus_prefers_translations_with_terms_and_demands_none():
    table = random_table(3, end=1.0)
    plain = with_table(DecodeConfig(beam_size=700, term_bonus=1e-6), table, [5])
    assert (
        plain.tokens[0, 0].tolist()
        == run_on(DecodeConfig(beam_size=700), table, [5]).tokens[0, 0].tolist()
    )
    config = DecodeConfig(beam_size=700, term_bonus=2.0)

    def scored(sequence):
        # Of the second term, either form counts as two tokens, the most that it has.
        bonus = sum(2 for has in has_terms(sequence) if has)
        return log_prob(table, 0, sequence) / penalty(config, len(sequence)) + 2.0 * bonus

    no_words = np.zeros(VOCABULARY, bool)
    result = with_table(config, table, [5], continuing=no_words)
    found = tuple(token for token in np.asarray(result.tokens)[0, 0].tolist() if token != PAD)
    assert found == max(all_sequences(5), key=scored)
    assert count_terms(pad_terms([TERMS], 1, no_words), found) == 2 * sum(has_terms(found))
    assert float(result.scores[0, 0]) == pytest.approx(scored(found), rel=1e-4)


@pytest.mark.parametrize("seed", range(2))
def test_a_term_that_is_wanted_twice_is_there_twice(seed):
    table, twice, no_words = random_table(seed, end=1.0), [TERMS[1]] * 2, np.zeros(VOCABULARY, bool)
    result = with_table(DecodeConfig(beam_size=700), table, [5], twice, no_words)
    found = tuple(token for token in np.asarray(result.tokens)[0, 0].tolist() if token != PAD)

    def count(sequence):
        return sequence.count(5) + sum(pair == (6, 3) for pair in itertools.pairwise(sequence))

    def scored(sequence):
        return log_prob(table, 0, sequence) / penalty(DecodeConfig(), len(sequence))

    assert found == max((s for s in all_sequences(5) if count(s) > 1), key=scored)
    wanted = pad_terms([twice], 1, no_words)
    for text, tokens in (((5, 4, EOS), 2), ((5, 6), 3), ((6, 3, 5, EOS), 4)):
        assert count_terms(wanted, text) == tokens


def test_sentences_without_terms_are_searched_as_always():
    table, config = random_table(5), DecodeConfig(beam_size=3)
    result = with_table(config, table, [6], terms=[])
    assert result.tokens[0, 0].tolist() == run_on(config, table, [6]).tokens[0, 0].tolist()


@pytest.mark.parametrize("penalty_", [0.5, 2.0])
def test_the_repetition_penalty_multiplies_log_probabilities_of_tokens_that_are_there(penalty_):
    table, config = random_table(1), DecodeConfig(beam_size=700, repetition_penalty=penalty_)
    result = run_on(config, table, [4])

    def punished(sequence):
        total, state, last = 0.0, 0, BOS
        for place, token in enumerate(sequence):
            state = next_state(state, last)
            logits = table[state].astype(np.float64)
            own = logits[token] - np.log(np.exp(logits).sum())
            total += own * (penalty_ if token in sequence[:place] else 1)
            last = token
        return total / penalty(config, len(sequence))

    best = max((punished(sequence), sequence) for sequence in all_sequences(4))
    assert float(result.scores[0, 0]) == pytest.approx(best[0], rel=1e-4)


@pytest.mark.parametrize("prefix", [(4,), (5, 5), (6, 3, 4)])
@pytest.mark.parametrize("beam", [1, 700])
@pytest.mark.parametrize("order, padding", [(0, 3), (3, 0)])
def test_sequences_begin_with_the_prefix_and_the_best_of_those_is_found(
    prefix, beam, order, padding
):
    table, longest = random_table(2, end=1.0), 5
    config = DecodeConfig(beam_size=beam, no_repeat_ngram=order)
    width = len(prefix) + padding
    rows = jnp.asarray([[*prefix, *[PAD] * padding], [PAD] * width])
    cache = {"state": jnp.repeat(jnp.asarray([0, 1]), beam)}
    limits = jnp.asarray([longest, longest])
    state = start(config, cache, limits, longest, prefix=rows)
    step = partial(table_step, table)
    result = finish(config, advanced(BeamSearch(config), step, state))
    found = [tuple(t for t in row if t != PAD) for row in np.asarray(result.tokens)[:, 0].tolist()]
    assert found[0][: len(prefix)] == prefix
    [free] = run_on(config, table, [longest], sentences=[1]).tokens[:, 0].tolist()
    assert found[1] == tuple(t for t in free if t != PAD)  # without one as without prefixes
    if beam > 1:
        best = max(
            (log_prob(table, 0, s) / penalty(config, len(s)), s)
            for s in all_sequences(longest)
            if s[: len(prefix)] == prefix
            and (not order or len(set(ngrams(s, order))) == len(ngrams(s, order)))
        )
        assert found[0] == best[1]
        assert float(result.scores[0, 0]) == pytest.approx(best[0], rel=1e-4)


# ---------------------------------------------------------------- parts


@SCORINGS
def test_normalise_divides_by_the_penalty_of_the_length(alpha, normalisation):
    config = DecodeConfig(alpha=alpha, normalisation=normalisation)
    for length in (1, 7, 30):
        score = normalise(config, jnp.float32(-6), jnp.int32(length))
        assert float(score) == pytest.approx(-6 / penalty(config, length), rel=1e-5)


KINDS = {
    "logits": (of_logits, lambda logits: logits),
    "log-probabilities": (of_log_probs, jax.nn.log_softmax),
    "probabilities": (of_probabilities, jax.nn.softmax),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("vocabulary", [5, 50, 256, 300, 1001])
@pytest.mark.parametrize("count", [1, 6])
def test_the_best_continuations_are_the_best_of_all_pairs(kind, vocabulary, count):
    build, values = KINDS[kind]
    totals = jax.random.normal(jax.random.key(0), (2, 3))
    logits = 3 * jax.random.normal(jax.random.key(1), (2, 3, vocabulary))
    every = build(totals, values(logits))
    best_totals, origins, tokens = best(every, count)
    everything = np.asarray(totals[..., None] + jax.nn.log_softmax(logits))
    for row, choice in enumerate(without_pad_and_bos(everything)):
        expected = np.sort(choice.reshape(-1))[::-1][:count]
        np.testing.assert_allclose(best_totals[row], expected, rtol=1e-5)
        np.testing.assert_allclose(choice[origins[row], tokens[row]], expected, rtol=1e-5)
    given = of_token(every, jnp.asarray([2, 4]))
    np.testing.assert_allclose(given, everything[[0, 1], :, [2, 4]], rtol=1e-5)


@pytest.mark.parametrize("vocabulary", [5, 64, 200])
def test_of_equal_continuations_the_first_are_the_best(vocabulary):
    logits = jax.random.randint(jax.random.key(0), (4, 3, vocabulary), 0, 4).astype(jnp.float32)
    _, origins, tokens = best(of_log_probs(jnp.zeros((4, 3)), logits), 7)
    choice = without_pad_and_bos(logits).reshape(4, -1)
    expected = jax.lax.top_k(jnp.asarray(choice), 7)[1]
    np.testing.assert_array_equal(origins * vocabulary + tokens, expected)


def test_the_best_of_large_logits_have_exact_probabilities():
    logits = 1e4 * jax.random.normal(jax.random.key(0), (2, 1, 300))
    totals, _, tokens = best(of_logits(jnp.zeros((2, 1)), logits), 3)
    choice = jnp.asarray(without_pad_and_bos(jax.nn.log_softmax(logits))[:, 0])
    np.testing.assert_array_equal(tokens, jax.lax.top_k(choice, 3)[1])
    np.testing.assert_array_equal(totals, jax.lax.top_k(choice, 3)[0])


@pytest.mark.parametrize("hidden", [{PAD: 2e4}, {BOS: 2e4}, {PAD: 2e4, 70: 2e4, 130: 2e4}])
def test_the_most_certain_token_that_is_hidden_is_not_chosen_and_has_its_share(hidden):
    """Of each hypothesis, so that all that are looked for first could be hidden ones."""
    logits = jnp.full((1, 4, 200), -3e4).at[..., 150].set(-2e4)
    for token, logit in hidden.items():
        logits = logits.at[..., token].set(logit)
    share = math.log(len(hidden))
    totals, origins, tokens = best(of_logits(jnp.zeros((1, 4)), logits), 4, tuple(hidden))
    assert tokens.tolist() == [[150] * 4] and origins.tolist() == [[0, 1, 2, 3]]
    np.testing.assert_allclose(totals, np.full((1, 4), -4e4 - share))


@pytest.mark.parametrize("beam", [1, 2, 340])
def test_no_hypothesis_holds_pad_or_bos(beam):
    for seed in range(4):
        table = random_table(seed, end=-2)
        table[:, [PAD, BOS]] += 5
        result = run_on(DecodeConfig(beam_size=beam), table, [5] * 6)
        found = result.tokens[np.asarray(result.scores) > IMPOSSIBLE / 2]
        assert len(found) >= 6
        for row in found:
            assert not {PAD, BOS} & set(words(row))


def test_a_search_can_pause_anywhere():
    """Until some token, and on to its end."""
    config, length = DecodeConfig(beam_size=3), 6
    step = partial(table_step, random_table(0, end=-4))
    limits = jnp.asarray([2, 6, 4])
    begun = start(config, {"state": jnp.repeat(jnp.arange(3), 3)}, limits, length)
    method = BeamSearch(config)
    whole = finish(config, advanced(method, step, begun))
    for position in range(length):
        paused = advanced(method, step, begun, position)
        np.testing.assert_array_equal(paused.position[~paused.done], position)
        resumed = finish(config, advanced(method, step, paused))
        np.testing.assert_array_equal(resumed.tokens, whole.tokens)


def test_greedy_and_beam_share_one_state():
    config = DecodeConfig(beam_size=1)
    state = start(config, {"state": jnp.arange(2)}, jnp.asarray([3, 3]), 3)
    step = partial(table_step, random_table(0))
    beam = advance(config, step, state, take_rows)
    greedy = advance_greedily(config, step, state)
    assert jax.tree.map(jnp.shape, beam) == jax.tree.map(jnp.shape, greedy)
    assert jax.tree.map(jnp.shape, beam) == jax.tree.map(jnp.shape, state)


@pytest.mark.parametrize(
    "stop", ["bound", *(pytest.param(one, marks=pytest.mark.slow) for one in ("full", "heuristic"))]
)
def test_a_search_that_keeps_more_finds_the_same_and_others_behind_them(stop):
    config, beam = DecodeConfig(beam_size=3, stop=stop), 3
    table = random_table(2)
    step = partial(table_step, table)

    def found(kept):
        cache = {"state": jnp.repeat(jnp.arange(12), beam)}
        state = keep_more(start(config, cache, jnp.full(12, 7), 7), kept)
        return finish(config, advanced(BeamSearch(config, beam), step, state))

    few, more = found(beam), found(2 * beam)
    np.testing.assert_array_equal(few.tokens, more.tokens[:, :beam])
    np.testing.assert_array_equal(few.scores, more.scores[:, :beam])
    real = np.asarray(more.scores) > IMPOSSIBLE / 2
    assert (real.sum(1) > beam).mean() > 0.5
    for sentence, (rows, is_real) in enumerate(zip(np.asarray(more.tokens), real)):
        texts = [tuple(words(row)) for row in rows[is_real]]
        assert len(set(texts)) == len(texts)
        for text, score in zip(texts, np.asarray(more.scores)[sentence]):
            expected = log_prob(table, sentence, text) / penalty(config, len(text))
            assert score == pytest.approx(expected, abs=1e-4)
