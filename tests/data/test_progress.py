"""Lines about long work: none where it is short."""

from transformer.data import progress


def told(monkeypatch, seconds_each: float) -> list[str]:
    now = iter(range(10**6))
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(now) * seconds_each)
    lines = []
    assert list(progress.with_progress(range(5000), "reading", lines.append)) == list(range(5000))
    return lines


def test_long_work_says_how_far_it_is(monkeypatch):
    lines = told(monkeypatch, 6.0)  # a thousand items in six seconds
    assert lines == [
        "reading: 2,000 so far, 167 a second",
        "reading: 4,000 so far, 167 a second",
        "reading: 5,000 in all, in 36 s",
    ]


def test_short_work_says_nothing(monkeypatch):
    assert told(monkeypatch, 1.0) == []
