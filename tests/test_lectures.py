"""docs/lectures.md: what it names is there, and each lecture says what the project lacks."""

import re

import pytest

from tests.test_paper_map import FOLDER, fault, is_links_or_dash, row_links, table_rows

PAGE = (FOLDER / "lectures.md").read_text(encoding="utf-8")
LECTURES = re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]
KINDS = {"notebook": 1, "code": 2, "test": 3}
LINKS = sorted({link[1:] for link in row_links(table_rows(PAGE), KINDS)})


def title(lecture):
    return lecture.partition("\n")[0]


def test_there_are_five_lectures():
    assert [lecture.partition(".")[0] for lecture in LECTURES] == ["1", "2", "3", "4", "5"]


@pytest.mark.parametrize("lecture", LECTURES, ids=title)
def test_every_row_has_four_cells_and_every_cell_links_or_a_dash(lecture):
    rows = table_rows(lecture)
    assert len(rows) > 30
    for row in rows:
        assert len(row) == 4 and row[0], row
        assert all(map(is_links_or_dash, row[1:])), row


@pytest.mark.parametrize("lecture", LECTURES, ids=title)
def test_no_idea_of_a_lecture_is_there_twice(lecture):
    ideas = [idea for idea, *_ in table_rows(lecture)]
    assert len(set(ideas)) == len(ideas)


@pytest.mark.parametrize("lecture", LECTURES, ids=title)
def test_a_sentence_names_what_is_missing_where_a_row_has_only_dashes(lecture):
    has_only_dashes = any(set(cells) == {"-"} for _, *cells in table_rows(lecture))
    sentence = re.search(r"^Missing (is|are) .+, because ", lecture, re.MULTILINE | re.DOTALL)
    assert bool(sentence) == has_only_dashes


@pytest.mark.parametrize("kind, text, target", LINKS, ids=[text for _, text, _ in LINKS])
def test_what_is_named_is_there(kind, text, target):
    assert fault(kind, text, target) is None
