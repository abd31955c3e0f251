"""Shortlists: which tokens they have, searches among them, and lexicons out of attention."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transformer.config import DecodeConfig
from transformer.decoding import lexicon as lexicons
from transformer.decoding.batches import SearchBatch, SearchInput, pad_terms
from transformer.decoding.lexicon import LEAST, coverage, make_lexicon, same_pieces
from transformer.decoding.shortlist import (
    FILE,
    Lexicon,
    load_lexicon,
    save_lexicon,
    shortlist,
    with_shortlist,
)
from transformer.decoding.translator import (
    best_hypotheses,
    hypotheses,
    make_joint_translator,
    make_translator,
)
from transformer.errors import UserError
from transformer.model.batch import EOS, PAD

V = 23
"""Tokens of the small model."""


@given(
    st.integers(20, 60).flatmap(
        lambda size: st.tuples(
            st.lists(
                st.lists(st.integers(3, size - 1), max_size=4, unique=True), min_size=9, max_size=9
            ),
            st.permutations(range(2, size)),
            st.lists(st.integers(3, size - 1), max_size=3),
            st.integers(8, 16),
            st.lists(st.integers(0, 8), min_size=1, max_size=6),
        )
    )
)
def test_a_shortlist_has_first_what_the_source_makes_likely(drawn):
    rows, frequent, prefix, size, source = drawn
    likely = np.array([row + [PAD] * (4 - len(row)) for row in rows], np.int32)
    given = np.array(prefix, np.int32)
    found = shortlist(Lexicon(likely, np.array(frequent)), np.array(source), given, size)
    assert len(found) == size and sorted({*found.tolist()}) == found.tolist()
    # In this order, until it is full.
    wanted = [EOS, *prefix, *frequent[: size // 4]]
    wanted += [likely[s, rank] for rank in range(4) for s in sorted({*source})]
    wanted += frequent
    expected = []
    for token in wanted:
        if token != PAD and token not in expected and len(expected) < size:
            expected.append(token)
    assert sorted(expected) == found.tolist()


def test_a_shortlist_is_as_long_as_its_own_sentence_needs():
    """Whatever else is in the batch."""
    lexicon = Lexicon(np.full((V, 2), 7, np.int32), np.arange(2, 302, dtype=np.int32))
    short, long, padding = [5, EOS], [5] * 39 + [EOS], []
    source = np.array([row + [PAD] * (40 - len(row)) for row in (short, long, padding)], np.int32)
    both = SearchBatch([0, 1], SearchInput(source))
    alone = SearchBatch([0], SearchInput(source[:1, :2]))
    for size, sizes in ((1, [32, 64, 0]), (2, [64, 128, 0]), (3, [96, 150, 0]), (9, [150, 150, 0])):
        settings = replace(DecodeConfig(), shortlist=size)
        table = with_shortlist(lexicon, settings, both).inputs.shortlist
        assert (table != PAD).sum(1).tolist() == sizes and len(table[0]) == max(sizes)
        [own] = with_shortlist(lexicon, settings, alone).inputs.shortlist
        assert own.tolist() == table[0, : sizes[0]].tolist() and 7 in own
        prefix = np.arange(100, 132, dtype=np.int32)[None]
        begun = SearchBatch([0], SearchInput(source[:1, :2], prefix))
        table = with_shortlist(lexicon, settings, begun).inputs.shortlist
        assert size == 1 if table is None else {EOS, *prefix[0].tolist()} <= {*table[0].tolist()}


def test_there_is_no_shortlist_where_terms_are_wanted_or_a_prefix_may_not_fit():
    lexicon = Lexicon(np.full((V, 2), 7, np.int32), np.arange(2, 302, dtype=np.int32))
    source = np.array([[5, EOS, PAD, PAD], [PAD] * 4], np.int32)
    plain, settings = SearchBatch([0], SearchInput(source)), replace(DecodeConfig(), shortlist=1)
    assert with_shortlist(None, settings, plain) is plain
    long = SearchBatch([0], SearchInput(source, np.full((2, 32), 9, np.int32)))
    assert with_shortlist(lexicon, settings, long) is long
    terms = pad_terms([[[[5, 6]]]], 2, np.zeros(302, bool))
    with_terms = SearchBatch([0], SearchInput(source, None, terms))
    assert with_shortlist(lexicon, settings, with_terms) is with_terms


def test_a_lexicon_counts_attention(models, monkeypatch):
    """The attention of a batch, pair by pair, beside a loop over all its tokens."""
    config, params, tokenizers = models["translator"]
    translator = make_translator(config, params, tokenizers)
    pairs = [("the old dog sees", "a cat"), ("the dog", "the old dog sees"), ("a", ""), ("", "a")]
    pairs += [("the dog " * 30, "a cat")]  # too long
    read, attention_to_source = [], lexicons.attention_to_source

    def noted(ensemble, source, target):
        found = attention_to_source(ensemble, source, target)
        read.append((source, target, found))
        return found

    monkeypatch.setattr(lexicons, "attention_to_source", noted)
    monkeypatch.setattr(lexicons, "BLOCK", 2)
    monkeypatch.setattr(lexicons, "FEWEST", 1)
    found = make_lexicon(translator, pairs)
    sums, counts = np.zeros((config.model.source_vocab_size, tokenizers.target.vocab_size)), {}
    for source, target, attention in read:
        for row, position, place in np.ndindex(attention.shape):
            weight = attention[row, position, place]
            s, t = source[row, place], target[row, position]
            if PAD not in (s, t) and weight >= LEAST:
                sums[s, t] += weight
    for text in ("a cat", "the old dog sees"):
        for token in [*tokenizers.target.encode([text])[0], EOS]:
            counts[token] = counts.get(token, 0) + 1
    copies = same_pieces(tokenizers)
    for token, row in enumerate(found.likely.tolist()):
        own = [t for t in row[:1] + row[2:] if t != PAD]
        assert sorted(own) == np.flatnonzero(sums[token]).tolist()
        assert (np.diff(sums[token, own]) <= 1e-9).all()
        assert row[1] == copies[token] == (token if token > EOS else PAD)
    assert found.frequent.tolist() == sorted(counts, key=lambda t: (-counts[t], t))


def test_translations_have_no_other_tokens(models, monkeypatch):
    config, params, tokenizers = models["translator"]
    for lengths in ("LENGTHS", "SEARCH_LENGTHS"):
        monkeypatch.setattr(f"transformer.decoding.batches.{lengths}", (4, 8, 16, 32))
    config = replace(config, decode=replace(config.decode, shortlist=1))
    translator = make_translator(config, params, tokenizers)
    sources, size = ["the old dog", "a cat", "", "a cat sees a cat"], tokenizers.target.vocab_size
    first = best_hypotheses(translator, sources)
    for allowed in ([5, 6, 7], [8, 9, 10]):
        likely = np.array([allowed] * config.model.source_vocab_size, np.int32)
        lexicon = Lexicon(likely, np.arange(EOS, size, dtype=np.int32))
        among = replace(translator, lexicon=lexicon)
        found = best_hypotheses(among, sources)
        for one, text in zip(found, sources):
            [alone] = best_hypotheses(among, [text])
            assert one.tokens == alone.tokens and one.score == pytest.approx(alone.score, rel=1e-4)
        for one, whole in zip(found, first):
            assert {*one.tokens} <= {EOS, *allowed}
            assert one.tokens != whole.tokens or not one.tokens


@pytest.mark.parametrize("count", [1, 2])
def test_all_translations_choose_among_frequent_tokens(models, count):
    """As a model finds them for which the others are impossible, or several."""
    config, params, tokenizers = models["translator"]
    size, sources = tokenizers.target.vocab_size, ["the old dog", "a cat", "", "sees"]
    members = [(config.model, params)] * count
    [begun] = tokenizers.target.encode(["garden"])
    order = np.random.default_rng(0).permutation(np.arange(EOS, size)).tolist()
    frequent = [token for token in order if token not in begun] + begun
    allowed = {EOS, *frequent[: size // 2]}
    lexicon = Lexicon(np.zeros((config.model.source_vocab_size, 1), np.int32), np.array(frequent))
    settings = replace(config.decode, frequent=size // 2)
    translator = make_joint_translator(members, settings, tokenizers)
    among = replace(translator, lexicon=lexicon)
    found = best_hypotheses(among, sources)
    forbidden = tuple(token for token in range(3, size) if token not in allowed)
    settings = replace(config.decode, forbidden=forbidden, renormalise=True)
    expected = best_hypotheses(make_joint_translator(members, settings, tokenizers), sources)
    for one, own in zip(found, expected, strict=True):
        assert one.tokens == own.tokens and {*one.tokens} <= allowed
        assert one.score == pytest.approx(own.score, rel=1e-4)
    # A prefix may have any token.
    prefixes = ["garden"] * len(sources)
    assert [one.text for [one] in hypotheses(among, sources, 1, prefixes)] == [
        one.text for [one] in hypotheses(translator, sources, 1, prefixes)
    ]


def test_coverage_is_the_share_of_translations_with_no_other_token(models):
    config, params, tokenizers = models["translator"]
    translator = make_translator(config, params, tokenizers)
    sources = ["the old dog", "a cat", ""]
    found = [one.tokens for one in best_hypotheses(translator, sources)]
    nothing = np.zeros((config.model.source_vocab_size, 1), np.int32)
    used = {token for tokens in found for token in tokens}
    others = [token for token in range(2, 400) if token not in used]
    few, many = (replace(DecodeConfig(), shortlist=size) for size in (1, 4))
    assert coverage(translator, Lexicon(nothing, np.array(others)), few, sources, found) < 1
    first = Lexicon(nothing, np.array([*used, *others]))
    assert coverage(translator, first, many, sources, found) == 1
    frequent = Lexicon(nothing, np.array([EOS, *used - {EOS}]))
    for count, share in ((1, 1 / 3), (1 + len(used), 1)):  # "" is its own translation
        settings = replace(DecodeConfig(), frequent=count)
        assert coverage(translator, frequent, settings, sources, found) == pytest.approx(share)


def test_a_lexicon_is_read_back_or_refused(tmp_path, models):
    config, _, _ = models["translator"]
    size = config.model.source_vocab_size
    lexicon = Lexicon(np.full((size, 3), 7, np.int32), np.arange(2, size, dtype=np.int32))
    asked = replace(config, decode=replace(config.decode, shortlist=2, forbidden=(5, 7)))
    assert load_lexicon(tmp_path, config) is None
    with pytest.raises(UserError, match=r"decode.shortlist: .* has no shortlist.npz: make it"):
        load_lexicon(tmp_path, asked)
    with (tmp_path / FILE).open("wb") as file:
        save_lexicon(file, lexicon)
    found = load_lexicon(tmp_path, asked)
    assert (found.likely == PAD).all() and not {5, 7} & {*found.frequent.tolist()}
    whole = (tmp_path / FILE).read_bytes()
    for damage in (whole[:40], whole[: len(whole) // 2], b"", b"text"):
        (tmp_path / FILE).write_bytes(damage)
        with pytest.raises(UserError, match=r"cannot be read: delete it"):
            load_lexicon(tmp_path, asked)
    for other in (
        lexicon._replace(likely=lexicon.likely[1:]),
        lexicon._replace(likely=lexicon.likely + size),
        lexicon._replace(frequent=lexicon.frequent * 1.5),
    ):
        with (tmp_path / FILE).open("wb") as file:
            save_lexicon(file, other)
        with pytest.raises(UserError, match="belongs to other vocabularies"):
            load_lexicon(tmp_path, asked)
