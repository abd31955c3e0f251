"""Language codes, read in one place: ISO 639-1 and 639-3, BCP 47 (zh-CN, pt_BR), FLORES (zho_Hans),
OPUS (cmn_Hans, jap), mBART (ja_XX)."""

from functools import lru_cache
from typing import TYPE_CHECKING

from transformer.config import DataConfig

if TYPE_CHECKING:
    from langcodes import Language

NAMES = {
    "af": "Afrikaans", "am": "Amharic", "ar": "Arabic", "az": "Azerbaijani", "be": "Belarusian",
    "bg": "Bulgarian", "bn": "Bengali", "bo": "Tibetan", "bs": "Bosnian", "ca": "Catalan",
    "cs": "Czech", "cy": "Welsh", "da": "Danish", "de": "German", "el": "Greek", "en": "English",
    "eo": "Esperanto", "es": "Spanish", "et": "Estonian", "eu": "Basque", "fa": "Persian",
    "fi": "Finnish", "fr": "French", "ga": "Irish", "gl": "Galician", "gu": "Gujarati",
    "ha": "Hausa", "he": "Hebrew", "hi": "Hindi", "hr": "Croatian", "hu": "Hungarian",
    "hy": "Armenian", "id": "Indonesian", "is": "Icelandic", "it": "Italian", "ja": "Japanese",
    "ka": "Georgian", "kk": "Kazakh", "km": "Khmer", "ko": "Korean", "lo": "Lao",
    "lt": "Lithuanian", "lv": "Latvian", "mk": "Macedonian", "ml": "Malayalam", "mn": "Mongolian",
    "mr": "Marathi", "ms": "Malay", "mt": "Maltese", "my": "Burmese", "nb": "Norwegian Bokmål",
    "ne": "Nepali", "nl": "Dutch", "nn": "Norwegian Nynorsk", "no": "Norwegian", "pl": "Polish",
    "ps": "Pashto", "pt": "Portuguese", "ro": "Romanian", "ru": "Russian", "si": "Sinhala",
    "sk": "Slovak", "sl": "Slovenian", "sq": "Albanian", "sr": "Serbian", "sv": "Swedish",
    "sw": "Swahili", "ta": "Tamil", "te": "Telugu", "th": "Thai", "fil": "Filipino",
    "tr": "Turkish", "uk": "Ukrainian", "ur": "Urdu", "uz": "Uzbek", "vi": "Vietnamese",
    "yo": "Yoruba", "yue": "Cantonese", "zh": "Chinese", "zu": "Zulu",
}  # fmt: skip

ALIASES = {
    "cn": "zh", "cz": "cs", "dk": "da", "gr": "el", "jap": "ja", "jp": "ja", "ua": "uk",
    "vn": "vi", "zhs": "zh-Hans", "zht": "zh-Hant", "zt": "zh-Hant",
} | {name.lower(): code for code, name in NAMES.items()}  # fmt: skip
"""What people write instead of a code: codes of countries, of OPUS and Argos, English names."""


LONGEST = 35
"""Letters of a code, as BCP 47 recommends."""


@lru_cache
def read_code(code: str) -> "Language | None":
    """The language of a code, or None if its first part is not a language of the registry.

    A macrolanguage stands for its main member: cmn is read as zh, arb as ar.
    """
    from langcodes import Language, LanguageTagError  # 60 ms, which a translator does not need

    if len(code) > LONGEST:
        return None
    first, *rest = code.lower().replace("_", "-").removesuffix("-xx").split("-")
    try:
        language = Language.get("-".join([ALIASES.get(first, first), *rest]))
    except LanguageTagError:
        return None
    if not language.language or not Language.make(language=language.language).is_valid():
        return None
    return language.prefer_macrolanguage().simplify_script()


def script_code(code: str) -> str:
    """The script (ISO 15924) that a code names or that its language is mostly written in, such as
    Hans; "" for an unknown code."""
    language = read_code(code)
    return language.maximize().script or "" if language else ""


def standard_code(code: str) -> str:
    """The shortest form of BCP 47: zho_Hans is zh-Hans, deu_Latn is de. An unknown code stays as it
    is."""
    language = read_code(code)
    return language.to_tag() if language else code


def base_of(code: str) -> str:
    """The language alone, by ISO 639-1 if possible, otherwise by 639-3. An unknown code stays as it
    is."""
    language = read_code(code)
    return (language.language or code) if language else code


def same_language(first: str, second: str) -> bool:
    """Whether two codes name one language in one script; regions do not count."""
    if read_code(first) is None or read_code(second) is None:
        return first == second
    return (base_of(first), script_code(first)) == (base_of(second), script_code(second))


def translates_alike(first: DataConfig, second: DataConfig) -> bool:
    """Whether two runs translate between the same languages, however their codes are written."""
    return all(same_language(getattr(first, s), getattr(second, s)) for s in ("source", "target"))


def name_of(code: str) -> str:
    """The English name of a language, its script or region in brackets; an unknown code itself."""
    if read_code(code) is None:
        return code
    base, _, rest = standard_code(code).partition("-")
    return NAMES.get(base, base) + f" ({rest})" * (rest > "")
