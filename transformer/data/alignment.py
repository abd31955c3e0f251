"""Whether line k of one side belongs to line k of the other, by lengths alone: the lengths of a
sentence and its translation are correlated, those of unrelated lines are not."""

import numpy as np
from jaxtyping import Float, Integer

FEWEST = 100
"""Fewer pairs are too few to tell."""

FARTHEST = 5
"""The largest shift, in lines, that is looked for."""

CERTAIN = 8.0
"""How far a sum over n pairs must be from its expectation, in square roots of n."""

SHORTEST = 20
"""Fewer pairs in a row are chance: two neighbours of unusual length look like a shift."""

UNRELATED = 0.1
"""A correlation of lengths below this means unrelated lines."""


def alignment_warning(source: Integer[np.ndarray, "N"], target: Integer[np.ndarray, "N"]) -> str:
    """What seems to be wrong with the order of the lines, given the lengths of both sides; "" if
    nothing does, or if lengths cannot tell."""
    if len(source) < FEWEST or np.ptp(source) == 0 or np.ptp(target) == 0:
        return ""
    a, b = _standardised(source), _standardised(target)
    products = a * b
    correlation = float(products.mean())
    if float(np.mean(a * b[::-1])) > max(correlation, 0) + 0.3:
        return "one side's lines seem to be in reversed order"
    shifts = [sign * lines for lines in range(1, FARTHEST + 1) for sign in (1, -1)]
    runs = {shift: _best_run(_products(a, b, shift) - products) for shift in shifts}
    shift = max(runs, key=lambda shift: runs[shift][2])
    start, end, gain = runs[shift]
    if gain > CERTAIN * np.sqrt(end - start):
        lines = f"{abs(shift)} line{'s' * (abs(shift) > 1)} further {'down' if shift > 0 else 'up'}"
        return f"the targets of pairs {start + 1:,} to {end:,} seem to be {lines}"
    if correlation < UNRELATED:
        return (
            "lines do not seem to belong together: the correlation of their lengths is "
            f"{correlation:.2f}"
        )
    start, end, gain = _best_run(correlation / 2 - products)
    some = a[start:end], b[start:end]
    if (
        gain > CERTAIN * np.sqrt(end - start)
        and min(np.std(some, axis=1)) > 0.5  # otherwise too similar to tell
        and np.corrcoef(*some)[0, 1] < UNRELATED
    ):
        return f"lines of pairs {start + 1:,} to {end:,} do not seem to belong together"
    return ""


def _standardised(lengths: Integer[np.ndarray, "N"]) -> Float[np.ndarray, "N"]:
    logs = np.log1p(lengths.astype(np.float32))
    return (logs - logs.mean()) / logs.std()


def _products(
    a: Float[np.ndarray, "N"], b: Float[np.ndarray, "N"], shift: int
) -> Float[np.ndarray, "N"]:
    """a[k] * b[k + shift]; 0 if there is no b[k + shift]."""
    products = np.zeros_like(a)
    here, there = slice(max(0, -shift), len(a) - max(0, shift)), slice(max(0, shift), None)
    products[here] = a[here] * b[there][: here.stop - here.start]
    return products


def _best_run(gains: Float[np.ndarray, "N"]) -> tuple[int, int, float]:
    """Begin, end and sum of the run of elements with the largest sum; 0 if it is too short."""
    sums = np.concatenate([[0.0], np.cumsum(gains, dtype=np.float64)])
    lowest = np.minimum.accumulate(sums)
    end = int(np.argmax(sums - lowest))
    start = int(np.argmin(sums[: end + 1]))
    return start, end, float(sums[end] - sums[start]) * (end - start >= SHORTEST)
