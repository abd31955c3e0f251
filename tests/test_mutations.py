"""Every mutation can still be made: its text stands once in its file, and its tests exist."""

import pytest

from tests.mutations import is_quick, read_table

TABLE = read_table()


@pytest.mark.parametrize("mutation", TABLE, ids=[mutation.name for mutation in TABLE])
def test_a_mutation_can_be_made(mutation):
    assert mutation.faults() == []
    assert mutation.becomes != mutation.this and mutation.tests


def test_no_two_mutations_have_the_same_name():
    assert len({mutation.name for mutation in TABLE}) == len(TABLE)


def test_the_quick_tests_notice_each_mistake_but_those_that_say_so():
    tiers = {m.name: "quick" if any(map(is_quick, m.tests)) else "all" for m in TABLE}
    assert tiers == {mutation.name: mutation.tier for mutation in TABLE}
