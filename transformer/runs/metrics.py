"""metrics.jsonl, one line a report, and the same for those who draw curves of it."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from math import isfinite
from pathlib import Path

from transformer.errors import UserError
from transformer.machine.files import append_text, write_text
from transformer.runs.metric_writers import MetricWriter


class Metrics:
    """Adds lines to a run's metrics; those after `step`, which will come again, are dropped."""

    def __init__(self, folder: Path, step: int, boards: Sequence[MetricWriter] = ()):
        self.path, self.boards = folder / "metrics.jsonl", boards
        if self.path.exists():
            _keep(self.path, step)

    def write(self, values: Mapping[str, float]) -> None:
        """Adds a line; `values` has the step."""
        append_text(self.path, json.dumps(values) + "\n")
        for board in self.boards:
            board.write(values)

    def close(self) -> None:
        """Closes every board; the file itself is open only while a line is written."""
        for board in self.boards:
            board.close()


def read_metrics(folder: Path) -> list[dict[str, float]]:
    """The lines of a run's metrics, but for what is none: one is cut off where a run was killed,
    and what is no finite number is no value.

    Raises UserError when there are none yet.
    """
    path, lines = folder / "metrics.jsonl", []
    if not path.exists():
        raise UserError(f"{path} does not exist: train.py writes it after the first updates")
    for line in path.read_bytes().splitlines():
        with suppress(
            ValueError, TypeError, KeyError, AttributeError, ArithmeticError, RecursionError
        ):
            values = {name: n for name, n in json.loads(line).items() if _is_number(n)}
            if values["step"] >= 0 and values["seconds"] >= 0:
                lines.append(values)
    return lines


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def _keep(path: Path, step: int) -> None:
    """Drops the lines that the updates after a restored checkpoint will write again."""
    kept = [values for values in read_metrics(path.parent) if values["step"] <= step]
    write_text(path, "".join(json.dumps(values) + "\n" for values in kept))
