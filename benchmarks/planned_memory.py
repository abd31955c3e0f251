"""The memory of an update as `train.py --plan` forecasts it, and as measured.

    python -m benchmarks.planned_memory
    python -m benchmarks.planned_memory configs/quickstart.py        tries the script

Needs Linux, and nothing besides the project; about 12 GB for configs/wmt14_base.py. For each config
in a process of its own: a full batch of `data.batch_tokens` tokens in sentences of 32, its update
compiled, and computed many times. `planned` is the state, the batch and what XLA's plan has in
between; `tight` the most resident memory from there on, above that before there was a state, where
memory is tight, and `usual` where the C library keeps what was freed.
"""

from dataclasses import dataclass
from pathlib import Path

import jax
import tyro

from benchmarks.measure import (
    forget_peak,
    in_own_process,
    machine,
    memory_status,
    parse_lists,
    require_memory_status,
    table,
    versions,
)
from transformer.commands.program import run_command
from transformer.config import Config
from transformer.config.files import load_config
from transformer.config.settings import Positive
from transformer.data.batching import sample
from transformer.data.buckets import Bucket
from transformer.machine.devices import compute_in_this_thread
from transformer.machine.malloc import keep_memory, return_blocks, return_memory
from transformer.training import sharding
from transformer.training.optimizer import learning_rate
from transformer.training.programs import compile_update, new_state

LENGTH = 32
CONFIGS = ("quickstart", "multi30k", "lm_quickstart", "mlm_quickstart", "wmt14_base")


@dataclass(frozen=True)
class PlannedMemory:
    """Compare the planned memory of an update with the measured one."""

    config_files: tyro.conf.Positional[tuple[Path, ...]] = tuple(
        Path(f"configs/{name}.py") for name in CONFIGS
    )
    """Config files, of translators, language models and masked models."""
    updates: Positive = 20
    """How many are computed."""


def main(words: list[str]) -> None:
    command = parse_lists(PlannedMemory, words, "python -m benchmarks.planned_memory")
    require_memory_status()
    print(f"{machine()}\n{versions('jax')}", flush=True)
    rows = []
    for path in command.config_files:
        row = {"config": path.stem}
        for name in ("tight", "usual"):
            arguments = load_config(path), command.updates, name == "tight"
            planned, measured = in_own_process(update_memory, *arguments)
            row["planned MB"] = f"{planned / 1e6:,.0f}"
            row[f"{name} MB"] = f"{measured / 1e6:,.0f}"
            row[f"{name} / planned"] = f"{measured / planned:.2f}"
        print(row, flush=True)
        rows.append(row)
    print(f"\n{table(rows)}")


def update_memory(config: Config, updates: int, is_tight: bool) -> tuple[int, int]:
    """Planned and measured bytes of an update."""
    keep_memory()  # as train.py
    compute_in_this_thread()
    if is_tight:
        return_blocks()
    config = config.with_vocabularies(config.data.vocab_size, config.data.vocab_size)
    mesh, batch = sharding.make_mesh(), sample(config, full_bucket(config))
    program = compile_update(mesh, config, batch)
    return_memory()
    before = memory_status("VmRSS")
    state = new_state(mesh, config)
    return_memory()
    forget_peak()
    for _ in range(updates):
        state, _ = jax.block_until_ready(program.run(state, batch, learning_rate(config, 1)))
    return program.memory, memory_status("VmHWM") - before


def full_bucket(config: Config) -> Bucket:
    """The shape of a batch of `data.batch_tokens`; of length 0 is the side that does not exist."""
    source, target = (LENGTH * (side in config.data.sides) for side in ("source", "target"))
    return Bucket(config.data.batch_tokens // LENGTH, source, target)


if __name__ == "__main__":
    run_command(main)
