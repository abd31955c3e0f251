"""Tokenizers: text survives the way to ids and back, and special ids are always ours."""

import base64
import io
import random
import time
import unicodedata

import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st
from sentences import SENTENCES

from transformer.config import DataConfig
from transformer.data import tokenizer as module
from transformer.data.tokenizer import (
    UNK,
    Tokenizer,
    load_tokenizer,
    save_tokenizer,
    train_tokenizer,
)
from transformer.errors import UserError
from transformer.model.batch import BOS, EOS, PAD

FOREIGN_IDS = {
    "SentencePiece's defaults": {"pad_id": -1, "unk_id": 0, "bos_id": 1, "eos_id": 2},
    "no BOS, as in OPUS-MT": {"pad_id": -1, "unk_id": 1, "bos_id": -1, "eos_id": 0},
    "reversed": {"pad_id": 3, "unk_id": 2, "bos_id": 1, "eos_id": 0},
    "ours": {"pad_id": 0, "unk_id": 3, "bos_id": 1, "eos_id": 2},
}


def foreign_model(**ids) -> bytes:
    """A model trained by somebody else, with special ids of their own."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES),
        model_writer=model,
        vocab_size=40,
        minloglevel=2,
        **ids,
    )
    return model.getvalue()


@pytest.mark.parametrize("kind", ["unigram", "bpe", "word", "char"])
@pytest.mark.parametrize("byte_fallback", [False, True])
def test_every_kind_has_our_special_ids_and_keeps_known_text(kind, byte_fallback):
    tokenizer = train_tokenizer(
        SENTENCES, kind, 300 if byte_fallback else 44, DataConfig(byte_fallback=byte_fallback)
    )
    assert tokenizer.pieces([PAD, BOS, EOS, UNK]) == ["<pad>", "<s>", "</s>", "<unk>"]
    rows = tokenizer.encode(SENTENCES)
    assert all(UNK <= i < tokenizer.vocab_size for row in rows for i in row)
    kept = [(s, d) for s, d, row in zip(SENTENCES, tokenizer.decode(rows), rows) if UNK not in row]
    assert all(sentence == decoded for sentence, decoded in kept)
    assert kept


@given(st.text())
def test_byte_fallback_keeps_any_text(bytewise, text):
    """Up to SentencePiece's own normalisation, which is applied once and for all."""
    (once,) = bytewise.decode(bytewise.encode([text]))
    (twice,) = bytewise.decode(bytewise.encode([once]))
    assert twice == once
    if unicodedata.is_normalized("NFKC", text) and text.isalnum():
        assert once == text


@given(st.lists(st.text(max_size=20)))
def test_sentences_do_not_influence_each_other(bytewise, sentences):
    assert bytewise.encode(sentences) == [bytewise.encode([text])[0] for text in sentences]
    rows = bytewise.encode(sentences)
    assert bytewise.decode(rows) == [bytewise.decode([row])[0] for row in rows]


def test_decoding_drops_padding_beginning_and_end(bytewise):
    (row,) = bytewise.encode(["my bird sleeps."])
    assert bytewise.decode([[BOS, *row, EOS, PAD, PAD], [], [PAD]]) == ["my bird sleeps.", "", ""]


@pytest.mark.parametrize("ids", FOREIGN_IDS.values(), ids=FOREIGN_IDS)
def test_a_foreign_models_ids_become_ours(ids):
    model = foreign_model(**ids)
    theirs = sentencepiece.SentencePieceProcessor(model_proto=model)
    ours = Tokenizer(model)
    rows = ours.encode([*SENTENCES, "日本"])
    assert UNK in rows.pop()
    assert not {PAD, BOS, EOS, UNK} & {i for row in rows for i in row}
    assert ours.decode(rows) == SENTENCES
    pieces = ours.pieces(range(ours.vocab_size))
    assert len(set(pieces)) == len(pieces) == ours.vocab_size
    assert set(pieces[4:]) <= {theirs.id_to_piece(i) for i in range(theirs.vocab_size())}
    added = sum(value < 0 for value in ids.values())
    assert ours.vocab_size == theirs.vocab_size() + added
    for sentence, row in zip(SENTENCES, rows):
        assert ours.pieces(row) == theirs.encode(sentence, out_type=str)


def test_training_is_reproducible():
    models = [train_tokenizer(iter(SENTENCES), "unigram", 44) for _ in range(2)]
    assert models[0] == models[1]
    assert models[0].digest == models[1].digest
    assert models[0].digest != train_tokenizer(SENTENCES, "bpe", 80).digest


def test_a_large_corpus_is_sampled_evenly(monkeypatch):
    assert module._sample(map(str, range(5)), 10) == list("01234")
    sample = [int(i) for i in module._sample(map(str, range(100_000)), 1000)]
    assert len(set(sample)) == 1000
    assert 45_000 < sum(sample) / 1000 < 55_000
    monkeypatch.setattr(module, "MAX_TRAINING_SENTENCES", 20)
    limited = train_tokenizer((s for s in SENTENCES * 100), "char", 80)
    assert limited.decode(limited.encode(SENTENCES[:1])) == SENTENCES[:1]


