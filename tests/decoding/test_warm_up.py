"""What is compiled beforehand is what will be asked for: no more, and nothing is missing."""

from dataclasses import replace

import pytest

from transformer.config import Config, DataConfig, DecodeConfig
from transformer.data.tokenizer import train_tokenizer
from transformer.data.vocabularies import Tokenizers
from transformer.decoding import continuous
from transformer.decoding.translator import begin_search, hypotheses, make_translator
from transformer.decoding.warm_up import SearchShape, compile_search, search_shapes

TEXT = "the cat sees a dog in the garden . a dog sees the cat ."


@pytest.fixture(scope="module")
def translator(small_model, random_params):
    pieces = train_tokenizer([TEXT] * 3, "word", 13)
    model = small_model(
        encoder_layers=1, decoder_layers=1,
        source_vocab_size=pieces.vocab_size, target_vocab_size=pieces.vocab_size,
    )  # fmt: skip
    decode = DecodeConfig(beam_size=2, max_extra_length=30)
    config = Config(model=model, data=DataConfig(), decode=decode)
    return make_translator(config, random_params(model), Tokenizers(pieces, pieces))


def test_the_shapes_reach_as_far_as_texts_and_their_translations(translator):
    learned = replace(translator.ensemble.models[0], positions="learned", max_positions=40)
    models = {
        20: translator.ensemble.models,
        300: translator.ensemble.models,
        100: (learned,),
    }
    found = {
        longest: search_shapes(
            replace(
                translator,
                settings=replace(translator.settings, max_source_length=longest),
                ensemble=replace(translator.ensemble, models=of),
            ),
            (1, 16),
        )
        for longest, of in models.items()
    }
    assert found[20] == [
        SearchShape(*shape)
        for shape in [
            (16, 16, 16), (16, 24, 16), (1, 16, 32), (1, 24, 32), (16, 16, 32), (1, 16, 64),
            (16, 16, 64),
        ]
    ]  # fmt: skip
    assert {shape.length for shape in found[100]} == {16, 24, 32, 40}
    assert max(shape.capacity for shape in found[100]) == 64  # for 40 tokens
    assert max(shape.length for shape in found[300]) == 256
    assert max(shape.capacity for shape in found[300]) == 512


@pytest.mark.parametrize("rows", [2, 8])
def test_nothing_is_compiled_any_more_when_texts_come(translator, rows):
    compiled = (begin_search, continuous._search, continuous._grow)
    short = replace(translator.settings, max_source_length=30, max_length=30, min_length=20)
    translator = replace(translator, settings=short)
    for shape in search_shapes(translator, [rows]):
        if shape.length <= 24:
            compile_search(translator, shape, 1)
    before = [function._cache_size() for function in compiled]
    found = [hypotheses(translator, [text] * rows) for text in ("the cat", "the cat sees a " * 5)]
    assert max(len(one.tokens) for of in found for [one] in of) > 16  # where caches grow
    assert [function._cache_size() for function in compiled] == before
