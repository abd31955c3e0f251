"""Which translator serves which languages, and detection of the language of a text."""

from dataclasses import replace

import pytest

from transformer.config import DataConfig
from transformer.data.tokenizer import train_tokenizer
from transformer.serving.languages import Languages, confidences
from transformer.serving.service import ModelService

TEXTS = {
    "en": "the old dog sees the red cat in the garden . my friend reads the book",
    "de": "der alte Hund sieht die rote Katze im Garten . mein Freund liest das Buch",
    "ru": "старая собака видит красную кошку в саду . мой друг читает книгу",
    "zh": "老狗在花园里看见红猫。我的朋友在看书。",
}


@pytest.fixture(scope="module")
def vocabularies():
    return {
        language: [train_tokenizer([text] * 3, "bpe" if language != "zh" else "char", 60)]
        for language, text in TEXTS.items()
    }


@pytest.mark.parametrize(
    "text, language",
    [
        ("my dog reads", "en"), ("mein Hund liest", "de"), ("мой друг", "ru"), ("我的狗", "zh"),
        *((text, language) for language, text in TEXTS.items()),
    ],
)  # fmt: skip
def test_the_language_whose_vocabulary_needs_the_fewest_pieces_is_the_likeliest(
    vocabularies, text, language
):
    found = confidences(vocabularies, text)
    assert next(iter(found)) == language and found[language] > 60
    assert sum(found.values()) == pytest.approx(100, abs=0.3)
    assert [*found.values()] == sorted(found.values(), reverse=True)


def test_equal_vocabularies_and_single_languages_claim_nothing(vocabularies):
    shared = {"en": vocabularies["en"], "fr": vocabularies["en"]}
    assert confidences(shared, "the dog") == {"en": 50.0, "fr": 50.0}
    assert set(confidences(vocabularies, " \n").values()) == {25.0}
    assert confidences({"en": vocabularies["en"]}, "the dog") == {"en": 0.0}
    assert confidences({}, "the dog") == {}


def test_runs_of_one_language_in_several_regions_are_told_apart(models):
    config, params, tokenizers = models["translator"]
    services = []
    for code in ("por", "pt_BR", "zho_Hant", "xx"):
        there = replace(config, data=DataConfig(source="en", target=code))
        services.append(ModelService(code, there, "last", params, tokenizers))
    languages = Languages(services)
    for target, name in {
        "pt-BR": "pt_BR", "pt": "por", "pt-PT": "por", "zh-TW": "zho_Hant", "xx": "xx",
    }.items():  # fmt: skip
        assert languages.detect_source("a", target)["language"] == "en"
        assert languages.find("en", target)[0].name == name
    [english, *others] = languages.described()
    assert english["targets"] == ["pt", "pt-BR", "xx", "zh-Hant"]
    assert [one["name"] for one in others] == [
        "Portuguese", "Portuguese (BR)", "Chinese (Hant)", "xx",
    ]  # fmt: skip
