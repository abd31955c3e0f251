"""Tokenizers whose ids come from a list."""

import json
from dataclasses import replace

import pytest
from sentences import SENTENCES

from transformer.config import DataConfig
from transformer.data.piece_tokenizer import Pieces, PieceTokenizer, clean_up, vars_of
from transformer.data.tokenizer import train_tokenizer
from transformer.data.vocabularies import Tokenizers, load_tokenizers, save_tokenizers
from transformer.errors import UserError
from transformer.model.batch import BOS, EOS, PAD, UNK

CUTTER = train_tokenizer(SENTENCES, "unigram", 44)
CUT = sorted({piece for row in CUTTER.encode(SENTENCES) for piece in CUTTER.pieces(row)})
NAMES = ("</s>", *CUT[::-1], ">>fra<<", "<unk>", None, "<pad>")
PIECES = Pieces(NAMES, pad=len(NAMES) - 1, start=len(NAMES) - 1, end=0, unknown=len(NAMES) - 3)


@pytest.fixture
def tokenizer():
    return PieceTokenizer(CUTTER.model, vocabulary=PIECES)


def test_special_tokens_have_our_ids_and_every_other_piece_one(tokenizer):
    assert tokenizer.vocab_size == len(NAMES) + 1  # their PAD is our BOS, and ours has no row
    assert PIECES.order[PAD] == -1 and PIECES.order[BOS] == PIECES.pad
    assert (PIECES.order[EOS], PIECES.order[UNK]) == (PIECES.end, PIECES.unknown)
    assert sorted(PIECES.order) == list(range(-1, len(NAMES)))
    begins = replace(PIECES, start=3).order
    assert begins[:2] == (PIECES.pad, 3) and sorted(begins) == list(range(len(NAMES)))


def test_text_is_cut_by_the_model_and_numbered_by_the_list(tokenizer):
    rows = tokenizer.encode(SENTENCES)
    assert [tokenizer.pieces(row) for row in rows] == [
        CUTTER.pieces(r) for r in CUTTER.encode(SENTENCES)
    ]
    assert tokenizer.decode(tokenizer.rows(SENTENCES)) == CUTTER.decode(CUTTER.encode(SENTENCES))
    assert tokenizer.rows([""]) == [[EOS]] and tokenizer.rows([]) == []


def test_what_the_list_lacks_is_unknown_and_is_left_out_of_text(tokenizer):
    (row,) = tokenizer.encode([f"{SENTENCES[0]} \u2603"])
    assert UNK in row and tokenizer.decode([row]) == CUTTER.decode(CUTTER.encode(SENTENCES[:1]))
    assert tokenizer.decode([[PAD, BOS, EOS, UNK], []]) == ["", ""]


def test_a_tag_of_the_list_is_one_token_and_any_other_is_text(tokenizer):
    known, text = tokenizer.encode([f" >>fra<<{SENTENCES[0]}", f">>xyz<<{SENTENCES[0]}"])
    assert tokenizer.pieces(known[:1]) == [">>fra<<"] and tokenizer.tags == (">>fra<<",)
    assert known[1:] == tokenizer.encode(SENTENCES[:1])[0]
    assert len(text) > len(known) and text != known


def test_text_is_cleaned_where_the_list_says_so_and_old_lists_keep_their_digest(tokenizer):
    cleans = PieceTokenizer(CUTTER.model, vocabulary=replace(PIECES, cleans_up=True))
    text = "a . b ? c ! d , e n't it 's ' a ' we 've you 're I 'm"
    assert clean_up(text) == "a. b? c! d, en't it's'a'we've you're I'm"
    rows = tokenizer.encode(["the dog .", "the dog."])
    assert cleans.decode(rows) == ["the dog.", "the dog."] != tokenizer.decode(rows)
    assert cleans.digest != tokenizer.digest
    assert "cleans_up" not in vars_of(PIECES) and vars_of(cleans.vocabulary)["cleans_up"]


def test_pieces_that_text_becomes_are_told_from_special_ones(tokenizer):
    assert set(CUT) <= set(tokenizer.pieces_of_text)
    assert not {"<unk>", "<s>", "</s>", "<pad>"} & set(tokenizer.pieces_of_text)


def test_a_run_keeps_the_list(tokenizer, tmp_path):
    other = PieceTokenizer(CUTTER.model, vocabulary=replace(PIECES, unknown=2))
    for tokenizers in (Tokenizers(tokenizer, tokenizer), Tokenizers(tokenizer, other)):
        save_tokenizers(tokenizers, tmp_path)
        data = DataConfig(vocabulary=tokenizers.identity[2])
        assert load_tokenizers(tmp_path, data) == tokenizers
    save_tokenizers(Tokenizers(CUTTER, CUTTER), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source.model"]


@pytest.mark.parametrize(
    "change",
    [
        {"names": ["a", "a", "b", "c"]}, {"names": [1, 2, 3, 4]}, {"names": 5}, {"pad": 10**6},
        {"end": "0"}, {"end": PIECES.unknown}, {"start": 0}, {"more": 1}, {"unknown": -1},
        {"cleans_up": "yes"},
    ],
)  # fmt: skip
def test_a_damaged_list_is_named(tokenizer, tmp_path, change):
    save_tokenizers(Tokenizers(tokenizer, tokenizer), tmp_path)
    path = tmp_path / "source.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(UserError, match=r"cannot read the vocabulary .*source\.json"):
        load_tokenizers(tmp_path, DataConfig())
    path.write_text("[")
    with pytest.raises(UserError, match=r"source\.json"):
        load_tokenizers(tmp_path, DataConfig())
