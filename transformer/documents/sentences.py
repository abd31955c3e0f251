"""Sentences of a text, by the rules and abbreviations of its language (sentencex)."""

from transformer.errors import UserError


def split_sentences(text: str, language: str) -> list[str]:
    """The sentences of a text, each with the whitespace after it: together they are the text.
    Languages without rules of their own have those of related ones, or of English. Raises UserError
    if the library is not installed."""
    try:
        import sentencex
    except ModuleNotFoundError as error:
        raise UserError("documents need sentencex: pip install -e '.[documents]'") from error
    return sentencex.segment(language, text)
