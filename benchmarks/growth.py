"""How far training grows with the number of devices, estimated for absent GPUs and TPUs.

    python -m benchmarks.growth h100 h100:8 h100:64 h100:256
    python -m benchmarks.growth v5e:1x1 v5e:2x4 v5e:8x8 v5e:16x16 --states replicated

Needs pip install -e '.[plan]' (see compiled.py). The base model is compiled for each number of
devices, with its state replicated or sharded (`train.shard_state`). An update has `tokens` target
tokens for each device (weak scaling), or on all together (strong scaling).

Times are estimates: for a device's own work those of compiled.py, for collectives the bytes that a
device sends in a ring, over what it is sold for to send. Nothing overlaps, and what collectives
read from and write to memory counts as work. More than eight GPUs are machines of eight, each GPU
with a network card: a ring for each card crosses the network, which together sends as much as eight
cards. Efficiency compares with the first target of the list, which should be one device: with the
same tokens for each device the time of the work there over the time here, and with the same tokens
on all devices that divided by the number of devices.
"""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

import tyro
from jax.sharding import Mesh

from benchmarks.compiled import Compiled, compiled_for, estimate, lowered_update, prepared, total
from benchmarks.hlo import collectives, parse
from benchmarks.measure import parse_lists, table, versions
from transformer.commands.program import run_command
from transformer.machine.targets import Target, mesh_of

MACHINE = 8
"""GPUs of a machine."""
LINKS = {"h100": 450e9, "a100": 300e9, "v4": 300e9, "v5e": 200e9, "v5p": 600e9, "v6e": 448e9}
"""Bytes a second that a device sends to others at most, by data sheets: a GPU by NVLink within a
machine, a TPU by its links."""
NETWORK = 50e9
"""Bytes a second of the network card of a GPU: 400 Gbit/s."""


@dataclass(frozen=True)
class Growth:
    """Estimate how training grows with the number of devices."""

    targets: tyro.conf.Positional[tuple[str, ...]]
    """Kinds and numbers of devices, as in compiled.py; the first is compared with."""
    config: Path = Path("configs/wmt14_base.py")
    """The config file of the model."""
    tokens: int = 25_000
    """Target tokens of an update, for each device or on all together."""
    scalings: tuple[Literal["weak", "strong"], ...] = ("weak", "strong")
    """The same tokens for each device (weak), or on all together (strong)."""
    states: tuple[Literal["replicated", "sharded"], ...] = ("replicated", "sharded")
    """Whether the state is sharded over the devices."""


def main(words: list[str]) -> None:
    command = parse_lists(Growth, words, "python -m benchmarks.growth")
    print(f"{command.config}, {command.tokens:,} target tokens; {versions('jax')}\n", flush=True)
    rows, alone = [], 0.0
    for name in command.targets:
        target, mesh = mesh_of(name)
        for scaling in command.scalings if mesh.size > 1 else ("weak",):
            for state in command.states if mesh.size > 1 else ("replicated",):
                tokens = command.tokens * (mesh.size if scaling == "weak" else 1)
                work, sent = estimated(command, target, mesh, tokens, state == "sharded")
                alone = alone or work
                seconds = work + sent / speed(name, mesh.size)
                ideal = alone if scaling == "weak" else alone / mesh.size
                row = {
                    "devices": name,
                    "scaling": scaling,
                    "tokens per device": f"{tokens // mesh.size:,}",
                    "state": state,
                    "ms of work": f"{1000 * work:.1f}",
                    "GB sent by each": f"{sent / 1e9:.2f}",
                    "ms of communication": f"{1000 * (seconds - work):.1f}",
                    "efficiency": f"{ideal / seconds:.0%}",
                }
                print(" | ".join(row.values()), flush=True)
                rows.append(row)
    print(f"\n{table(rows)}")


def estimated(
    command: Growth, target: Target, mesh: Mesh, tokens: int, is_sharded: bool
) -> tuple[float, float]:
    """Seconds of a device's work in an update, and the bytes that it sends."""
    compiled = Compiled(command.config, tokens=tokens)
    config = prepared(compiled)
    config = replace(config, train=replace(config.train, shard_state=is_sharded))
    lower = partial(lowered_update, mesh, config, compiled, target.platform)
    program = parse(compiled_for(target, lower).as_text())
    work = total(estimate(program, target, compiled.length).values()).seconds
    return work, sum(one.sent(mesh.size) for one in collectives(program, compiled.length))


def speed(target: str, devices: int) -> float:
    """Bytes a second that a device sends in a ring."""
    links = LINKS[target.partition(":")[0]]
    is_gpu = target[0] in "ha"
    return min(links, MACHINE * NETWORK) if is_gpu and devices > MACHINE else links


if __name__ == "__main__":
    run_command(main)
