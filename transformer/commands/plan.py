"""`train.py CONFIG --plan`: memory and time of training, here or on devices that are absent."""

from collections.abc import Callable, Sequence
from pathlib import Path

from transformer.config import Config
from transformer.data.batching import sample
from transformer.data.corpus import check_corpora
from transformer.data.prepare import prepare_tokenizers, prepare_training
from transformer.machine import devices
from transformer.machine.targets import mesh_of
from transformer.training import sharding
from transformer.training.forecast import forecast


def show_plan(
    config: Config, targets: Sequence[str], home: Path | None, device: str, log: Callable
) -> None:
    """Prints memory and time of each batch shape: of the target devices, or of those of this
    machine. `home` is the run that the vocabulary comes from, if any."""
    meshes = [(name, *mesh_of(name)) for name in targets]
    devices.configure_devices("any" if meshes else device)
    if not meshes:
        meshes = [(devices.describe(), None, sharding.make_mesh())]
    check_corpora(config.data)
    config, tokenizers = prepare_tokenizers(config, home, log)
    config, training = prepare_training(config, tokenizers, log)
    samples = [(sample(config, bucket), count) for bucket, count in training.plan.counts]
    for name, target, mesh in meshes:
        log(f"{name}, {config.model.dtype}, {mesh.size} devices")
        for line in forecast(config, mesh, target, samples):
            log(line)
