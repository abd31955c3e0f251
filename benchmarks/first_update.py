"""Seconds from the start of the process to the end of the first update, cache empty and warm.

    python -m benchmarks.first_update

Needs nothing besides the project. The paper's base model (configs/wmt14_base.py, 37,000 tokens of
vocabulary) in float32, a batch of 32 sentences of 32+32 tokens. What train.py does besides (reading
a corpus, training a vocabulary) is left out; see input_pipeline.py. Each start is a process of its
own with imports, new parameters, compiling and one update; the first finds the cache of compiled
programs empty, the others find what it left there.
"""

import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

import jax

from benchmarks.measure import environment_with_cache, full_batch, machine, summary, table, versions
from transformer.commands.command_line import parse_script
from transformer.commands.program import run_command
from transformer.config.files import load_config
from transformer.config.settings import Positive
from transformer.machine import devices
from transformer.machine.malloc import keep_memory
from transformer.training import sharding
from transformer.training.optimizer import learning_rate
from transformer.training.programs import jit_update, new_state

SENTENCES, LENGTH, VOCABULARY = 32, 32, 37_000


@dataclass(frozen=True)
class FirstUpdate:
    """Time the first update of the base model."""

    rounds: Positive = 3
    """Starts with a warm cache."""


def main(words: list[str]) -> None:
    command = parse_script(FirstUpdate, words, "python -m benchmarks.first_update")
    print(f"{machine()}\n{versions('jax')}\n")
    with tempfile.TemporaryDirectory() as folder:
        empty = start(folder)
        warm = summary([start(folder) for _ in range(command.rounds)])
    rows = [
        {"cache of compiled programs": "empty", "seconds": f"{empty:.1f}"},
        {"cache of compiled programs": "warm (median)", "seconds": f"{warm.median:.1f}"},
    ]
    print(table(rows))


def start(cache: str) -> float:
    """Seconds that a process takes for its first update."""
    words = [sys.executable, "-c", "from benchmarks.first_update import update; update()"]
    began = time.perf_counter()
    subprocess.run(words, env=environment_with_cache(cache), check=True)
    return time.perf_counter() - began


def update() -> None:
    """The first update of a new model, with the imports of train.py."""
    import transformer.data.corpus
    import transformer.data.tokenizer
    import transformer.evaluation.scores
    import transformer.runs.checkpoints
    import transformer.training.loop  # noqa: F401

    keep_memory()
    devices.configure_devices("any")
    path = Path(__file__).parent.parent / "configs" / "wmt14_base.py"
    config = load_config(path).with_vocabularies(VOCABULARY, VOCABULARY)
    config = replace(config, model=replace(config.model, dtype="float32"))
    mesh = sharding.make_mesh()
    state = new_state(mesh, config)
    step = jit_update(mesh, config)
    batch = full_batch(SENTENCES, LENGTH, LENGTH, VOCABULARY)
    rows = sharding.shard_batch(mesh, batch)
    jax.block_until_ready(step(state, rows, learning_rate(config, 1)))


if __name__ == "__main__":
    run_command(main)
