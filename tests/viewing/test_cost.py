"""What training costs: hours and energy by hand."""

import pytest

from transformer.runs.folder import Launch
from transformer.viewing.cost import kilowatt_hours, unit_hours


def test_hours_are_those_of_each_start_until_the_next():
    starts = [Launch(0, 0, "core", 2, "a"), Launch(9, 3600, "device", 4, "b")]
    hours = unit_hours(starts, 5400)
    assert hours == {"core": 2.0, "device": 2.0}
    assert kilowatt_hours(hours) == pytest.approx(2 * 0.010 + 2 * 0.4)
    assert unit_hours([], 100) == {}
