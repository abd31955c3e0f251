"""SentencePiece models that lower-case by themselves, against str.lower() and their own rules."""

import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st

from transformer.config import DataConfig
from transformer.data.tokenizer import train_tokenizer
from transformer.interchange.standalone import standalone_model

SENTENCES = ["the small dog sleeps", "a quick fox runs home"] * 9
TEXTS = [
    "STRAẞE Straße Masse", "İstanbul IĞDIR", "E\u0301COLE É Ệ E\u0302\u0323", "H\u0331 ǅ ﬀ ½ Å Ⅷ",
    "ΓΔΣΩ", "ПРИВЕТ Ё", "\uff26\uff35\uff2c\u3000W", "\u1112\u1161\u11ab", "\u13a0 \uab70 𐐀",
    "a\tC\u200b",
]  # fmt: skip
WITHOUT_SIGMA = st.text(st.characters(exclude_characters="\u03a3", exclude_categories=["Cs"]))


@pytest.fixture(scope="module", params=["nmt_nfkc", "identity"])
def lowering(request):
    """A tokenizer that lower-cases, its model, and the one that does it alone."""
    tokenizer = train_tokenizer(
        SENTENCES,
        "char",
        60,
        DataConfig(normalisation=request.param, lowercase=True, user_symbols=("<2de>",)),
    )
    models = []
    for proto in (tokenizer.model, standalone_model(tokenizer)):
        models.append(sentencepiece.SentencePieceProcessor())
        models[-1].load_from_serialized_proto(proto)
    return models


def test_every_character_becomes_what_the_tokenizer_makes_of_it(lowering):
    within, alone = lowering
    letters = [chr(n) for n in range(1, 0x20000) if not 0xD800 <= n < 0xE000]
    assert alone.normalize(letters) == within.normalize([letter.lower() for letter in letters])
    assert alone.normalize(TEXTS) == within.normalize([text.lower() for text in TEXTS])
    upper = [sentence.upper() for sentence in SENTENCES]
    upper += ["THE <2DE> Dog", "<2de>the"]
    assert alone.encode(upper) == within.encode([text.lower() for text in upper])


@given(text=WITHOUT_SIGMA)
def test_texts_too(lowering, text):
    within, alone = lowering
    assert alone.normalize(text) == within.normalize(text.lower())


def test_a_tokenizer_that_does_nothing_around_its_model_stays_as_it_is():
    tokenizer = train_tokenizer(SENTENCES, "char", 60)
    assert standalone_model(tokenizer) == standalone_model(tokenizer, True) == tokenizer.model
