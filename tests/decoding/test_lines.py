import pytest
from hypothesis import given
from hypothesis import strategies as st

from transformer.decoding.lines import (
    Line,
    continued,
    distinct,
    one_line,
    split_lines,
    split_sentences,
)


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
def test_the_whitespace_around_a_line(line, parts):
    assert Line.of(line) == parts
    assert Line.of(line, "\n").around(parts[1]) == f"{line}\n"


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


@given(
    st.text(alphabet='aB .!?\u2026\u3002\uff01\u061f\u0964\u300d")\t\u00a0', max_size=40)
    | st.text()
)
def test_the_sentences_together_are_the_text(text):
    found = split_sentences(text)
    assert "".join(found) == text
    assert found == [""] or all(found)


@pytest.mark.parametrize(
    "text, sentences",
    [
        ("One. Two!  Three? Four", ["One. ", "Two!  ", "Three? ", "Four"]),
        ('He said "No." She left.', ['He said "No." ', "She left."]),
        ("3.14 is a.b no end", ["3.14 is a.b no end"]),
        ("\u4f60\u597d\u3002\u518d\u89c1\uff01", ["\u4f60\u597d\u3002", "\u518d\u89c1\uff01"]),
        (
            "\u0643\u064a\u0641\u061f \u0646\u0639\u0645",
            ["\u0643\u064a\u0641\u061f ", "\u0646\u0639\u0645"],
        ),
        ("", [""]),
    ],
)
def test_it_is_cut_behind_the_marks_that_end_sentences(text, sentences):
    assert split_sentences(text) == sentences


def test_each_text_is_there_once_with_its_first_item():
    assert distinct("abac", [1, 2, 3, 4]) == [("a", 1), ("b", 2), ("c", 4)]
