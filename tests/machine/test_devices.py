"""A device that is asked for, and what was compiled for it, found by the next process."""

import os
import subprocess
import sys

import pytest

from transformer.errors import UserError
from transformer.machine import devices


def test_a_device_that_is_not_there_is_refused(monkeypatch):
    devices.configure_devices("any")
    devices.configure_devices("cpu")
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    with pytest.raises(UserError, match="JAX found only 4 x cpu, since .*JAX_PLATFORMS is cpu: un"):
        devices.configure_devices("tpu")
    monkeypatch.delenv("JAX_PLATFORMS")
    with pytest.raises(UserError, match=r"--device tpu: JAX found only 4 x cpu; .*\[tpu\]"):
        devices.configure_devices("tpu")


COMPILE_TWICE = """
import jax, jax.numpy as jnp
from transformer.machine import devices

devices.configure_devices("any")
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
found = []
jax.monitoring.register_event_listener(lambda name, **_: found.append(name))
jax.jit(lambda x: jnp.tanh(x @ x))(jnp.ones((8, 8))).block_until_ready()
print("/jax/compilation_cache/cache_hits" in found)
"""


def test_what_was_compiled_is_found_by_the_next_process(tmp_path):
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)
    outputs = [
        subprocess.run(
            [sys.executable, "-c", COMPILE_TWICE],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for _ in range(2)
    ]
    assert outputs == ["False", "True"]
    assert list(tmp_path.glob("transformer/xla-*"))
