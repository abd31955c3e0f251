"""metrics.jsonl, one line a report, and the same for TensorBoard where it is installed."""

import importlib.util
import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from transformer.errors import UserError, naming


class Metrics:
    """Adds lines to a run's metrics; those after `step`, which will come again, are dropped."""

    def __init__(self, folder: Path, step: int):
        self.path = folder / "metrics.jsonl"
        if self.path.exists():
            _keep(self.path, step)
        self.board = _tensorboard(folder / "tensorboard", step)

    def write(self, values: Mapping[str, float]) -> None:
        """Adds a line; `values` has the step."""
        with naming(self.path), self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(values) + "\n")
        if self.board:
            with naming(self.path.parent / "tensorboard"):
                for name in values.keys() - {"step", "seconds"}:
                    self.board.add_scalar(name, values[name], values["step"])

    def close(self) -> None:
        if self.board:
            with suppress(OSError):  # what matters has been said by then
                self.board.close()


def read_metrics(folder: Path) -> list[dict[str, float]]:
    """The lines of a run's metrics, but for what is none: one is cut off where a run was killed.

    Raises UserError when there are none yet.
    """
    path, lines = folder / "metrics.jsonl", []
    if not path.exists():
        raise UserError(f"{path} does not exist: train.py writes it after the first updates")
    for line in path.read_bytes().splitlines():
        with suppress(ValueError, TypeError, KeyError):
            values = json.loads(line)
            if values["step"] >= 0 and values["seconds"] >= 0:
                lines.append(values)
    return lines


def _keep(path: Path, step: int) -> None:
    """Drops the lines that the updates after a restored checkpoint will write again."""
    kept = [values for values in read_metrics(path.parent) if values["step"] <= step]
    temporary = path.with_suffix(".tmp")
    with naming(temporary):
        temporary.write_text("".join(json.dumps(v) + "\n" for v in kept), encoding="utf-8")
    temporary.replace(path)


def _tensorboard(folder: Path, step: int):
    """A writer, if the extra `tensorboard` is installed."""
    if importlib.util.find_spec("tensorboardX") is None:
        return None
    absent = sys.modules.setdefault("torch", None) is None  # its import takes seconds, for nothing
    from tensorboardX import SummaryWriter

    if absent:
        del sys.modules["torch"]
    return SummaryWriter(str(folder), purge_step=step + 1)
