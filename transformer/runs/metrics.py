"""Metrics of training: metrics.jsonl, one line per report, and tools that draw curves of it."""

import importlib.util
import json
import secrets
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from math import isfinite
from pathlib import Path
from typing import Any

from transformer.errors import UserError, naming
from transformer.machine.files import append_text, write_text


class TensorBoard:
    """Drops points after `step`, which are going to be written again."""

    def __init__(self, folder: Path, step: int):
        self.folder = folder
        # Its import of torch takes seconds, for nothing.
        absent = sys.modules.setdefault("torch", None) is None  # ty: ignore[no-matching-overload]
        from tensorboardX import SummaryWriter

        if absent:
            del sys.modules["torch"]
        self.writer = SummaryWriter(str(folder), purge_step=step + 1)

    def write(self, values: Mapping[str, float]) -> None:
        """Adds a point at `values["step"]` to the curve of every value except step and seconds."""
        with naming(self.folder):
            for name in values.keys() - {"step", "seconds"}:
                self.writer.add_scalar(name, values[name], values["step"])

    def close(self) -> None:
        """Writes what is not on disk yet, and ignores it where that fails."""
        with suppress(OSError):  # metrics.jsonl has everything
            self.writer.close()


class WeightsAndBiases:
    """A run of the same name, continued when training is (its id is kept in RUN/wandb/id).

    Points that are written again after a checkpoint was restored replace themselves.
    """

    def __init__(self, folder: Path, project: str, settings: dict[str, Any]):
        import wandb

        kept = folder / "wandb" / "id"
        with naming(kept):
            kept.parent.mkdir(exist_ok=True)
            if not kept.exists():
                write_text(kept, secrets.token_hex(8))
            number = kept.read_text()
        try:
            self.run = wandb.init(
                project=project,
                name=folder.resolve().name,
                id=number,
                resume="allow",
                dir=str(folder),
                config=settings,
                settings=wandb.Settings(console="off"),
            )
        except wandb.errors.Error as error:
            raise UserError(
                f"--wandb {project}: {str(error).rstrip('.')}; log in with wandb login, or set "
                "WANDB_MODE=offline to keep the metrics in the run folder"
            ) from error
        self.run.define_metric("*", step_metric="step")

    def write(self, values: Mapping[str, float]) -> None:
        """Logs the values of one report, the step among them."""
        self.run.log(dict(values))

    def close(self) -> None:
        """Ends the run at Weights & Biases; every point is sent, or kept where it is offline."""
        self.run.finish()


MetricWriter = TensorBoard | WeightsAndBiases


def open_writers(
    folder: Path, step: int, project: str, settings: dict[str, Any]
) -> list[MetricWriter]:
    """TensorBoard where the extra `tensorboard` is installed, and Weights & Biases where a project
    is named. `settings` are the run's. Raises UserError where Weights & Biases cannot start."""
    writers: list[MetricWriter] = []
    if importlib.util.find_spec("tensorboardX"):
        writers.append(TensorBoard(folder / "tensorboard", step))
    if project:
        writers.append(WeightsAndBiases(folder, project, settings))
    return writers


class Metrics:
    """Adds lines to a run's metrics; drops those after `step`, and half a line at the end."""

    def __init__(self, folder: Path, step: int, writers: Sequence[MetricWriter] = ()):
        self.path, self.writers = folder / "metrics.jsonl", writers
        if self.path.exists():
            kept = [values for values in read_metrics(folder) if values["step"] <= step]
            write_text(self.path, "".join(json.dumps(values) + "\n" for values in kept))

    def write(self, values: Mapping[str, float]) -> None:
        """Adds a line; `values` has the step."""
        append_text(self.path, json.dumps(values) + "\n")
        for writer in self.writers:
            writer.write(values)

    def close(self) -> None:
        """Closes every writer; the file itself is open only while a line is written."""
        for writer in self.writers:
            writer.close()


def read_metrics(folder: Path) -> list[dict[str, float]]:
    """The lines of a run's metrics with their finite values; damaged lines are skipped, such as the
    last one of a run that was killed. Raises UserError when there are none yet."""
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
