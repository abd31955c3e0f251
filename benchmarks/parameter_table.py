"""Parameters of known models beside the numbers that their papers print.

    python -m benchmarks.parameter_table
    python -m benchmarks.parameter_table --weights base      every weight and its shape

Needs nothing besides the project. Nothing is timed and no weight is made: only shapes are counted.

Table 3 of the paper says 65 million for base and 213 million for big, rounded, and section 5.1 a
shared vocabulary of about 37,000 tokens. The table shows our count with exactly that, and the
vocabularies with which the count would round to the paper's number; no vocabulary explains both.
A second table has BERT-large and GPT-3, whose vocabularies are known.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import jax

from benchmarks.measure import table, versions
from transformer.commands.command_line import parse_script
from transformer.commands.program import run_command
from transformer.config import ModelConfig
from transformer.config.files import load_config
from transformer.model.params import Params, count_params, init_params, param_table

VOCABULARY = 37_000
PAPER_MILLIONS = {"base": 65, "big": 213}
OTHERS_MILLIONS = {"bert_large": 340, "gpt3": 175_000}
CONFIGS = Path(__file__).parent.parent / "configs"


@dataclass(frozen=True)
class ParameterTable:
    """Count the parameters of known models."""

    weights: Literal["none", "base", "big", "bert_large", "gpt3"] = "none"
    """List the name, shape and size of every weight of this model too."""


def main(words: list[str]) -> None:
    command = parse_script(ParameterTable, words, "python -m benchmarks.parameter_table")
    print(f"{versions('jax')}; a shared vocabulary of {VOCABULARY:,}, no biases in attention\n")
    rows = []
    for name, millions in PAPER_MILLIONS.items():
        model = paper_model(name)
        count = count_params(shapes(model))
        fitting = [vocabulary_for(m * 1e6, count, model.d_model) for m in rounding(millions)]
        exact = vocabulary_for(millions * 1e6, count, model.d_model)
        rows.append(
            {
                "model": name,
                "parameters": f"{count:,}",
                "paper": f"{millions} million",
                "difference": f"{count / 1e6 / millions - 1:+.1%}",
                "vocabulary for the paper's number": f"{exact:,}",
                "for all that rounds to it": f"{fitting[0]:,} to {fitting[1]:,}",
            }
        )
    print(table(rows))
    others = [
        {
            "model": name,
            "parameters": f"{(count := count_params(shapes(paper_model(name)))):,}",
            "paper": f"{millions:,} million",
            "difference": f"{count / 1e6 / millions - 1:+.1%}",
        }
        for name, millions in OTHERS_MILLIONS.items()
    ]
    print(f"\n{table(others)}")
    if command.weights != "none":
        print(f"\n{param_table(shapes(paper_model(command.weights)))}")


def paper_model(name: str) -> ModelConfig:
    """That of configs/wmt14_NAME.py with the paper's vocabulary, or of configs/NAME.py."""
    if name in OTHERS_MILLIONS:
        return load_config(CONFIGS / f"{name}.py").model
    config = load_config(CONFIGS / f"wmt14_{name}.py")
    return config.with_vocabularies(VOCABULARY, VOCABULARY).model


def shapes(model: ModelConfig) -> Params:
    """The shapes of all parameters."""
    return jax.eval_shape(partial(init_params, model), jax.random.key(0))


def rounding(millions: int) -> tuple[float, float]:
    """The interval of values that round to `millions`."""
    return millions - 0.5, millions + 0.5


def vocabulary_for(parameters: float, count: int, d_model: int) -> int:
    """The vocabulary with which a model of `count` parameters would have `parameters`.

    The one embedding matrix has d_model parameters per token, and nothing else depends on it.
    """
    return round(VOCABULARY + (parameters - count) / d_model)


if __name__ == "__main__":
    run_command(main)
