"""How state and batches lie on devices.

`step.update` is a function of the whole batch. The state is copied to every device, or split over
them, the batch is split, and the compiler adds the sums between devices: the same program runs on
one device, on eight, and on those of several machines, each with a process of its own. `jax.pmap`
is today a wrapper of the same machinery.
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

UPDATES_BETWEEN_AGREEMENTS = 20

SMALL = 2**14
"""An array of fewer numbers is not worth splitting."""


@dataclass(frozen=True)
class Layout:
    """How an update is computed on a mesh of devices; without one, on one device.

    `shardings` are those of the parameters between updates.
    """

    mesh: Mesh | None = None
    shardings: Any = None

    @property
    def devices(self) -> int:
        """How many there are."""
        return 1 if self.mesh is None else self.mesh.size

    def active(self) -> AbstractContextManager:
        """In which an update is traced: the kernel for TPUs asks for the mesh."""
        if self.mesh is None:
            return nullcontext()
        return jax.sharding.use_abstract_mesh(self.mesh.abstract_mesh)

    def gather(self, params: Params) -> Params:
        """All parameters on each device."""
        if self.mesh is None:
            return params
        return jax.lax.with_sharding_constraint(params, replicated(self.mesh))

    def scatter(self, grads: Params) -> Params:
        """Summed gradients where their parameters are."""
        if self.mesh is None:
            return grads
        return jax.lax.with_sharding_constraint(grads, self.shardings)


ONE_DEVICE = Layout()


def agreed(should_stop: Callable[[], bool]) -> Callable[[], bool]:
    """True in every process, at the same update, soon after it is in one."""
    if jax.process_count() == 1:
        return should_stop
    updates = itertools.count(1)

    def one_should_stop() -> bool:
        if next(updates) % UPDATES_BETWEEN_AGREEMENTS:
            return False
        return bool(multihost_utils.process_allgather(np.array(should_stop())).any())

    return one_should_stop


def make_mesh() -> Mesh:
    """All devices of all processes along one axis `data`."""
    return jax.make_mesh((jax.device_count(),), ("data",), axis_types=(AxisType.Auto,))


def replicated(mesh: Mesh) -> NamedSharding:
    """The whole of an array on every device."""
    return NamedSharding(mesh, PartitionSpec())


def split_over(mesh: Mesh) -> NamedSharding:
    """The leading axis of an array split over the devices."""
    return NamedSharding(mesh, PartitionSpec("data"))


def shardings(mesh: Mesh, config: Config, tree: Tree) -> Tree:
    """How a state, or a part of one, lies on the devices: all of it on each; or with
    `train.shard_state` each array split along its longest axis that they divide.

    Small arrays are copied then too. (The rule is that of big_vision,
    https://github.com/google-research/big_vision. Layers are never an array's longest axis.)
    """

    def place(leaf):
        axes = [axis for axis in range(leaf.ndim) if leaf.shape[axis] % mesh.size == 0]
        if not config.train.shard_state or leaf.size < SMALL or not axes:
            return replicated(mesh)
        longest = max(axes, key=leaf.shape.__getitem__)
        return NamedSharding(mesh, PartitionSpec(*[None] * longest, "data"))

    return jax.tree.map(place, tree)


def shard(mesh: Mesh, config: Config, tree: Tree) -> Tree:
    """A state, or a part of one, that every process has, laid out as `shardings` says, in new
    memory: `jit_update` donates it."""
    places = shardings(mesh, config, tree)
    return jax.jit(lambda tree: tree, out_shardings=places)(_shard(places, tree))


def gather(mesh: Mesh, tree: Tree) -> Tree:
    """All of a tree on every device; what is there is not copied."""
    if all(leaf.is_fully_replicated for leaf in jax.tree.leaves(tree)):
        return tree
    return jax.jit(lambda tree: tree, out_shardings=replicated(mesh))(tree)


def shard_batch(mesh: Mesh, batch: Batch, parts: int = 1) -> Batch:
    """The rows of a batch, the same one in every process, spread over the devices.

    Each device gets as many rows for each of the parts in which the batch passes through the model:
    as many as that takes are added, of nothing but PAD. So batches do not depend on the devices.
    """
    batch = pad_rows(mesh, batch, parts)
    return _shard(jax.tree.map(lambda _: split_over(mesh), batch), batch)


def pad_rows(mesh: Mesh, batch: Batch, parts: int) -> Batch:
    """The rows of a batch, and those of PAD that `shard_batch` adds."""
    more = -len(batch.target_out) % (mesh.size * parts)
    return jax.tree.map(
        lambda ids: np.pad(ids, ((0, more), (0, 0)), constant_values=PAD),
        batch,
    )


def _shard(places, tree):
    """Each process gives its own devices their part of arrays that all processes have."""

    def spread_one(array, place):
        if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
            return jax.random.wrap_key_data(spread_one(jax.random.key_data(array), place))
        array = np.asarray(array)
        return jax.make_array_from_callback(array.shape, place, array.__getitem__)

    return jax.tree.map(spread_one, tree, places)


def local_copy(params: Params) -> Params:
    """One device's copy of replicated parameters, for work that is not spread."""
    return jax.tree.map(lambda leaf: leaf.addressable_data(0), params)


def fitted(model: ModelConfig, device: jax.Device) -> ModelConfig:
    """The same model, computed as is quickest on such a device.

    A TPU computes layers again rather than writing what they keep to its memory and reading it
    (estimated: benchmarks/compiled.py). The kernels for NVIDIA's GPUs want Ampere or later.
    """
    if device.platform == "tpu":
        return replace(model, recompute=True, accelerator="tpu")
    capability = getattr(device, "compute_capability", "0")  # AMD's begin with letters
    if capability[0].isdigit() and float(capability) >= 8:
        return replace(model, accelerator="gpu")
    return model
