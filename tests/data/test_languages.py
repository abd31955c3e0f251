"""Codes of every standard against the languages that they name."""

import pytest

from transformer.config import DataConfig
from transformer.data.languages import (
    NAMES,
    base_of,
    name_of,
    read_code,
    same_language,
    script_code,
    standard_code,
    translates_alike,
)

SPELLINGS = {
    ("zh", "Hans"): "zh zho chi cmn zh-CN zh_cn zho_Hans cmn_Hans zh-Hans-CN zh_CN cn zhs Chinese",
    ("zh", "Hant"): "zh-TW zh_HK zho_Hant cmn_Hant zht zt",
    ("ja", "Jpan"): "ja jpn jap jp jpn_Jpan ja_XX Japanese",
    ("ko", "Kore"): "ko kor ko-KR ko_KR",
    ("th", "Thai"): "th tha tha_Thai",
    ("de", "Latn"): "de deu ger deu_Latn de-AT de_DE german",
    ("pt", "Latn"): "pt por pt_BR pt-PT por_Latn",
    ("ar", "Arab"): "ar ara arb arb_Arab",
    ("fa", "Arab"): "fa fas per pes pes_Arab",
    ("sr", "Cyrl"): "sr srp srp_Cyrl",
    ("sr", "Latn"): "sr-Latn srp_Latn sh",
    ("he", "Hebr"): "he iw heb",
    ("nan", "Latn"): "nan_Latn",
    ("cs", "Latn"): "cs ces cze cz",
    ("el", "Grek"): "el ell gre gr",
}


@pytest.mark.parametrize("language, codes", SPELLINGS.items(), ids=str)
def test_all_spellings_of_a_language_are_one(language, codes):
    for code in codes.split():
        assert (base_of(code), script_code(code)) == language, code
        assert same_language(code, codes.split()[0])
    others = [other.split()[0] for key, other in SPELLINGS.items() if key != language]
    assert not any(same_language(codes.split()[0], other) for other in others)


@pytest.mark.parametrize(
    "code", ["", "xx", "klingon", "source", "x", "-", "de ", "en-US-x", "a" * 9, "de-" * 12 + "x"]
)
def test_what_is_no_code_stays_as_it_is(code):
    assert read_code(code) is None and script_code(code) == ""
    assert standard_code(code) == base_of(code) == name_of(code) == code
    assert same_language(code, code) and not same_language(code, "de")


def test_tags_are_short_and_names_tell_script_and_region():
    assert [standard_code(code) for code in ("zho_Hans", "deu_Latn", "pt_br", "arb", "ja_XX")] == [
        "zh-Hans", "de", "pt-BR", "ar", "ja",
    ]  # fmt: skip
    assert name_of("zho_Hant") == "Chinese (Hant)" and name_of("deu") == "German"
    assert all(base_of(code) == standard_code(code) == code for code in NAMES)


def test_runs_translate_alike_whose_codes_mean_the_same():
    first = DataConfig(source="eng", target="zho_Hans")
    assert translates_alike(first, DataConfig(source="en", target="zh"))
    assert not translates_alike(first, DataConfig(source="en", target="zh-TW"))
    assert not translates_alike(first, DataConfig(source="de", target="zh"))
