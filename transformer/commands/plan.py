"""`train.py CONFIG --plan`: memory and time of training, here or on devices that are absent."""

from collections.abc import Callable

from transformer.commands.command_line import TrainCommand
from transformer.data.batching import sample
from transformer.data.corpus import check_corpora
from transformer.data.prepare import prepare_tokenizers, prepare_training
from transformer.machine import devices
from transformer.machine.targets import mesh_of
from transformer.training import sharding
from transformer.training.forecast import forecast


def show_plan(command: TrainCommand, log: Callable[[str], None]) -> None:
    """Prints memory and time of each batch shape: of the devices of --plan, or of those of this
    machine."""
    meshes = [(name, *mesh_of(name)) for name in command.plan or ()]
    devices.configure_devices("any" if meshes else command.device)
    if not meshes:
        meshes = [(devices.describe(), None, sharding.make_mesh())]
    config = command.settings
    check_corpora(config.data)
    config, tokenizers = prepare_tokenizers(config, *command.vocabulary, log)
    config, training = prepare_training(config, tokenizers, log)
    samples = [(sample(config, bucket), count) for bucket, count in training.plan.counts]
    for name, target, mesh in meshes:
        log(f"{name}, {config.model.dtype}, {mesh.size} devices")
        for line in forecast(config, mesh, target, samples):
            log(line)
