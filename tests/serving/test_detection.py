"""What vocabularies say of the language of a text."""

import pytest

from transformer.data.tokenizer import train_tokenizer
from transformer.serving.detection import confidences

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


def test_what_cannot_be_told_is_not_claimed(vocabularies):
    shared = {"en": vocabularies["en"], "fr": vocabularies["en"]}
    assert confidences(shared, "the dog") == {"en": 50.0, "fr": 50.0}
    assert set(confidences(vocabularies, " \n").values()) == {25.0}
    assert confidences({"en": vocabularies["en"]}, "the dog") == {"en": 0.0}
    assert confidences({}, "the dog") == {}
