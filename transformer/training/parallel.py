"""Devices: the only file that knows how many there are.

`update` is a function of the whole batch. Here the state is copied to every device, the batch is
split over them, and the compiler adds the sums between devices: the same program runs on one
device and on eight. `jax.pmap` is today a wrapper of the same machinery.
"""

from functools import partial

import jax
import optax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from transformer.config import Config
from transformer.model.batch import Batch
from transformer.model.params import Params
from transformer.training.step import TrainState, update


def make_mesh() -> Mesh:
    """All devices along one axis `data`."""
    return jax.make_mesh((jax.device_count(),), ("data",), axis_types=(AxisType.Auto,))


def replicated(mesh: Mesh) -> NamedSharding:
    return NamedSharding(mesh, PartitionSpec())


def split_over(mesh: Mesh) -> NamedSharding:
    """The leading axis of an array split over the devices."""
    return NamedSharding(mesh, PartitionSpec("data"))


def replicate(mesh: Mesh, state: TrainState) -> TrainState:
    """The state on every device, in memory of its own: `jit_update` gives it up."""
    return jax.jit(lambda tree: tree, out_shardings=replicated(mesh))(state)


def shard_batch(mesh: Mesh, batch: Batch) -> Batch:
    """The rows of a batch spread over the devices."""
    return jax.device_put(batch, split_over(mesh))


def local_copy(params: Params) -> Params:
    """One device's copy of replicated parameters, for work that is not spread."""
    return jax.tree.map(lambda leaf: leaf.addressable_data(0), params)


def jit_update(mesh: Mesh, config: Config, optimizer: optax.GradientTransformation):
    """`update` compiled for the mesh: (state, batch) -> (state, sums). Gives up the old state."""
    return jax.jit(
        partial(update, config, optimizer),
        in_shardings=(replicated(mesh), split_over(mesh)),
        out_shardings=replicated(mesh),
        donate_argnums=0,
    )
