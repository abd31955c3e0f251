"""Devices and processes: the only file that knows how many there are.

`update` is a function of the whole batch. Here the state is copied to every device, the batch is
split over them, and the compiler adds the sums between devices: the same program runs on one
device, on eight, and on those of several machines, each with a process of its own. `jax.pmap` is
today a wrapper of the same machinery.
"""

import hashlib
import itertools
import os
import platform
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import jax
import numpy as np
import optax
from jax._src import distributed  # the service of jax.distributed has no public name
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from transformer.config import Config, UserError, cache_folder, one_line
from transformer.model.batch import Batch
from transformer.model.params import Params
from transformer.training.compile_cache import replace_damaged_programs
from transformer.training.step import TrainState, init_state, update

UPDATES_BETWEEN_AGREEMENTS = 20
A_DAY = 24 * 60 * 60 * 1000
"""In milliseconds."""


def join_processes() -> None:
    """Makes this process one of several that train together.

    Slurm, Open MPI, Kubernetes and TPU pods say themselves who the others are; elsewhere three
    variables do: JAX_COORDINATOR_ADDRESS (host:port of the first process), JAX_NUM_PROCESSES and
    JAX_PROCESS_ID. Raises UserError when nobody says it, or when the others do not come.
    """
    try:
        numbers = [os.environ.get(f"JAX_{name}") for name in ("NUM_PROCESSES", "PROCESS_ID")]
        jax.distributed.initialize(None, *(int(number) if number else None for number in numbers))
    except (ValueError, RuntimeError, LookupError, TypeError, OSError) as error:
        raise UserError(
            f"--distributed: cannot join the other processes ({one_line(error)}); set "
            "JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and JAX_PROCESS_ID for each of them"
        ) from error


def demand(device: str) -> None:
    """Raises UserError when JAX does not compute on that kind of device (any, cpu, gpu, tpu).

    From here on, what is compiled is kept for later runs, and numbers have at most 32 bits.
    """
    if jax.config.jax_compilation_cache_dir is None:
        jax.config.update("jax_compilation_cache_dir", str(cache_folder() / f"xla-{_processor()}"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)
    replace_damaged_programs()
    jax.config.update("jax_enable_x64", False)  # whatever JAX_ENABLE_X64 says
    if device == "cpu":
        jax.config.update("jax_platforms", "cpu")
    try:
        found = jax.default_backend()
    except (RuntimeError, AssertionError) as error:
        reason = one_line(error) or f"it is told to use {jax.config.jax_platforms}"
        raise UserError(f"JAX finds no device ({reason}): look at JAX_PLATFORMS") from error
    if device not in ("any", found):
        extra = {"gpu": "cuda", "tpu": "tpu"}.get(device, "")
        raise UserError(
            f"--device {device}: JAX found only {describe_devices()}; "
            f"pip install -e '.[{extra}]' (on Colab, first choose the accelerator under "
            "Runtime > Change runtime type)"
        )


def _processor() -> str:
    """Differs between processors that cannot run the same code and share a home folder."""
    description = Path("/proc/cpuinfo")
    text = description.read_text() if description.exists() else ""
    abilities = re.findall(r"^(?:flags|Features)\s*:.*", text, re.MULTILINE)
    return hashlib.sha256((abilities or [platform.processor()])[0].encode()).hexdigest()[:8]


def describe_devices() -> str:
    """Such as "8 x TPU v4 in 2 processes"."""
    kinds = sorted({device.device_kind for device in jax.devices()})
    processes = f" in {jax.process_count()} processes" if jax.process_count() > 1 else ""
    return f"{jax.device_count()} x {' and '.join(kinds)}{processes}"


def is_first_process() -> bool:
    """Whether this process prints, and writes the run folder."""
    return jax.process_index() == 0


@contextmanager
def first_process_first() -> Iterator[None]:
    """What the first process makes here (files, say), the others find; then all go on together.

    Waits through the service by which the processes found each other: collectives between devices
    give up after half a minute. Raises UserError in the others when the first one fails.
    """
    if jax.process_count() == 1:
        yield
        return
    service = distributed.global_state.client
    if is_first_process():
        outcome = "failed"
        try:
            yield
            outcome = "ready"
        finally:
            service.key_value_set("first process", outcome)
    else:
        if service.blocking_key_value_get("first process", A_DAY) == "failed":
            raise UserError("the first process could not begin: read what it says")
        yield
    service.wait_at_barrier("all processes are ready", A_DAY)


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
    return NamedSharding(mesh, PartitionSpec())


def split_over(mesh: Mesh) -> NamedSharding:
    """The leading axis of an array split over the devices."""
    return NamedSharding(mesh, PartitionSpec("data"))


def new_state(mesh: Mesh, config: Config) -> TrainState:
    """The state before the first update, on every device."""
    return jax.jit(partial(init_state, config), out_shardings=replicated(mesh))()


def replicate(mesh: Mesh, params: Params) -> Params:
    """The same parameters on every device, in memory of their own: `jit_update` gives it up."""
    return jax.jit(lambda tree: tree)(_spread(replicated(mesh), params))


def shard_batch(mesh: Mesh, batch: Batch) -> Batch:
    """The rows of a batch, the same one in every process, spread over the devices."""
    return _spread(split_over(mesh), batch)


def _spread(sharding: NamedSharding, tree):
    """Each process gives its own devices their part of arrays that all processes have."""

    def spread(array):
        array = np.asarray(array)
        return jax.make_array_from_callback(array.shape, sharding, array.__getitem__)

    return jax.tree.map(spread, tree)


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
