"""What a run has cost: hours, energy; what is not measured is called an estimate."""

from collections.abc import Sequence

from transformer.runs.folder import Launch

WATTS = {"core": 10, "device": 400}
"""An assumption, with memory and cooling: of a core of a server, and of a GPU or TPU at work."""


def unit_hours(starts: Sequence[Launch], seconds: float) -> dict[str, float]:
    """Hours of cores or devices, of training that took so many seconds in all."""
    hours: dict[str, float] = {}
    ends = [*(start.seconds for start in starts[1:]), seconds]
    for start, end in zip(starts, ends):
        used = max(end - start.seconds, 0) * start.count / 3600
        hours[start.unit] = hours.get(start.unit, 0) + used
    return hours


def kilowatt_hours(hours: dict[str, float]) -> float:
    """By the assumption WATTS."""
    return sum(WATTS[unit] * spent for unit, spent in hours.items()) / 1000
