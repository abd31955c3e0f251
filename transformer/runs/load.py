"""A trained model out of its run folder."""

from dataclasses import dataclass
from pathlib import Path

from transformer.config import Config
from transformer.data.vocabularies import Tokenizers, load_tokenizers
from transformer.model.params import Params
from transformer.runs.checkpoints import load_params
from transformer.runs.folder import load_run_config


@dataclass(frozen=True)
class Run:
    """The settings, parameters and tokenizers of a model; `label` names its checkpoint."""

    config: Config
    params: Params
    tokenizers: Tokenizers
    label: str = ""


def load_run(folder: Path, checkpoint: str = "best", config: Config | None = None) -> Run:
    """The model of a run, with the run's settings or these. Raises UserError."""
    config = config or load_run_config(folder)
    tokenizers = load_tokenizers(folder / "tokenizer", config.data)
    params, label = load_params(folder, config, checkpoint)
    return Run(config, params, tokenizers, label)
