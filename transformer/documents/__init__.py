"""Documents: text with structure, such as HTML, subtitles and translation files.

A reader (`html`, `xml`, `po`, `subtitles`, `paragraphs`) divides a document into text that stays as
it is and segments to translate (`document`). A segment is text and the inline markup in it
(`segment`). Its sentences (`sentences`) are translated without markup (`translation`), and the
markup is put back by word alignment (`placement`).
"""

from typing import Literal, get_args

Format = Literal["paragraphs", "html", "srt", "po", "xliff", "tmx"]
FORMATS: tuple[Format, ...] = get_args(Format)
"""The formats of documents."""
