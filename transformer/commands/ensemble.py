"""The models that `--ensemble` names."""

from collections.abc import Sequence
from pathlib import Path

from transformer.commands.command_line import member
from transformer.config import ModelConfig
from transformer.data.languages import translates_alike
from transformer.errors import UserError
from transformer.model.params import Params
from transformer.runs.checkpoints import load_params
from transformer.runs.folder import load_run_config
from transformer.runs.load import Run


def load_others(
    first: Path, run: Run, names: Sequence[str]
) -> tuple[list[tuple[ModelConfig, Params]], str]:
    """The models that are named, each RUN or RUN:CHECKPOINT, to be used with that of `run` in the
    folder `first`, and the label of all checkpoints. Raises UserError for a run of other languages
    or of another vocabulary."""
    others, labels = [], [run.label]
    for folder, checkpoint in map(member, names):
        other = load_run_config(folder)
        if not translates_alike(other.data, run.config.data):
            raise UserError(f"--ensemble: {folder} does not translate between these languages")
        if other.data.vocabulary != run.config.data.vocabulary:
            raise UserError(
                f"--ensemble: {folder} has another vocabulary than {first}: only runs with "
                "the same training data and vocabulary settings share one"
            )
        params, label = load_params(folder, other, checkpoint)
        others.append((other.model, params))
        labels.append(f"{folder}, {label}")
    return others, "; ".join(labels)