def test_long_lines_are_learned_from_too():
    """SentencePiece leaves out what is above 4,192 bytes, if it is not told otherwise."""
    book = " ".join(SENTENCES * 8) + " qxz"
    assert len(book) > 5_000
    tokenizer = train_tokenizer([book, "a dog"], "char", 80)
    assert UNK not in tokenizer.encode(["qxz"])[0]
    assert train_tokenizer([book], "unigram", 45).vocab_size == 45


ENDLESS = {
    "base64": (base64.b64encode(random.Random(0).randbytes(30_000)).decode(), 99),
    "dashes": ("-" * 400_000, 40),
    "emoji": ("\U0001f600" * 50_000, 40),
    "combining accents": ("a" + "\u0301" * 50_000, 40),
    "Chinese": ("".join(chr(0x4E00 + i * i % 90) for i in range(50_000)), 110),
}
"""Words without end, and sizes of vocabularies that they fit into."""


@pytest.mark.parametrize("kind", ["unigram", "word"])
@pytest.mark.parametrize("name", ENDLESS)
def test_a_word_may_have_no_end(name, kind):
    """SentencePiece took minutes for some, and failed with others."""
    word, vocab_size = ENDLESS[name]
    begun = time.monotonic()
    tokenizer = train_tokenizer([*SENTENCES * 40, word], kind, vocab_size)
    assert time.monotonic() - begun < 20
    assert tokenizer.decode(tokenizer.encode(SENTENCES[:1])) == SENTENCES[:1]


@pytest.mark.parametrize("kind", ["unigram", "bpe", "char"])
@pytest.mark.parametrize("reserved", ["\u2585", "<s>", "</s>", "<unk>", "<pad>"])
def test_what_sentencepiece_reserves_is_text(reserved, kind):
    """It left out the sentences, or their < and >: the vocabulary of the Penn Treebank, say."""
    sentences = [f"{line} {reserved}{n % 5}{reserved}" for n, line in enumerate(SENTENCES)]
    tokenizer = train_tokenizer(sentences, kind, 50)
    rows = tokenizer.encode(sentences)
    assert tokenizer.decode(rows) == sentences and not any(UNK in row for row in rows)
    only = train_tokenizer(["a", reserved * 20], "char", 50)
    assert only.decode(only.encode([reserved])) == [reserved]


@pytest.mark.parametrize("kind", ["unigram", "bpe", "word", "char"])
@pytest.mark.parametrize("blank", ["\x01", "\ufeff", "\u2585", "\u2581", "\u3000", "\x7f\t"])
def test_nothing_but_characters_that_are_dropped_is_no_text(blank, kind):
    with pytest.raises(UserError, match="no text to train .* that data.normalisation drops"):
        train_tokenizer([blank * 3] * 20, kind, 50)


def test_a_large_alphabet_leaves_out_its_rarest_characters(monkeypatch):
    rare = [*(SENTENCES * 40), "ß"]
    assert UNK not in train_tokenizer(rare, "char", 80).encode(["ß"])[0]
    monkeypatch.setattr(module, "LARGE_ALPHABET", 10)
    assert UNK in train_tokenizer(rare, "char", 80).encode(["ß"])[0]


@pytest.mark.parametrize("rows", ["Chinese", "emoji"])
def test_a_large_alphabet_keeps_what_is_frequent(rows):
    """%, € and § in 40 lines were unknown where rows of rarer characters made up most of a text."""
    first = {"Chinese": 0x4E00, "emoji": 0x1F300}[rows]
    generator = random.Random(0)
    text = [*SENTENCES * 40, *[f"5 % of 3 € in § {n}" for n in range(40)], "\u0416\u0429"]
    for _ in range(5_500):
        text.append("".join(chr(first + generator.randrange(1_050)) for _ in range(50)))
    for coverage, kept, lost in (
        (0, "%€§35z", "\u0429"),
        (1, "\u0429", ""),
        (0.99, "", "§"),
    ):
        options = DataConfig(character_coverage=coverage)
        tokenizer = train_tokenizer(text, "bpe", 1_200, options)
        assert not [character for character in kept if UNK in tokenizer.encode([character])[0]]
        assert not [character for character in lost if UNK not in tokenizer.encode([character])[0]]


