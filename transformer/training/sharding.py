"""Shardings of state and batches over devices.

`step.update` is a function of the whole batch. The state is replicated or sharded, the batch is
sharded, and the compiler adds the sums over devices: the same program runs on one device, on eight,
and on those of several machines, with a process on each. `jax.pmap` is a wrapper of the same
machinery today.
"""

import itertools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from transformer.config import Config, ModelConfig
from transformer.model.batch import PAD, Batch
from transformer.model.params import Params

Tree = TypeVar("Tree")

UPDATES_BETWEEN_CHECKS = 20

SMALLEST_SHARDED = 2**14
"""Arrays of fewer elements are replicated."""


@dataclass(frozen=True)
class Layout:
    """How an update is computed on a mesh of devices; without a mesh, on one device.

    `shardings` are those of the parameters between updates.
    """

    mesh: Mesh | None = None
    shardings: Any = None

    @property
    def devices(self) -> int:
        """The number of devices."""
        return 1 if self.mesh is None else self.mesh.size

    def active(self) -> AbstractContextManager:
        """The context in which an update is traced: the kernel for TPUs needs the mesh."""
        if self.mesh is None:
            return nullcontext()
        return jax.sharding.use_abstract_mesh(self.mesh.abstract_mesh)

    def gather(self, params: Params) -> Params:
        """All parameters on each device."""
        if self.mesh is None:
            return params
        return jax.lax.with_sharding_constraint(params, replicated(self.mesh))

    def scatter(self, grads: Params) -> Params:
        """Summed gradients, sharded as their parameters."""
        if self.mesh is None:
            return grads
        return jax.lax.with_sharding_constraint(grads, self.shardings)


ONE_DEVICE = Layout()


def in_any_process(should_stop: Callable[[], bool]) -> Callable[[], bool]:
    """True in all processes at the same update, soon after it is true in one."""
    if jax.process_count() == 1:
        return should_stop
    updates = itertools.count(1)

    def any_should_stop() -> bool:
        if next(updates) % UPDATES_BETWEEN_CHECKS:
            return False
        return bool(multihost_utils.process_allgather(np.array(should_stop())).any())

    return any_should_stop


def make_mesh() -> Mesh:
    """All devices of all processes, along one axis `data`."""
    return jax.make_mesh((jax.device_count(),), ("data",), axis_types=(AxisType.Auto,))


def replicated(mesh: Mesh) -> NamedSharding:
    """All of an array on each device."""
    return NamedSharding(mesh, PartitionSpec())


def split_over(mesh: Mesh) -> NamedSharding:
    """An array sharded over the devices along its leading axis."""
    return NamedSharding(mesh, PartitionSpec("data"))


def shardings(mesh: Mesh, config: Config, tree: Tree) -> Tree:
    """The sharding of each array of a state or a part of one: replicated; or with
    `train.shard_state` sharded along its longest axis that the number of devices divides.

    Small arrays are always replicated. (The rule is that of big_vision,
    https://github.com/google-research/big_vision. Layers are never an array's longest axis.)
    """

    def place(leaf):
        axes = [axis for axis in range(leaf.ndim) if leaf.shape[axis] % mesh.size == 0]
        if not config.train.shard_state or leaf.size < SMALLEST_SHARDED or not axes:
            return replicated(mesh)
        longest = max(axes, key=leaf.shape.__getitem__)
        return NamedSharding(mesh, PartitionSpec(*[None] * longest, "data"))

    return jax.tree.map(place, tree)


def shard(mesh: Mesh, config: Config, tree: Tree) -> Tree:
    """A state, or a part of one, that every process has, sharded as `shardings` says, in new
    memory: `jit_update` donates it."""
    places = shardings(mesh, config, tree)
    return jax.jit(lambda tree: tree, out_shardings=places)(_shard(places, tree))


def gather(mesh: Mesh, tree: Tree) -> Tree:
    """All of a tree on each device; a replicated tree is not copied."""
    if all(leaf.is_fully_replicated for leaf in jax.tree.leaves(tree)):
        return tree
    return jax.jit(lambda tree: tree, out_shardings=replicated(mesh))(tree)


def shard_batch(mesh: Mesh, batch: Batch, micro_batches: int = 1) -> Batch:
    """The rows of a batch, the same one in all processes, sharded over the devices.

    Rows of PAD are added so that each device gets the same number in each micro-batch. So batches
    do not depend on the number of devices.
    """
    batch = pad_rows(mesh, batch, micro_batches)
    return _shard(jax.tree.map(lambda _: split_over(mesh), batch), batch)


def pad_rows(mesh: Mesh, batch: Batch, micro_batches: int) -> Batch:
    """A batch with the rows of PAD that `shard_batch` adds."""
    more = -len(batch.target_out) % (mesh.size * micro_batches)
    return jax.tree.map(lambda ids: np.pad(ids, ((0, more), (0, 0)), constant_values=PAD), batch)


def _shard(places, tree):
    """Gives the devices of each process their part of arrays that all processes have."""

    def shard_one(array, place):
        if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
            return jax.random.wrap_key_data(shard_one(jax.random.key_data(array), place))
        array = np.asarray(array)
        return jax.make_array_from_callback(array.shape, place, array.__getitem__)

    return jax.tree.map(shard_one, tree, places)


def local_copy(params: Params) -> Params:
    """One device's copy of replicated parameters."""
    return jax.tree.map(lambda leaf: leaf.addressable_data(0), params)


def for_device(model: ModelConfig, device: jax.Device) -> ModelConfig:
    """The same model, computed in the fastest way on such a device.

    A TPU recomputes layers rather than storing their residuals (estimated: benchmarks/compiled.py).
    The kernels for NVIDIA's GPUs need Ampere or later.
    """
    if device.platform == "tpu":
        return replace(model, recompute=True, accelerator="tpu")
    capability = getattr(device, "compute_capability", "0")  # AMD's begin with letters
    if capability[0].isdigit() and float(capability) >= 8:
        return replace(model, accelerator="gpu")
    return model
