"""How the notebooks check what students write."""

from typing import Any

import jax
import numpy as np


def check(answer: Any, expected: Any) -> None:
    """Says whether an answer is right: a number, text, an array, or a list or tuple of them. An
    answer with `...` in it is open; a wrong one is an AssertionError."""
    found, right = (jax.tree.leaves(tree, is_leaf=_is_open) for tree in (answer, expected))
    if any(map(_is_open, found)):
        print("open: write your answer in place of the dots, and run the cell again")
        return
    shapes, wanted = ([np.shape(leaf) for leaf in leaves] for leaves in (found, right))
    assert shapes == wanted, f"not yet: the shapes are {shapes}, and {wanted} are right"
    assert all(map(_is_close, found, right)), f"not yet: it is {answer}"
    print("right")


def check_quiz(quiz: dict[int, Any], solutions: dict[int, Any]) -> None:
    """Prints each answer, and says whether that of the student is right. An answer with `...` in it
    is open. AssertionError after the last one, if some are wrong."""
    wrong = []
    for number, solution in solutions.items():
        print(f"{number:2}. {np.ravel(solution)} - ", end="")
        found = jax.tree.leaves(quiz[number], is_leaf=_is_open)
        flat = ... if any(map(_is_open, found)) else np.ravel(quiz[number])
        try:
            check(flat, np.ravel(solution))
        except AssertionError as error:
            print(error)
            wrong.append(number)
    assert not wrong, f"not yet: {', '.join(map(str, wrong))}"


def _is_open(answer: Any) -> bool:
    return answer is ...


def _is_close(answer: Any, expected: Any) -> bool:
    answer, expected = np.asarray(answer), np.asarray(expected)
    if "f" in (answer.dtype.kind, expected.dtype.kind):
        return bool(np.allclose(answer, expected, rtol=1e-3, atol=1e-3))
    return bool((answer == expected).all())
