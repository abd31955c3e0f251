"""Target tags of sources: which begin a text, which are refused, and which are warned of."""

import re
import warnings
from contextlib import nullcontext

import pytest
from sentences import SENTENCES

from transformer.config import DataConfig
from transformer.data.tags import known_tags, read_source, tag_of
from transformer.data.tokenizer import BLANK, Tokenizer, train_tokenizer
from transformer.errors import UserError

PLAIN = train_tokenizer(SENTENCES, "unigram", 44)
TAGS = (">>deu<<", ">>fra<<", ">>por<<", ">>pob<<", ">>cmn_Hans<<", ">>zh-tw<<")


@pytest.fixture
def tokenizer(tagged):
    return tagged(PLAIN, *TAGS)


@pytest.mark.parametrize(
    "text, tag, rest",
    [
        (">>deu<< a b", ">>deu<<", " a b"),
        (">>deu<<a b", ">>deu<<", "a b"),
        ("  >>cmn_Hans<< a", ">>cmn_Hans<<", " a"),
        ("\ufeff>>zh-tw<< a", ">>zh-tw<<", " a"),
        ("\ufeff \u3000\t>>deu<< a", ">>deu<<", " a"),
        (">>de<< a", ">>deu<<", " a"),
        (">>pt<< a", ">>por<<", " a"),
        (">>zh_CN<< a", ">>cmn_Hans<<", " a"),
        (">>Good morning<< asked the woman.", "", ">>Good morning<< asked the woman."),
        (">> deu << a", "", ">> deu << a"),
        (">>deu a", "", ">>deu a"),
        (">><< a", "", ">><< a"),
        ("a >>deu<< b", "", "a >>deu<< b"),
        (">>deu<< >>Good morning<< asked", ">>deu<<", " >>Good morning<< asked"),
        (">>deu<< >>pt<< b", ">>deu<<", " >>pt<< b"),
        (">>deu<<", "", ""),
        (" >>deu<< \u3000", "", ""),
        ("  ", "", ""),
    ],
)
@pytest.mark.filterwarnings("ignore:a text has no target tag", "ignore:.* inside a text")
def test_a_tag_of_the_vocabulary_begins_a_source_and_all_else_is_text(tokenizer, text, tag, rest):
    assert read_source(tokenizer, text) == (tag, rest)
    [row] = tokenizer.encode([text])
    pieces = [piece.removeprefix(BLANK) for piece in tokenizer.pieces(row)]
    found = [piece for piece in pieces[:1] if piece in TAGS]
    assert found == ([tag] if tag else [found[0]] if found and not rest else [])


@pytest.mark.parametrize(
    "text", [">>ita<< a", " >>POB<< a", ">>it<< a", ">>zho_Hant_x<<", "\ufeff>>x_1<<a"]
)
def test_an_unknown_tag_is_refused_with_those_that_exist(tokenizer, text):
    unknown = re.search(">>.*<<", text)[0]
    with pytest.raises(UserError) as error:
        read_source(tokenizer, text)
    assert unknown in str(error.value) and ">>pob<<" in str(error.value)


def test_of_many_tags_the_near_ones_and_their_number_are_named():
    tags = [f">>{a}{b}x<<" for a in "abcdefghij" for b in "klmnopqrst"] + [">>pob<<", ">>por<<"]
    assert ">>pob<<" in known_tags(tags, ">>POB<<") and "102" in known_tags(tags, ">>POB<<")
    assert ">>por<<" in known_tags(tags, ">>pt<<") and len(known_tags(tags, "!")) < 200
    assert tag_of(tags, "por") == tag_of(tags, ">>por<<") == tag_of(tags, "pt") == ">>por<<"


def test_of_two_tags_of_one_language_neither_stands_for_it():
    tags = [">>pt_br<<", ">>pt_PT<<", ">>cmn_Hans<<", ">>cmn_Hant<<"]
    for name in ("por", ">>pt<<"):
        with pytest.raises(UserError, match=">>pt_br<<"):
            tag_of(tags, name)
    assert tag_of(tags, "zh_TW") == ">>cmn_Hant<<"


def test_a_language_may_be_named_by_any_of_its_codes():
    tags = [">>deu<<", ">>cmn_Hans<<", ">>zho<<", ">>jpn_Jpan<<"]
    for code, tag in {"de": tags[0], "deu_Latn": tags[0], "ja": tags[3], "zho": tags[2]}.items():
        assert tag_of(tags, code) == tag
    for code in ("zh", "fr", "xx"):  # several, none, no code
        with pytest.raises(UserError, match="is not a target tag of this model"):
            tag_of(tags, code)


@pytest.mark.parametrize(
    "text, word",
    [
        ("a b", "has no target tag"),
        (">>Good morning<< asked the woman.", "has no target tag"),
        (">>deu<< >>fra<< a", ">>fra<< inside a text"),
        (">>deu<< a. >>deu<< b", ">>deu<< inside a text"),
        (">>deu<< a << b >> c", None),
        ("", None),
    ],
)
def test_a_text_without_a_tag_or_with_two_is_warned_of(tokenizer, text, word):
    with pytest.warns(UserWarning, match=word) if word else nullcontext():
        if not word:
            warnings.simplefilter("error")
        read_source(tokenizer, text)


def test_where_the_vocabulary_has_no_tags_all_is_text(tagged, recwarn):
    for tokenizer in (PLAIN, tagged(PLAIN)):
        for text in (">>deu<< a", "a", ">>deu<<", "a >>deu<<"):
            assert read_source(tokenizer, text) == ("", text)
    assert not recwarn.list


@pytest.mark.parametrize("kind", ["unigram", "bpe", "word", "char"])
@pytest.mark.parametrize("lowercase", [False, True])
def test_a_vocabulary_of_ours_has_a_token_for_each_target(kind, lowercase):
    data = DataConfig(
        target="de",
        targets=("de", "pt_BR", "pt_PT"),
        user_symbols=("<name>",),
        lowercase=lowercase,
    )
    texts = [f">>{language}<< {text}" for language in data.targets for text in SENTENCES]
    tokenizer = train_tokenizer(texts, kind, 60, data)
    assert tokenizer.tags == (">>de<<", ">>pt_BR<<", ">>pt_PT<<")
    again = Tokenizer(tokenizer.model, lowercase)
    forms = [f">>de<<{SENTENCES[0]}", f">>de<< {SENTENCES[0]}", f" >>deu<<  {SENTENCES[0]}"]
    for row in again.encode(forms):
        [tag] = again.encode([">>de<<"])
        assert row == tag + again.encode(SENTENCES[:1])[0] and len(tag) == 1
    text = f">>pt_BR<< {SENTENCES[0]}"
    [row] = again.encode([text])
    assert again.decode([row]) == [text]
    assert again._processor.encode(text) == row  # other programs have SentencePiece alone
