"""How far training grows with the number of devices, estimated for absent GPUs and TPUs.

    python -m benchmarks.growth h100 h100:8 h100:64 h100:256
    python -m benchmarks.growth v5e:1x1 v5e:2x4 v5e:8x8 v5e:16x16

Needs pip install -e '.[plan]' (see compiled.py). The base model is compiled for so many devices,
with its state copied to all of them, or split (`train.shard_state`). Each row has an update with
`tokens` target tokens for each device (weak scaling) or on all together (strong scaling).

Times are estimates: for a device's own work those of compiled.py, for the collectives their bytes
over what a device is sold for to send. In a ring of N devices, each sends 2 (N - 1) / N of what is
summed, and (N - 1) / N of what is gathered, or of what is summed in parts. Nothing overlaps.
Between more than eight GPUs, the network counts. Efficiency is the share of an update that is not
communication.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from unittest import mock

import tyro
from jax.sharding import Mesh

from benchmarks.compiled import Compiled, estimate, lowered_update, prepared, total
from benchmarks.hlo import COLLECTIVES, Program, executed, parse
from benchmarks.measure import table, versions
from transformer.commands.command_line import parse_script
from transformer.commands.program import run_command
from transformer.config.settings import Positive
from transformer.machine.targets import Target, mesh_of

MACHINE = 8
"""GPUs of a machine."""
LINKS = {"h100": 450e9, "a100": 300e9, "v4": 300e9, "v5e": 200e9, "v5p": 600e9, "v6e": 448e9}
"""Bytes a second that a device sends to others at most, by data sheets: a GPU by NVLink within a
machine, a TPU by its links."""
NETWORK = 50e9
"""Bytes a second that each GPU of a machine sends to other machines: 400 Gbit/s."""


@dataclass(frozen=True)
class Growth:
    """Estimate how training grows with the number of devices."""

    targets: tyro.conf.Positional[tuple[str, ...]]
    """Kinds and numbers of devices, as in compiled.py."""
    config: Path = Path("configs/wmt14_base.py")
    """The config file of the model."""
    tokens: Positive = 25_000
    """Target tokens of an update, for each device or on all together."""


def main(words: list[str]) -> None:
    command = parse_script(Growth, words, "python -m benchmarks.growth")
    print(f"{command.config}, {command.tokens:,} target tokens; {versions('jax')}\n", flush=True)
    rows = []
    for name in command.targets:
        target, mesh = mesh_of(name)
        for scaling in ("weak", "strong") if mesh.size > 1 else ("weak",):
            for is_split in (False, True) if mesh.size > 1 else (False,):
                rows.append(row(command, name, target, mesh, scaling, is_split))
                print(" | ".join(rows[-1].values()), flush=True)
    print(f"\n{table(rows)}")


def row(
    command: Growth, name: str, target: Target, mesh: Mesh, scaling: str, is_split: bool
) -> dict[str, str]:
    """Compiles an update, and estimates what it takes."""
    tokens = command.tokens * (mesh.size if scaling == "weak" else 1)
    compiled = Compiled(command.config, tokens=tokens)
    config = prepared(compiled)
    config = replace(config, train=replace(config.train, shard_state=is_split))
    with mock.patch("jax.default_backend", return_value=target.platform):
        lowered = lowered_update(mesh, config, compiled, target.platform)
    options = {"xla_gpu_autotune_level": 0} if target.platform == "cuda" else {}
    executable = lowered.compile(compiler_options=options)
    program = parse(executable.as_text())
    work = total(estimate(program, target, compiled.length).values()).seconds
    sent = bytes_sent(program, mesh.size, compiled.length)
    speed = NETWORK if target.platform == "cuda" and mesh.size > MACHINE else LINKS[kind_of(name)]
    return {
        "devices": name,
        "scaling": scaling,
        "tokens per device": f"{tokens // mesh.size:,}",
        "state": "split" if is_split else "copied",
        "ms of work": f"{1000 * work:.1f}",
        "GB sent per device": f"{sent / 1e9:.2f}",
        "ms of communication": f"{1000 * sent / speed:.1f}",
        "efficiency": f"{work / (work + sent / speed):.0%}",
    }


def kind_of(target: str) -> str:
    return target.partition(":")[0]


def bytes_sent(program: Program, devices: int, loops: int) -> float:
    """What each device sends in an update, if the devices form a ring."""
    shares = {"all-reduce": 2 / devices, "all-gather": 1 / devices, "reduce-scatter": 1.0}
    sent = 0.0
    for _, line, times in executed(program, loops):
        name = line.opcode.removesuffix("-start")
        if name in COLLECTIVES:
            size = sum(shape.size for shape in line.shapes)
            sent += times * size * shares[name] * (devices - 1)
    return sent


if __name__ == "__main__":
    run_command(main)
