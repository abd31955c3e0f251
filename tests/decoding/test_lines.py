import pytest

from transformer.decoding.lines import continued, one_line, outer_blanks, split_lines


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", []),
        ("a", [("a", "")]),
        ("a\n", [("a", "\n")]),
        ("\n", [("", "\n")]),
        ("a\r\nb\rc", [("a", "\r\n"), ("b", "\r"), ("c", "")]),
        ("a\n\r b ", [("a", "\n"), ("", "\r"), (" b ", "")]),
        ("a\u2028b\u2029c\x85", [("a", "\u2028"), ("b", "\u2029"), ("c", "\x85")]),
        ("a\vb\fc\n\n", [("a", "\v"), ("b", "\f"), ("c", "\n"), ("", "\n")]),
        ("a\tb\x1cc\x1dd", [("a\tb\x1cc\x1dd", "")]),
    ],
)
def test_lines_and_separators_are_the_text(text, lines):
    assert split_lines(text) == lines
    assert "".join(line + separator for line, separator in split_lines(text)) == text


def test_a_text_on_one_line():
    assert one_line("a\r\nb\u2028c\n") == "a b c"
    assert one_line("a\x1cb") == "a\x1cb"


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("a b", ("", "a b", "")),
        ("\t a\u3000", ("\t ", "a", "\u3000")),
        (" \xa0", (" \xa0", "", "")),
        ("", ("", "", "")),
        (f"a{' ' * 10**6}b ", ("", f"a{' ' * 10**6}b", " ")),  # in linear time
    ],
    ids=range(5),
)
def test_the_blanks_around_a_line(line, parts):
    assert outer_blanks(line) == parts


@pytest.mark.parametrize(
    ("typed", "known", "text", "whole"),
    [
        ("Guten", "Guten", "Guten Tag", "Guten Tag"),
        ("Guten ", "Guten", "Guten Tag", "Guten Tag"),
        ("Gu", "Gu", "Guten Tag", "Guten Tag"),
        ("m\xb2", "m2", "m2 und", "m\xb2 und"),
        ("", "", "Tag", "Tag"),
        ("\u200b", "", "Tag", "\u200bTag"),
        ("Tag", "Tag", "Tag", "Tag"),
        ("a\n", "a", "a\nb", "a\n\nb"),
    ],
)
def test_what_is_added_stands_behind_what_was_typed(typed, known, text, whole):
    assert continued(typed, known, text) == whole
