"""Which devices JAX computes on, and where the programs that it compiled for them are kept."""

import hashlib
import os
import platform
import re
from pathlib import Path

import jax

from transformer.errors import UserError, one_line
from transformer.machine.files import cache_folder
from transformer.machine.jax_internals import replace_damaged_programs


def configure_devices(device: str) -> None:
    """Raises UserError when JAX does not compute on that kind of device (any, cpu, gpu, tpu).

    From here on, compiled programs are kept for later runs, and numbers have at most 32 bits.
    """
    if jax.config.values["jax_compilation_cache_dir"] is None:
        jax.config.update("jax_compilation_cache_dir", str(cache_folder() / f"xla-{_processor()}"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)  # many are small
    replace_damaged_programs()
    jax.config.update("jax_enable_x64", False)  # whatever JAX_ENABLE_X64 says
    compute_in_this_thread()
    if device == "cpu":
        jax.config.update("jax_platforms", "cpu")
    try:
        found = jax.default_backend()
    except (RuntimeError, AssertionError) as error:
        reason = one_line(error) or f"it is set to use {jax.config.values['jax_platforms']}"
        raise UserError(
            f"JAX finds no device ({reason}): check the environment variable JAX_PLATFORMS"
        ) from error
    if device not in ("any", found):
        extra = {"gpu": "cuda", "tpu": "tpu"}.get(device, "")
        if platforms := os.environ.get("JAX_PLATFORMS"):
            raise UserError(
                f"--device {device}: JAX found only {describe()}, since the environment variable "
                f"JAX_PLATFORMS is {platforms}: unset it"
            )
        raise UserError(
            f"--device {device}: JAX found only {describe()}; "
            f"pip install -e '.[{extra}]' (on Colab, first choose the accelerator under "
            "Runtime > Change runtime type)"
        )


def compute_in_this_thread() -> None:
    """A CPU computes in the thread that asks: the main thread keeps its memory (malloc.py)."""
    jax.config.update("jax_cpu_enable_async_dispatch", False)


def _processor() -> str:
    """Differs between processors that cannot run the same code and share a home folder."""
    abilities = re.findall(r"^(?:flags|Features)\s*:.*", _description(), re.MULTILINE)
    return hashlib.sha256((abilities or [platform.processor()])[0].encode()).hexdigest()[:8]


def _description() -> str:
    """Linux's description of the processor."""
    path = Path("/proc/cpuinfo")
    return path.read_text() if path.exists() else ""


def counted() -> tuple[str, int, str]:
    """The kind of device ("core" or "device"), how many there are, and the name of one."""
    if jax.default_backend() != "cpu":
        return "device", jax.device_count(), jax.devices()[0].device_kind
    able = getattr(os, "sched_getaffinity", None)  # Linux: fewer than there are, in a container
    cores = len(able(0)) if able else os.cpu_count()
    found = re.search(r"^model name\s*:\s*(.*)", _description(), re.MULTILINE)
    return "core", cores * jax.process_count(), found[1] if found else platform.processor()


def describe() -> str:
    """Such as "8 x TPU v4 in 2 processes"."""
    kinds = sorted({device.device_kind for device in jax.devices()})
    processes = f" in {jax.process_count()} processes" if jax.process_count() > 1 else ""
    return f"{jax.device_count()} x {' and '.join(kinds)}{processes}"
