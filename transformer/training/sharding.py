"""Devices: the only file that knows how many there are.

`update` is a function of the whole batch. Here the state is copied to every device, or split over
them, the batch is split, and the compiler adds the sums between devices: the same program runs on
one device, on eight, and on those of several machines, each with a process of its own. `jax.pmap`
is today a wrapper of the same machinery.
"""

import itertools
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from transformer.config import Config, ModelConfig
from transformer.model.batch import PAD, Batch
from transformer.model.params import Params
from transformer.training.loss import LossSums
from transformer.training.optimizer import hyperparameters
from transformer.training.step import (
    Report,
    TrainState,
    apply,
    init_state,
    next_gradients,
    state_shapes,
)
from transformer.training.validation import sentence_sums

Tree = TypeVar("Tree")

UPDATES_BETWEEN_AGREEMENTS = 20

SMALL = 2**14
"""An array of fewer numbers is not worth splitting."""


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


def layout(mesh: Mesh, config: Config, tree: Tree) -> Tree:
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


def new_state(mesh: Mesh, config: Config) -> TrainState:
    """The state before the first update, from `train.seed`, as `layout` has it."""
    build, key = partial(init_state, config.model), jax.random.key(config.train.seed)
    places = layout(mesh, config, jax.eval_shape(build, key))
    state = jax.jit(build, out_shardings=places)(key)
    return begun_with(mesh, config, state, state.params)


def begun_with(mesh: Mesh, config: Config, state: TrainState, params: Params) -> TrainState:
    """The state with these parameters to begin with, and with what else the config keeps."""
    average = spread(mesh, config, whole(mesh, params)) if config.train.ema_decay else None
    usual = spread(mesh, config, jnp.float32(0)) if config.optimizer.skip_spikes else None
    return state.replace(params=params, average=average, usual_norm=usual)


def spread(mesh: Mesh, config: Config, tree: Tree) -> Tree:
    """A state, or a part of one, that every process has, as `layout` has it, in memory of its own:
    `jit_update` gives it up."""
    places = layout(mesh, config, tree)
    return jax.jit(lambda tree: tree, out_shardings=places)(_spread(places, tree))


def whole(mesh: Mesh, tree: Tree) -> Tree:
    """All of a tree on every device; what is there is not copied."""
    if all(leaf.is_fully_replicated for leaf in jax.tree.leaves(tree)):
        return tree
    return jax.jit(lambda tree: tree, out_shardings=replicated(mesh))(tree)


def shard_batch(mesh: Mesh, batch: Batch, parts: int = 1) -> Batch:
    """The rows of a batch, the same one in every process, spread over the devices.

    Each device gets as many rows for each of the parts in which the batch passes through the model:
    as many as that takes are added, of nothing but PAD. So batches do not depend on the devices.
    """
    batch = filled(mesh, batch, parts)
    return _spread(jax.tree.map(lambda _: split_over(mesh), batch), batch)


def filled(mesh: Mesh, batch: Batch, parts: int) -> Batch:
    """The rows of a batch, and those of PAD that `shard_batch` adds."""
    more = -len(batch.target_out) % (mesh.size * parts)
    return jax.tree.map(
        lambda ids: np.pad(ids, ((0, more), (0, 0)), constant_values=PAD),
        batch,
    )


def _spread(places, tree):
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


def jit_update(
    mesh: Mesh, config: Config
) -> Callable[[TrainState, Batch], tuple[TrainState, Report]]:
    """`step.update` compiled for the mesh, of batches from `shard_batch`. Gives up the old state.

    Where the state is split, each device gets all parameters for its rows of the batch, and of
    the summed gradient its part, with which it moves its part of the parameters.
    """
    copied, model = replicated(mesh), fitted(config.model, mesh.devices.flat[0])
    places = layout(mesh, config, state_shapes(config))

    def update_on_mesh(numbers, state, batch):
        with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):  # a TPU's kernel asks for it
            params = jax.lax.with_sharding_constraint(state.params, copied)
            parts, every = config.train.micro_batches, state.replace(params=params)
            grads, sums = next_gradients(model, parts, mesh.size, numbers, every, batch)
            grads = jax.lax.with_sharding_constraint(grads, places.params)
            return apply(model, numbers, state, grads, sums)

    compiled = jax.jit(
        update_on_mesh,
        in_shardings=(copied, places, split_over(mesh)),
        out_shardings=(places, copied),
        donate_argnums=1,
    )
    return partial(compiled, hyperparameters(config))


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


def jit_sentence_sums(mesh: Mesh, config: ModelConfig) -> Callable[[Params, Batch], LossSums]:
    """`sentence_sums` compiled for the mesh; what it finds is in every process."""
    compiled = jax.jit(
        partial(sentence_sums, config),
        in_shardings=(replicated(mesh), split_over(mesh)),
        out_shardings=replicated(mesh),
    )
    return lambda params, batch: compiled(params, shard_batch(mesh, batch))
