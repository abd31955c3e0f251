"""Markup in translations: all of it once and nested, whatever the alignment; and where it belongs,
if the alignment is right."""

import re

import numpy as np
import pytest
from document_grammar import html_inline, joined
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.markup import is_nested
from transformer.documents.document import segments, written
from transformer.documents.formats import read_document
from transformer.documents.html import read_html
from transformer.documents.placement import Aligned, best_run, put_back
from transformer.documents.units import units


def tags(text):
    return sorted(match[0] for match in re.finditer(r"<!--.*?-->|<[^<>]+>", text))


def placed(source, translation, links, form="html"):
    """The document with this translation of its only segment. `links` has the source unit of each
    target unit, None where it has none."""
    document = read_document(source, form, ("en", "de"))
    [segment] = segments(document)
    weights = np.zeros((len(units(translation)), len(units(segment.text))))
    for row, column in enumerate(links):
        if column is not None:
            weights[row, column] = 1
    return written(document, [put_back(segment, Aligned(translation, weights))])


@given(
    inner=joined(html_inline),
    target=st.lists(st.sampled_from(["ein", "Haus", "漢字", "-", "?", "don't"]), max_size=7),
    seed=st.integers(0, 9),
)
def test_all_markup_is_there_once_and_nested_whatever_the_alignment(inner, target, seed):
    source = f"<p>{inner}</p>"
    document = read_html(source)
    text, random = " ".join(target), np.random.default_rng(seed)
    found = []
    for segment in segments(document):
        shape = len(units(text)), len(units(segment.text))
        weights = random.random(shape) ** 8 * (random.random((shape[0], 1)) > 0.2)
        found.append(put_back(segment, Aligned(text, weights)))
    result = written(document, found)
    assert tags(result) == tags(source)
    # A "<" before a letter begins a tag that has no end.
    nested, is_still = (is_nested(re.sub("<!--.*?-->", "", html)) for html in (source, result))
    assert is_still or not nested
    assert all("".join(piece for piece, _ in pieces) == text for pieces in found)


CASES = [
    # elements follow their words, also when these change places
    ("<b>a</b> b c", "B A C", [1, 0, 2], "B <b>A</b> C"),
    ("<i>a <b>b</b></i> c", "C B A", [2, 1, 0], "C <i><b>B</b> A</i>"),
    ("<b>a b</b> c", "A A C B", [0, 0, 2, 1], "<b>A A</b> C B"),
    ("<b>all a b</b>", "B A", [2, 1], "<b>B A</b>"),
    ("a <u>b</u> <i>c</i>", "C A B", [2, 0, 1], "<i>C</i> A <u>B</u>"),
    # a word without alignment belongs to no element; an element without words has a place
    ("a <b>b</b> c", "A x C", [0, None, 2], "A <b></b>x C"),
    ("a <b></b>b", "B A", [1, 0], "<b></b>B A"),
    # an element may have other words between its own, but none twice
    ("<u>b d</u> <i>c</i>", "B B C D D C", [0, 0, 2, 1, 1, 2], "<u>B B C D D</u> <i>C</i>"),
    ("<b>a b</b> <img>c", "A A C B B", [0, 0, 2, 1, 1], "<img><b>A A C B B</b>"),
    # other markup stands before the word after it, or at the end
    ("a <img>b c", "C B A", [2, 1, 0], "C <img>B A"),
    ("a b<img>", "B A", [1, 0], "B A<img>"),
    ("<img>a b", "B A", [1, 0], "<img>B A"),
    # spaces stay on their side of a tag
    ("a<b> b</b> c", "A B C", [0, 1, 2], "A<b> B</b> C"),
    ("<b>a </b>b", "A B", [0, 1], "<b>A </b>B"),
    # inside a word that stays, tags stay inside; otherwise they are around the word
    ("x<b>y</b>z a", "A xyz", [1, 0], "A x<b>y</b>z"),
    ("x<b>y</b>z a", "A b", [1, 0], "A <b>b</b>"),
    # punctuation is a word of its own
    ("see <a>this</a>, x", "X , DAS", [3, 2, 1], "X , <a>DAS</a>"),
    # breaks separate words, and divide the translation as the source
    ("a b<br>c", "A B B C", [0, 1, 1, 2], "A B B<br>C"),
    ("a\n  b", "漢字", [0, 1], "漢字"),
    ("a<br>b", "漢字", [0, 1], "漢<br>字"),
    ("a\n  b", "A", [0], "A"),
    ("a<br>b", "A", [0], "A<br>"),
    ("a b&nbsp;c", "C A B", [2, 0, 1], "C A&nbsp;B"),
    # tags without a partner
    ("a <b>b c", "A C B", [0, 2, 1], "A <b>C B"),
    ("<b>a <i>b</b> c", "C A B", [2, 0, 1], "C <b>A <i>B</b>"),
    ("<b>a</i> b</b> c", "C A B", [2, 0, 1], "C <b>A</i> B</b>"),
    ("a b</b> c", "A B C", [0, 1, 2], "A B</b> C"),
]


@pytest.mark.parametrize(("source", "translation", "links", "expected"), CASES)
def test_markup_stands_where_the_alignment_says(source, translation, links, expected):
    assert placed(source, translation, links) == expected


def test_characters_are_written_as_the_source_writes_them():
    assert placed('a &quot;b" &amp; c & d', 'A "B" & C & <', [0, 1, 2, 3, 4, 5, 6, None]) == (
        'A &quot;B" &amp; C & &lt;'
    )
    assert placed("if x < 5 & y&lt;z &amp; a<b", "z<y & x&b if<5", [None] * 11) == (
        "z&lt;y & x&amp;b if&lt;5"
    )
    cue = "1\n00:00:01,000 --> 00:00:02,000\na\nb\n"
    assert placed(cue, "漢字", [0, 1], "srt").endswith("漢\n字\n")  # its lines matter
    po = 'msgid "a\\n"\n"b"\nmsgstr ""\n'
    assert placed(po, 'A "B"', [0, None, 1, None], "po").endswith('msgstr "A\\n\\""\n"B\\""\n')


def test_the_best_run_has_the_most_units_of_its_own():
    def best(shares, taken=()):
        is_free = ~np.isin(np.arange(len(shares)), taken)
        return best_run(np.array(shares, float), is_free)

    assert best([0, 1, 0.4, 1, 0]) == (1, 4)
    assert best([1, 0, 0, 1, 1]) == (3, 5)
    assert best([0, 1, 1, 1, 0], [2]) == (1, 2)
    assert best([0, 0.3, 0.4]) == (2, 3)
    assert best([0, 0]) is None and best([1, 0], [0]) is None
