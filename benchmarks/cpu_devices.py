"""What dividing an update among devices costs: this CPU as 1, 2, 4 and 8 devices.

    python -m benchmarks.cpu_devices

Needs nothing besides the project. The model of shape A (benchmarks/shapes.py); its state is
replicated on all devices, or sharded over them (`train.shard_state`). Strong scaling divides the
same sentences among more and more devices, weak scaling gives each device the same number. All
devices share the cores of this machine, so a table shows what division and communication cost, and
not what more hardware would gain; benchmarks/growth.py estimates that.
"""

import os
from dataclasses import dataclass

os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
)

import jax
from jax.sharding import AxisType

from benchmarks.measure import alternate, full_batch, machine, table, versions
from benchmarks.shapes import LENGTH, SHAPES, VOCABULARY, model_config
from transformer.commands.command_line import parse_script
from transformer.commands.program import run_command
from transformer.config import Config, TrainConfig
from transformer.config.settings import Positive
from transformer.machine import devices
from transformer.training import sharding
from transformer.training.optimizer import learning_rate
from transformer.training.programs import jit_update, new_state

COUNTS = (1, 2, 4, 8)
STATES = {"replicated": False, "sharded": True}
"""`train.shard_state`."""


@dataclass(frozen=True)
class CpuDevices:
    """Time updates on this CPU as several devices."""

    sentences: Positive = 32
    """Of 32 tokens: on all devices together in strong scaling, on eight of them in weak scaling."""
    rounds: Positive = 9
    """Updates of each that are timed."""


def main(words: list[str]) -> None:
    command = parse_script(CpuDevices, words, "python -m benchmarks.cpu_devices")
    devices.configure_devices("cpu")
    scalings = {"strong": dict.fromkeys(COUNTS, command.sentences)}
    scalings["weak"] = {count: max(1, command.sentences // 8) * count for count in COUNTS}
    places = {
        (count, scaling[count], is_sharded)
        for scaling in scalings.values()
        for count in COUNTS
        for is_sharded in STATES.values()
    }
    timings = alternate({place: update_on(*place) for place in sorted(places)}, command.rounds)
    rows = [
        {"scaling": name, "devices": f"{count}", "sentences": f"{scaling[count]}"}
        | {
            f"ms, state {state}": f"{1000 * timings[count, scaling[count], is_sharded].median:.0f}"
            for state, is_sharded in STATES.items()
        }
        for name, scaling in scalings.items()
        for count in COUNTS
    ]
    print(f"{machine()}, {versions('jax')}\n\n{table(rows)}")


def update_on(count: int, sentences: int, is_sharded: bool):
    """A function that makes one update on the first `count` devices."""
    chosen = jax.devices()[:count]
    mesh = jax.make_mesh((count,), ("data",), axis_types=(AxisType.Auto,), devices=chosen)
    config = Config(model=model_config(SHAPES["A"]), train=TrainConfig(shard_state=is_sharded))
    update, state = jit_update(mesh, config), new_state(mesh, config)
    batch = sharding.shard_batch(mesh, full_batch(sentences, LENGTH, LENGTH, VOCABULARY))
    rate = learning_rate(config, 1)

    def run() -> None:
        nonlocal state
        state, _ = jax.block_until_ready(update(state, batch, rate))

    return run


if __name__ == "__main__":
    run_command(main)