@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("kind", ["unigram", "bpe", "word", "char"])
def test_users_symbols_are_never_cut(kind, lowercase):
    symbols = ("<2DE>", "[SEP]", "a,b", "@-@", "½")
    options = DataConfig(lowercase=lowercase, user_symbols=symbols)
    tokenizer = train_tokenizer(SENTENCES, kind, 49, options)
    for symbol in symbols:
        within = "the the" if kind == "word" else f"the{symbol}the"
        text = f"{symbol} the small dog sleeps. {symbol} {within}"
        written = text.lower() if lowercase else text
        [row] = tokenizer.encode([text])
        pieces = [piece.lstrip("\u2581") for piece in tokenizer.pieces(row)]
        assert pieces.count(written.split()[0]) == text.count(symbol)
        assert tokenizer.decode([row]) == [written] and UNK not in row


def test_digits_may_be_split():
    years = [f"{line} in {1900 + n}" for n, line in enumerate(SENTENCES * 3)]
    whole, split = (
        train_tokenizer(years, "bpe", 90, DataConfig(split_digits=digits))
        for digits in (False, True)
    )
    longest = [max(sum(map(str.isdigit, s)) for s in t.pieces(range(90))) for t in (whole, split)]
    assert longest[0] > 1 == longest[1]


@pytest.mark.parametrize(
    ("sentences", "vocab_size", "remedy"),
    [
        (SENTENCES, 10, r"data\.vocab_size \(10\) is too small .* at least \d+$"),
        (["", " "], 100, "no text"),
        ([], 100, "no text"),
    ],
)
@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_a_vocabulary_that_does_not_fit_says_what_does(kind, sentences, vocab_size, remedy):
    with pytest.raises(UserError, match=remedy):
        train_tokenizer(sentences, kind, vocab_size)


@pytest.mark.parametrize("kind", ["unigram", "bpe", "word", "char"])
def test_a_vocabulary_is_smaller_than_asked_for_if_the_text_allows_no_more(kind):
    largest = train_tokenizer(SENTENCES, kind, 5000)
    assert UNK + 1 < largest.vocab_size < 5000
    again = train_tokenizer(SENTENCES, kind, largest.vocab_size)
    assert again.pieces(range(again.vocab_size)) == largest.pieces(range(largest.vocab_size))


@pytest.mark.parametrize("byte_fallback", [False, True])
@pytest.mark.parametrize("kind", ["unigram", "bpe", "word", "char"])
@pytest.mark.parametrize("asked", [1, 3, 4])
def test_a_tiny_vocabulary_is_refused_with_the_smallest_that_works(kind, asked, byte_fallback):
    """It takes special tokens, bytes and, where it must spell everything, characters."""
    options = DataConfig(byte_fallback=byte_fallback)
    with pytest.raises(UserError, match=rf"data\.vocab_size \({asked}\).*at least \d+$") as caught:
        train_tokenizer(SENTENCES, kind, asked, options)
    smallest = int(str(caught.value).split()[-1])
    assert train_tokenizer(SENTENCES, kind, smallest, options).vocab_size == smallest
    with pytest.raises(UserError, match=rf"at least {smallest}$"):
        train_tokenizer(SENTENCES, kind, smallest - 1, options)


def test_saving_and_loading(tmp_path, bytewise):
    save_tokenizer(bytewise, tmp_path / "a.model")
    assert load_tokenizer(tmp_path / "a.model") == bytewise
    with pytest.raises(UserError, match=r"missing\.model: No such file"):
        load_tokenizer(tmp_path / "missing.model")
    (tmp_path / "text.model").write_text("This is not a model.")
    with pytest.raises(UserError, match=r"text\.model.*not a SentencePiece model"):
        load_tokenizer(tmp_path / "text.model")


@given(st.binary(max_size=200))
def test_bytes_that_are_no_model_are_refused(data):
    with pytest.raises(UserError):
        Tokenizer(data)


def test_lower_case_is_applied_to_training_and_to_every_text():
    shouted = [sentence.upper() for sentence in SENTENCES]
    plain, lower = (
        train_tokenizer(shouted, "char", 80, DataConfig(lowercase=lowercase))
        for lowercase in (False, True)
    )
    assert UNK in plain.encode(SENTENCES[:1])[0] and plain.encode(shouted[:1]) != [[]]
    assert lower.encode(shouted) == lower.encode(SENTENCES)
    assert lower.decode(lower.encode(["A CAT"])) == ["a cat"]
    assert lower.digest != Tokenizer(lower.model).digest
    assert Tokenizer(lower.model, lowercase=True) == lower


@pytest.mark.parametrize(
    "normalisation, becomes",
    [("nmt_nfkc", "1 fish!"), ("nfkc", "1 fish!"), ("identity", "１ ﬁsh！")],
)
def test_unicode_normalisation_is_the_vocabularys(normalisation, becomes):
    text = "１ ﬁsh！"
    sentences = [*SENTENCES, text, "1 fish!"]
    tokenizer = train_tokenizer(sentences, "char", 80, DataConfig(normalisation=normalisation))
    assert tokenizer.decode(tokenizer.encode([text])) == [becomes]
    assert Tokenizer(tokenizer.model) == tokenizer  # it travels with the model
