"""Accelerators that XLA compiles for without having one, and their data sheets.

Sources, November 2026. NVIDIA: the data sheets of the H100 (SXM) and A100 (SXM, 80 GB), and for
the properties of a GPU XLA's own specifications
(https://github.com/openxla/xla/tree/main/xla/backends/gpu/target_config/specs). TPUs: the pages of
Google Cloud (https://cloud.google.com/tpu/docs/v5e and its neighbours), of a chip; but what XLA
calls a device of v4 here is half a chip.
"""

import importlib.util
import os
import re
from dataclasses import dataclass

import jax
from jax.experimental import topologies
from jax.sharding import AxisType, Mesh

from transformer.errors import UserError


@dataclass(frozen=True)
class Target:
    """A kind of accelerator: of one device the operations and bytes a second, and the memory."""

    platform: str
    """cuda or tpu."""
    bfloat16: float
    """Operations a second of dense products of bfloat16."""
    float32: float
    """The same of float32, at JAX's default precision: TF32 on GPUs, one pass of bfloat16 on
    TPUs."""
    bandwidth: float
    """Bytes a second between memory and processors."""
    memory: int
    """Bytes."""
    topology: str
    """How many there are by default."""
    description: str
    """For XLA: a TPU's name, or the properties of a GPU."""


GPU = """
    threads_per_block_limit: 1024  threads_per_warp: 32  threads_per_core_limit: 2048
    shared_memory_per_block: 49152  registers_per_core_limit: 65536
    registers_per_block_limit: 65536  block_dim_limit_x: 2147483647
    block_dim_limit_y: 65535  block_dim_limit_z: 65535
"""
"""Properties that all of them have."""
TARGETS = {
    "h100": Target(
        "cuda", 989e12, 494e12, 3.35232e12, 84_942_979_072, "1",
        "core_count: 132  fpus_per_core: 128  clock_rate_ghz: 1.98  l2_cache_size: 52428800 "
        "shared_memory_per_core: 233472  shared_memory_per_block_optin: 232448 "
        "cuda_compute_capability { major: 9 }",
    ),
    "a100": Target(
        "cuda", 312e12, 156e12, 2.039e12, 85_174_255_616, "1",
        "core_count: 108  fpus_per_core: 64  clock_rate_ghz: 1.41  l2_cache_size: 41943040 "
        "shared_memory_per_core: 167936  shared_memory_per_block_optin: 166912 "
        "cuda_compute_capability { major: 8 }",
    ),
    "v4": Target("tpu", 137.5e12, 137.5e12, 0.614e12, 16 * 2**30, "2x2x1", "v4"),
    "v5e": Target("tpu", 197e12, 197e12, 0.819e12, 16 * 2**30, "2x2", "v5e"),
    "v5p": Target("tpu", 459e12, 459e12, 2.765e12, 95 * 2**30, "2x2x1", "v5p"),
    "v6e": Target("tpu", 918e12, 918e12, 1.64e12, 32 * 2**30, "2x2", "v6e"),
}  # fmt: skip
WITHOUT_DEVICES = {
    "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}
"""There are neither drivers nor other machines, and no device is opened."""


def mesh_of(name: str) -> tuple[Target, Mesh]:
    """The target that `KIND` or `KIND:TOPOLOGY` names (h100, h100:8, v5e:2x2), and its devices.

    To be called before JAX has looked for devices. Raises UserError for a target that is not
    known, or whose compiler is not installed.
    """
    os.environ |= WITHOUT_DEVICES
    jax.config.update("jax_platforms", "cpu")
    kind, _, topology = name.partition(":")
    target = TARGETS.get(kind)
    if target is None:
        raise UserError(f"unknown target {kind!r}; choose from {', '.join(TARGETS)}")
    topology = topology or target.topology
    known = r"[1-9]\d{0,3}" if target.platform == "cuda" else r"[1-9]\d?(x[1-9]\d?)+"
    if not re.fullmatch(known, topology):
        raise UserError(f"target {name} needs a topology such as {target.topology!r}")
    find = _gpus if target.platform == "cuda" else _tpus
    try:
        described = find(target, topology)
    except UserError:
        raise
    except Exception as error:  # XLA's own classes, none of them documented
        raise UserError(f"{name}: {str(error).splitlines()[0]}") from error
    return target, Mesh(described, ("data",), axis_types=(AxisType.Auto,))


def _gpus(target: Target, count: str) -> list[jax.Device]:
    if not any(importlib.util.find_spec(f"jax_cuda{version}_plugin") for version in (12, 13)):
        raise UserError("the compiler for NVIDIA's GPUs is not installed: pip install -e '.[plan]'")
    jax.devices()  # finds the compiler
    properties = (
        f"{GPU} {target.description} memory_bandwidth: {target.bandwidth:.0f} "
        f"device_memory_size: {target.memory}"
    )
    return topologies.get_topology_desc(
        platform="cuda",
        topology_name="described",
        target_config=f'gpu_device_info {{ {properties} }} platform_name: "CUDA" '
        "dnn_version_info { major: 9 minor: 8 patch: 0 }",
        topology=f"1x1x{count}",
    ).devices


def _tpus(target: Target, topology: str) -> list[jax.Device]:
    if importlib.util.find_spec("libtpu") is None:
        raise UserError("the compiler for TPUs is not installed: pip install -e '.[plan]'")
    name = f"{target.description}:{topology}"
    return topologies.get_topology_desc(platform="tpu", topology_name=name).devices
