"""Memory and compiling of training on TPUs that are not there, and whether all of it compiles.

    make plan-tpu                           # base and big on 4 and 16 chips of v4 and v5e
    python -m benchmarks.tpu_plans --models base --topologies v5e:2x2

Needs x86 Linux and pip install -e '.[plan]'. Each line is compiled in minutes. An update has as
many sentences of 32 tokens as make 25,000 target tokens on all chips; its state is copied to all,
or split (train.shard_state). `pmap`: gradients by a literal jax.pmap of the same functions.
`search`: beam search for a batch on one chip. What XLA calls a device of v4 is half a chip.
"""

import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from unittest import mock

import jax
from jax.sharding import Mesh

from benchmarks.compiled import Compiled, lowered_search, prepared
from benchmarks.measure import full_batch, table, versions
from transformer.commands.command_line import parse_script
from transformer.commands.program import run_command
from transformer.config import Config
from transformer.machine.targets import mesh_of
from transformer.model.batch import Batch
from transformer.training.programs import compile_update
from transformer.training.sharding import for_device
from transformer.training.step import gradients, state_shapes

TOKENS, LENGTH = 25_000, 32


@dataclass(frozen=True)
class Plans:
    """Compile training for TPUs that are not there."""

    models: tuple[str, ...] = ("base", "big")
    """Those of configs/wmt14_*.py."""
    topologies: tuple[str, ...] = ("v4:2x2x1", "v4:2x2x4", "v5e:2x2", "v5e:4x4")
    """Kinds of TPU, and how their chips lie."""


def main(words: list[str]) -> None:
    command = parse_script(Plans, words, "python -m benchmarks.tpu_plans")
    print(versions("jax", "libtpu"), flush=True)
    rows = []
    for name in command.topologies:
        _, mesh = mesh_of(name)
        for model in command.models:
            path = Path(f"configs/wmt14_{model}.py")
            config = prepared(Compiled(path, tokens=TOKENS, length=LENGTH))
            row = plan(mesh, config, f"{name}, {mesh.size} devices", model)
            print(row, file=sys.stderr, flush=True)
            rows.append(row)
    print(table(rows))


def plan(mesh: Mesh, config: Config, where: str, model: str) -> dict[str, str]:
    """A line of the table; memory is that of one device."""
    parts = mesh.size * config.train.micro_batches
    sentences = max(1, round(TOKENS / LENGTH / parts)) * parts
    batch = full_batch(sentences, LENGTH, LENGTH, config.model.target_vocab_size)
    row = {"TPU": where, "model": model}
    for name, is_split in (("copied", False), ("split", True)):
        laid_out = replace(config, train=replace(config.train, shard_state=is_split))
        program = compile_update(mesh, laid_out, batch, "tpu")
        row[f"state {name}, GB"] = f"{program.arguments / 1e9:.2f}"
        row[f"in between ({name}), GB"] = f"{program.additional / 1e9:.2f}"
        row[f"compiled ({name}), s"] = f"{program.seconds:.0f}"
    for name, compile_it in (("pmap", compiled_pmap), ("search", compiled_search)):
        start = time.perf_counter()
        compile_it(mesh, config, batch)
        row[f"{name}, s"] = f"{time.perf_counter() - start:.0f}"
    return row


def compiled_pmap(mesh: Mesh, config: Config, batch: Batch) -> None:
    """Gradients of each device's share of a batch, summed by the literal jax.pmap."""
    devices = list(mesh.devices.flat)
    model = replace(for_device(config.model, devices[0]), accelerator="")  # kernels want a mesh

    def step(params, batch):
        found = gradients(model, 1, params, batch, smoothing=0.1)
        return jax.lax.psum(found, "data")

    params = state_shapes(config).params
    shares = jax.tree.map(lambda ids: ids.reshape(len(devices), -1, ids.shape[1]), batch)
    pmapped = jax.pmap(step, axis_name="data", in_axes=(None, 0), devices=devices)
    pmapped.lower(params, shares).compile()


def compiled_search(mesh: Mesh, config: Config, _: Batch) -> None:
    """Beam search as translate.py has it, until its first pause."""
    with mock.patch("jax.default_backend", return_value="tpu"):  # caches ask
        lowered = lowered_search(mesh, config, LENGTH, "tpu")
    lowered.compile()


if __name__ == "__main__":
    run_command(main)
