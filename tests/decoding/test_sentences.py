"""Where texts are cut into sentences; together they are always the text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transformer.decoding.sentences import split_sentences


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
