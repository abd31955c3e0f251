"""Where the numbers of training go besides metrics.jsonl, to be looked at."""

import importlib.util
import secrets
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from transformer.errors import UserError, naming


class TensorBoard:
    """Points after `step`, which will come again, are dropped."""

    def __init__(self, folder: Path, step: int):
        self.folder = folder
        # Its import of torch takes seconds, for nothing.
        absent = sys.modules.setdefault("torch", None) is None  # type: ignore[arg-type]
        from tensorboardX import SummaryWriter

        if absent:
            del sys.modules["torch"]
        self.writer = SummaryWriter(str(folder), purge_step=step + 1)

    def write(self, values: Mapping[str, float]) -> None:
        """Adds a point at `values["step"]` to the curve of every value but step and seconds."""
        with naming(self.folder):
            for name in values.keys() - {"step", "seconds"}:
                self.writer.add_scalar(name, values[name], values["step"])

    def close(self) -> None:
        """Writes what is not on disk yet; says nothing where that fails."""
        with suppress(OSError):  # what matters has been said by then
            self.writer.close()


class WeightsAndBiases:
    """A run of the same name, which goes on when training does (its id is kept in RUN/wandb/id).

    Points that come again after a checkpoint has been restored are the same points.
    """

    def __init__(self, folder: Path, project: str, settings: dict[str, Any]):
        import wandb

        kept = folder / "wandb" / "id"
        with naming(kept):
            kept.parent.mkdir(exist_ok=True)
            if not kept.exists():
                kept.write_text(secrets.token_hex(8))
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
                f"--wandb {project}: {str(error).rstrip('.')}; wandb login lets it in, and with "
                "WANDB_MODE=offline it keeps all in the run folder"
            ) from error
        self.run.define_metric("*", step_metric="step")

    def write(self, values: Mapping[str, float]) -> None:
        """Logs the values of one report, the step among them."""
        self.run.log(dict(values))

    def close(self) -> None:
        """Ends the run at Weights & Biases, with every point sent, or kept where it is offline."""
        self.run.finish()


MetricWriter = TensorBoard | WeightsAndBiases


def open_writers(
    folder: Path, step: int, project: str, settings: dict[str, Any]
) -> list[MetricWriter]:
    """TensorBoard where the extra `tensorboard` is installed, and Weights & Biases where a project
    is named. `settings` are the run's.

    Raises UserError where Weights & Biases cannot begin.
    """
    boards: list[MetricWriter] = []
    if importlib.util.find_spec("tensorboardX"):
        boards.append(TensorBoard(folder / "tensorboard", step))
    if project:
        boards.append(WeightsAndBiases(folder, project, settings))
    return boards
