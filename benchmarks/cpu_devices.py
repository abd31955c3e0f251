"""What dividing an update among devices costs: this CPU as 1, 2, 4 and 8 devices.

    python -m benchmarks.cpu_devices

Needs nothing besides the project. The model of shape A (benchmarks/shapes.py); its state is
replicated on all devices, or sharded over them (`train.shard_state`). Strong scaling divides the
same sentences among more and more devices, weak scaling gives each device the same number. All
devices share the cores of this machine, so a table shows what division and communication cost, and
not what more hardware would gain; benchmarks/growth.py estimates that.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
)

import jax
from jax.sharding import AxisType

from benchmarks.measure import alternate, full_batch, machine, table, versions
from benchmarks.shapes import LENGTH, SHAPES, VOCABULARY, model_config
from benchmarks.work import our_updates
from transformer.commands.command_line import parse_script
from transformer.commands.program import run_command
from transformer.config import Config, TrainConfig
from transformer.config.settings import Positive
from transformer.machine import devices

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


def update_on(count: int, sentences: int, is_sharded: bool) -> Callable[[], float]:
    """A function that makes one update on the first `count` devices."""
    chosen = jax.devices()[:count]
    mesh = jax.make_mesh((count,), ("data",), axis_types=(AxisType.Auto,), devices=chosen)
    config = Config(model=model_config(SHAPES["A"]), train=TrainConfig(shard_state=is_sharded))
    batch = full_batch(sentences, LENGTH, LENGTH, VOCABULARY)
    return partial(our_updates(config, batch, mesh), 1)


if __name__ == "__main__":
    run_command(main)
