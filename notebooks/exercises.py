"""How the notebooks check what students write."""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

OPEN = "open: write your answer in place of the dots, and run the cell again"


def check(answer: Any, expected: Any, tolerance: float = 1e-3) -> None:
    """Says whether an answer is right: a number, or an array, list or tuple of numbers. They may
    differ by the tolerance, as a part of the largest right one; whole numbers may not. An answer
    with `...` in it is open; a wrong one is an AssertionError."""
    said = verdict(answer, expected, tolerance)
    assert not said.startswith("not yet"), said
    print(said)


def check_each(
    answers: Mapping[Any, Any], expected: Mapping[Any, Any], tolerance: float = 0.01
) -> None:
    """Says which of several answers are right. AssertionError after the last one, if some are
    wrong."""
    unknown = [str(name) for name in answers if name not in expected]
    assert not unknown, f"nobody asked for {', '.join(unknown)}: run the cell of the exercise again"
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
    assert right is not None, "numbers or truth values are expected"
    if found is None:
        return f"not yet: it is {answer!r:.60}, where {_kind(right.shape)} is asked for"
    if found.shape != right.shape:
        return f"not yet: it is {_kind(found.shape)}, where {_kind(right.shape)} is asked for"
    is_exact = right.dtype.kind in "bui"
    largest = np.abs(right).max(initial=0)
    scale = largest if largest > 1e-6 else 1  # less is an error of rounding
    wrong = ~np.isclose(found, right, rtol=0, atol=0 if is_exact else tolerance * scale)
    if not wrong.any():
        return "right"
    if not right.shape:
        return f"not yet: it is {found.item()}"
    first = tuple(np.argwhere(wrong)[0].tolist())
    return (
        f"not yet: {wrong.sum()} of {wrong.size} numbers are wrong; "
        f"the first is {found[first].item()}, at {list(first)}"
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
