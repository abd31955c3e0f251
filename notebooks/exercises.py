"""How the notebooks check what students write."""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

OPEN = "open: write your answer in place of the dots, and run the cell again"


def check(answer: Any, expected: Any, tolerance: float = 1e-3) -> None:
    """Says whether an answer is right: a number, text, or an array, list or tuple of them. Numbers
    may differ by the tolerance, as a part of the largest right one; whole numbers may not. An
    answer with `...` in it is open; a wrong one is an AssertionError."""
    said = verdict(answer, expected, tolerance)
    assert not said.startswith("not yet"), said
    print(said)


def check_each(
    answers: Mapping[Any, Any], expected: Mapping[Any, Any], tolerance: float = 0.01
) -> None:
    """Says which of several answers are right. AssertionError after the last one, if some are
    wrong."""
    said = {name: verdict(answers.get(name, ...), expected[name], tolerance) for name in expected}
    width = max(len(str(name)) for name in said)
    for name, one in said.items():
        print(f"{name!s:>{width}}  {one}")
    wrong = [str(name) for name, one in said.items() if one.startswith("not yet")]
    assert not wrong, f"not yet: {', '.join(wrong)}"


def verdict(answer: Any, expected: Any, tolerance: float) -> str:
    """Either "right", or a sentence that begins with "open" or "not yet"."""
    if answer is None:
        return "not yet: your answer is None; is a return missing?"
    if any(leaf is ... for leaf in jax.tree.leaves(answer)):
        return OPEN
    found, right = _numbers(answer), _numbers(expected)
    if right is not None:
        return _of_numbers(answer, found, right, tolerance)
    if isinstance(expected, str):
        return "right" if answer == expected else f"not yet: it is {answer}"
    if not isinstance(answer, list | tuple) or len(answer) != len(expected):
        return f"not yet: {len(expected)} answers are asked for"
    said = [verdict(*both, tolerance) for both in zip(answer, expected)]
    return next((one for one in said if one != "right"), "right")


def _of_numbers(answer: Any, found: np.ndarray | None, right: np.ndarray, tolerance: float) -> str:
    if found is None:
        return f"not yet: it is {answer!r:.60}, where {_kind(right.shape)} is asked for"
    if found.shape != right.shape:
        return f"not yet: it is {_kind(found.shape)}, where {_kind(right.shape)} is asked for"
    is_exact = right.dtype.kind in "bui"
    allowed = 0 if is_exact else tolerance * (np.abs(right).max(initial=0) or 1)
    wrong = ~np.isclose(found, right, rtol=0, atol=allowed)
    if not wrong.any():
        return "right"
    if not right.shape:
        return f"not yet: it is {found:.6g}"
    first = tuple(np.argwhere(wrong)[0].tolist())
    return (
        f"not yet: {wrong.sum()} of {wrong.size} numbers are wrong; "
        f"the first is {found[first]:.6g}, at {list(first)}"
    )


def _numbers(tree: Any) -> np.ndarray | None:
    """Numbers or truth values as one array; None for anything else."""
    try:
        array = np.asarray(tree)
    except ValueError:  # lists of different lengths
        return None
    return array if array.dtype.kind in "buif" else None


def _kind(shape: tuple[int, ...]) -> str:
    return f"an array of shape {shape}" if shape else "a number"
