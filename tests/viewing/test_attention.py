"""Attention maps: those of the model, with the right pieces beside."""

import jax.numpy as jnp
import numpy as np
import pytest

from transformer.data.tokenizer import train_tokenizer
from transformer.data.vocabularies import Tokenizers
from transformer.model.batch import BOS, EOS, Batch
from transformer.model.encoder_decoder import decode, run_encoder
from transformer.viewing.attention import BEGIN, END, attention_maps


@pytest.fixture(scope="module")
def tokenizers():
    sides = (
        ["the cat sees a dog . a dog sees the cat ."] * 3,
        ["die Katze sieht einen Hund ."] * 3,
    )
    return Tokenizers(*(train_tokenizer(side, "word", 12) for side in sides))


@pytest.fixture(scope="module")
def translator(small_model, random_params, tokenizers):
    sizes = (tokenizers.source.vocab_size, tokenizers.target.vocab_size)
    model = small_model(
        encoder_layers=3,
        source_vocab_size=sizes[0],
        target_vocab_size=sizes[1],
        tying="target",
    )
    return model, random_params(model)


def test_maps_of_a_translator_are_the_weights_of_its_layers(translator, tokenizers):
    model, params = translator
    encoder, masked, cross = attention_maps(
        model, params, tokenizers, "the cat sees a dog", "die Katze sieht"
    )
    assert [one.kind for one in (encoder, masked, cross)] == ["encoder", "masked", "cross"]
    source = [*tokenizers.source.encode(["the cat sees a dog"])[0], EOS]
    target = tokenizers.target.encode(["die Katze sieht"])[0]
    batch = Batch(jnp.array([source]), jnp.array([[BOS, *target]]), None)
    memory, expected = run_encoder(model, params, batch.source)
    decoder = decode(model, params, memory, batch.target_in)[2]
    np.testing.assert_allclose(encoder.weights, expected.own[:, 0], atol=1e-6)
    np.testing.assert_allclose(masked.weights, decoder.own[:, 0], atol=1e-6)
    np.testing.assert_allclose(cross.weights, decoder.cross[:, 0], atol=1e-6)


def test_each_row_and_column_has_its_piece(translator, tokenizers):
    maps = attention_maps(*translator, tokenizers, "the cat sees", "die Katze")
    for one in maps:
        assert one.weights.shape[2:] == (len(one.rows), len(one.columns))
    encoder, masked, cross = maps
    assert encoder.rows == encoder.columns == cross.columns == ("▁the", "▁cat", "▁sees", END)
    assert masked.rows == masked.columns == (BEGIN, "▁die", "▁Katze")
    assert cross.rows == ("▁die", "▁Katze", END)


@pytest.mark.parametrize(
    "absent, kind", [("encoder_layers", "masked"), ("decoder_layers", "encoder")]
)
def test_one_stack_alone_has_one_map(small_model, random_params, tokenizers, absent, kind):
    one_side = Tokenizers(tokenizers.source, tokenizers.source)
    size = one_side.source.vocab_size
    model = small_model(**{absent: 0}, source_vocab_size=size, target_vocab_size=size)
    texts = ("", "the cat") if kind == "masked" else ("the cat", "")
    [found] = attention_maps(model, random_params(model), one_side, *texts)
    assert found.kind == kind
    assert found.rows == ((BEGIN, "▁the", "▁cat") if kind == "masked" else ("▁the", "▁cat", END))
    np.testing.assert_allclose(found.weights.sum(-1), 1, atol=1e-5)


def test_an_empty_sentence_has_maps_too(translator, tokenizers):
    encoder, masked, cross = attention_maps(*translator, tokenizers, "", "")
    assert (
        encoder.weights.shape[2:] == masked.weights.shape[2:] == cross.weights.shape[2:] == (1, 1)
    )
