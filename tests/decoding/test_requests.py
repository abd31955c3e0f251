"""Lines of text, tables and JSON in; translations, lists and JSON out."""

import json

import pytest

from transformer.decoding.answers import without_tag
from transformer.decoding.requests import (
    NO_ANSWER,
    Answer,
    Request,
    as_error,
    as_json,
    as_scores,
    as_text,
    read_prompt,
    read_request,
)
from transformer.errors import UserError


def read(line, form, scoring=False):
    return read_request(line, form, scoring)


def test_lines_become_requests():
    assert read("a\tb", "text") == Request("a\tb")
    assert read("a", "tsv") == Request("a")
    assert read("a\tb", "tsv") == Request("a", prefix="b")
    assert read("a\tb", "tsv", scoring=True) == Request("a", translation="b")
    line = '{"text": "a", "prefix": "b", "id": [7]}'
    came = {"text": "a", "prefix": "b", "id": [7]}
    assert read(line, "json") == Request("a", prefix="b", others=came)


def test_words_are_counted_without_a_tag_that_is_added():
    assert without_tag([(0, 0), (1, 2), (2, 1)]) == [(0, 2), (1, 1)]


def test_a_prompt_keeps_all_fields_but_an_earlier_answer():
    line = '{"text": "a", "target": 1, "score": 2, "classes": [], "error": "x"}'
    came = {"text": "a", "target": 1, "score": 2}
    assert read_prompt(line, "json", "classes") == Request("a", others=came)
    assert read_prompt("a\tb", "text", "classes") == Request("a\tb")
    assert read_prompt(" ", "json", "classes") is None
    with pytest.raises(UserError, match="'text' must be a string"):
        read_prompt('{"text": 1}', "json", "classes")


def test_a_blank_line_is_a_blank_text_but_asks_nothing_between_objects():
    assert read(" ", "text") == Request(" ") and read("", "tsv") == Request("")
    assert [read(line, "json") for line in ("", " \t", "\u3000")] == [None] * 3


def test_a_line_without_an_answer_comes_back_with_what_can_be_read_of_it():
    def fields(line, form):
        return json.loads(as_error(line, form, "why"))

    assert fields('{"text": 3, "id": 7, "score": 1, "error": "x"}', "json") == {
        "text": 3, "id": 7, "error": "why",
    }  # fmt: skip
    for line in ("{", "[1]", '{"id": NaN}', '{"id": "\\ud800"}'):
        assert fields(line, "json") == {"error": "why"}
    assert fields("a\tb\tc", "tsv") == {"text": "a", "error": "why"}
    assert fields("a\tb", "text") == {"text": "a\tb", "error": "why"}


@pytest.mark.parametrize(
    "line, form, scoring, words",
    [
        ("a", "tsv", True, "^--score needs the text"),
        ("a\tb\tc", "tsv", False, "^3 columns, but there may be only two: text and prefix"),
        ("a\tb\tc", "tsv", True, "^3 columns, but there may be only two: text and translation"),
        ('{"text": "a", "id": "\\ud800"}', "json", False, "^this has half a surrogate pair"),
        ("{", "json", False, r"^this is not JSON: Expecting .* \(character 2\)$"),
        ("[" * 100_000, "json", False, "^this is not JSON: it is nested too deeply$"),
        ("9" * 5000, "json", False, "^this is not JSON: a number in it has too many digits$"),
        ('{"text": "a", "w": 1e999}', "json", False, "^this has a number that JSON does not allow"),
        ('{"text": "a", "w": [NaN]}', "json", False, "^this has a number that JSON does not allow"),
        ("[1]", "json", False, "^this is not a JSON object"),
        ("{}", "json", False, "^'text' must be a string"),
        ('{"text": 3}', "json", False, "'text' must be a string"),
        ('{"text": "a", "prefix": null}', "json", False, "'prefix' must be a string"),
        ('{"text": "a"}', "json", True, "'translation' must be a string"),
        ('{"text": "\\ud800"}', "json", False, "^this has half a surrogate pair"),
    ],
)
def test_a_line_that_cannot_be_read_gets_a_sentence(line, form, scoring, words):
    with pytest.raises(UserError, match=words):
        read(line, form, scoring)


BEST = Answer("ein Hund", score=-0.5, log_prob=-1.25, tokens=["ein", "Hund"], alignment="0-0 1-1")
SECOND = Answer("Hunde", score=-2.0, log_prob=-3.0, tokens=["Hunde"])


def test_answers_as_text():
    assert as_text(4, [SECOND], listing=False) == ["Hunde"]
    assert as_text(4, [BEST], listing=False) == ["ein Hund ||| 0-0 1-1"]
    assert as_text(4, [BEST, SECOND], listing=True) == [
        "4 ||| ein Hund ||| -0.500000 ||| 0-0 1-1",
        "4 ||| Hunde ||| -2.000000",
    ]
    assert as_text(4, [NO_ANSWER], listing=False) == [""]
    assert as_text(4, [NO_ANSWER], listing=True) == ["4 |||  ||| -inf"]
    assert as_text(4, [Answer("a\r\nb\nc")], listing=False) == ["a b c"]
    assert as_text(4, [Answer("a\u2028b")], listing=False) == ["a\u2028b"]
    scored = Answer("x", log_prob=-3.0, tokens=["a", "b"], log_probs=[-1.0, -2.0])
    assert as_scores(scored) == "-3.000000\t-1.500000"


def test_answers_as_json_keep_what_came_along():
    line = {"text": "a\ndog", "prefix": "ein", "id": 7, "translation": "", "log_probs": [-9.0]}
    request = read(json.dumps(line), "json")
    assert request.text == "a\ndog"
    values = json.loads(as_json(request, [BEST, SECOND], listing=True))
    assert values["id"] == 7 and values["text"] == "a\ndog" and values["prefix"] == "ein"
    assert "log_probs" not in values  # of an earlier answer
    assert values["translation"] == "ein Hund" and values["score"] == -0.5
    assert values["nbest"][1] == {
        "translation": "Hunde", "score": -2.0, "log_prob": -3.0, "tokens": ["Hunde"],
    }  # fmt: skip
    assert "nbest" not in json.loads(as_json(request, [BEST], listing=False))
