"""Pages: their data come back from them, and cannot end the script around them."""

import json

import pytest

pytest.importorskip("jinja2", reason="needs the extra `viewing`")

from tests.viewing.small_report import NASTY
from transformer.viewing.pages import FOLDER, as_json, render

pytestmark = pytest.mark.slow  # needs an extra


def test_json_in_a_script_element_comes_back_and_cannot_end_it():
    text = as_json({"a": NASTY})
    assert "<" not in text and "&" not in text
    assert json.loads(text) == {"a": NASTY}


def test_a_page_has_the_text_of_its_scripts_and_fetches_nothing():
    page = render("widget.html", {"script": "beam.js", "data": "[]"})
    for name in ("style.css", "attention.js", "beam.js"):
        assert (FOLDER / name).read_text(encoding="utf-8") in page
    assert "src=" not in page and "href=" not in page
