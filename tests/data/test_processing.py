"""Marks of other tools in text, and text that only looks like them."""

import pytest

from transformer.data.processing import processing_of


@pytest.mark.parametrize(
    "text, found",
    [
        ("\u2581the \u2581cat \u2581sleep s", ["cut into subwords"]),
        ("the c@@ at sleeps", ["cut into subwords"]),
        ("the cat sl@@", ["cut into subwords"]),
        ("the cat sleep ##s", ["cut into subwords"]),
        ("the cat , it sleeps", ["tokenised or escaped"]),
        ("the cat sleeps .", ["tokenised or escaped"]),
        ("the cat &apos;s tail", ["tokenised or escaped"]),
        ("cats &amp; dogs", ["tokenised or escaped"]),
        ("well @-@ known", ["tokenised or escaped"]),
        ("&quot; the c@@ at", ["cut into subwords", "tokenised or escaped"]),
    ],
)
def test_marks_are_found(text, found):
    assert list(processing_of(text)) == found


@pytest.mark.parametrize(
    "text",
    [
        "@@", "a@b.de", "mail me @home", "## A heading", "C# and F##", "R&D; A & B", "Ça va ?",
        "\u2581", "costs 5 .", "the cat, it sleeps.", "\u732b\u3001 \u72ac\u3002", "100,000.5",
        "wait ...", "&c.",
    ],
)  # fmt: skip
def test_ordinary_text_has_none(text):
    assert not list(processing_of(text))
