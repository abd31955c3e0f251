"""What exports can hold: a setting or a value that they do not list is refused by its name."""

from dataclasses import dataclass, fields, replace

import pytest

from transformer.config import DecodeConfig, ModelConfig
from transformer.data.piece_tokenizer import PieceTokenizer
from transformer.errors import UserError
from transformer.interchange import ctranslate2, marian_config
from transformer.interchange.supported import check_held, not_held

TABLES = {"CTranslate2": ctranslate2.HELD, "Marian": marian_config.HELD}


@dataclass(frozen=True)
class LaterModel(ModelConfig):
    """As a later version might have it."""

    gated: bool = False


@pytest.mark.parametrize("holder", TABLES)
def test_a_value_or_a_setting_that_is_not_listed_is_refused(holder):
    check_held(LaterModel(), TABLES[holder], holder)
    for change in ({"positions": "relative"}, {"norm": "deep"}, {"activation": "gated"},
                   {"gated": True}, {"classes": 4}):  # fmt: skip
        [(name, value)] = change.items()
        with pytest.raises(UserError, match=rf"^model\.{name} \({value}\) must be .* in {holder}"):
            check_held(replace(LaterModel(), **change), TABLES[holder], holder)


@pytest.mark.parametrize("holder", TABLES)
def test_every_setting_that_is_listed_exists(holder):
    assert set(TABLES[holder]) < {field.name for field in fields(ModelConfig)}


def test_what_a_search_loses_is_named():
    known = {field.name for field in fields(DecodeConfig)}
    for held in (ctranslate2.HELD_OF_SEARCH, marian_config.HELD_OF_SEARCH):
        assert held <= known
    decode = DecodeConfig(no_repeat_ngram=3, forbidden=(5,), beam_size=4)
    assert not_held(decode, ctranslate2.HELD_OF_SEARCH) == ["decode.no_repeat_ngram 3"]
    assert not_held(decode, marian_config.HELD_OF_SEARCH) == []


def test_standalone_models_hold_all_that_a_tokenizer_does_around_its_model():
    """A further field must become part of the model (`standalone_model`), or be refused."""
    assert {field.name for field in fields(PieceTokenizer)} == {"model", "lowercase", "vocabulary"}
