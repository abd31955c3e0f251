"""What a small random encoder says of blanks and of classes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.config import Config, DecodeConfig
from transformer.data.tokenizer import train_tokenizer
from transformer.data.vocabularies import Labels, Tokenizers
from transformer.decoding.fill_mask import classify, fill_mask, with_masks
from transformer.model.batch import BOS, EOS, PAD, UNK, Batch
from transformer.model.encoder_decoder import predict

TEXT = ["the cat sleeps.", "a dog sees the cat.", "we see the house and the garden."] * 4


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(TEXT, "unigram", 26)


@pytest.fixture
def masked_model(tokenizer, small_model, random_params):
    size = tokenizer.vocab_size
    model = small_model(decoder_layers=0, source_vocab_size=size, target_vocab_size=size)
    config = Config(model=model, decode=DecodeConfig(batch_sentences=2))
    return config, random_params(model), Tokenizers(tokenizer, tokenizer)


def test_a_blank_is_one_unknown_token_among_the_others(tokenizer):
    ids, places = with_masks(tokenizer, "the __ sees a ____.")
    assert [ids[place] for place in places] == [UNK, UNK] and ids.count(UNK) == 2
    assert tokenizer.decode([[id for id in ids if id != UNK]]) == ["the sees a."]
    behind = [with_masks(tokenizer, text)[0] for text in ("the c__t", "the __ t")]
    begins = [tokenizer.pieces(ids[ids.index(UNK) + 1 :])[0].startswith("\u2581") for ids in behind]
    assert begins == [False, True]  # a space behind a blank is kept, and none is added
    assert with_masks(tokenizer, "the cat_s") == (tokenizer.encode(["the cat_s"])[0], [])


def test_the_likeliest_words_of_each_blank_have_the_models_probabilities(masked_model):
    config, params, tokenizers = masked_model
    texts = ["the __ sleeps.", "nothing", "__ see __ house and the garden", ""]
    found = fill_mask(config, params, tokenizers, texts, 3)
    assert [len(blanks) for blanks in found] == [1, 0, 2, 0]
    ids, places = with_masks(tokenizers.source, texts[2])
    logits = predict(config.model, params, Batch(jnp.asarray([[*ids, EOS]]), None, None))[0]
    for place, guesses in zip(places, found[2]):
        scores = np.array(logits[place])
        scores[[PAD, BOS, EOS, UNK]] = -np.inf
        expected = np.asarray(jax.nn.softmax(scores))
        order = np.argsort(-expected)[:3]
        np.testing.assert_allclose([g.probability for g in guesses], expected[order], rtol=1e-4)
        pieces = tokenizers.source.pieces(order.tolist())
        for guess, piece in zip(guesses, pieces):
            shown = piece[1:] or piece if piece.startswith("\u2581") else f"##{piece}"
            assert guess.word == shown
    [alone] = fill_mask(config, params, tokenizers, texts[2:3], 3)
    assert [[g.word for g in guesses] for guesses in alone] == [
        [g.word for g in guesses] for guesses in found[2]
    ]


def test_classes_are_named_with_their_probabilities(masked_model, small_model, random_params):
    config, _, tokenizers = masked_model
    model = small_model(decoder_layers=0, source_vocab_size=tokenizers.source.vocab_size, classes=2)
    params = random_params(model)
    config = Config(model=model, decode=config.decode)
    both = Tokenizers(tokenizers.source, Labels(("no", "yes")))
    [guesses] = classify(config, params, both, ["the cat sleeps."], 5)
    assert {guess.word for guess in guesses} == {"no", "yes"}
    assert sum(guess.probability for guess in guesses) == pytest.approx(1)
    ids = tokenizers.source.rows(["the cat sleeps."])
    logits = predict(model, params, Batch(jnp.asarray(ids), None, None))[0, 0]
    assert guesses[0].word == ("yes" if logits[2] > logits[1] else "no")


def test_a_text_too_long_for_learned_positions_is_cut_with_a_warning(
    masked_model, small_model, random_params
):
    tokenizers = masked_model[2]
    model = small_model(
        decoder_layers=0,
        source_vocab_size=tokenizers.source.vocab_size,
        positions="learned",
        max_positions=9,
    )
    config, params = Config(model=model), random_params(model)
    with pytest.warns(UserWarning, match=r"was truncated to 8 \("):
        found = fill_mask(config, params, tokenizers, ["the __ sleeps " * 5, "a __"], 3)
    assert [len(blanks) for blanks in found] == [1, 1]  # of five blanks one is among the first 8
    [alone] = fill_mask(config, params, tokenizers, ["a __"], 3)
    assert [guess.word for guess in alone[0]] == [guess.word for guess in found[1][0]]
