"""What happens to a damaged file in the cache of compiled programs: real files, in processes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

COMPILE = """
import jax, jax.numpy as jnp
from transformer.machine import devices

devices.configure_devices("any")
devices.configure_devices("any")
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
found = []
jax.monitoring.register_event_listener(lambda name, **_: found.append(name))
jax.jit(lambda x: jnp.tanh(x @ x))(jnp.ones((8, 8))).block_until_ready()
print("/jax/compilation_cache/cache_hits" in found, "/jax/compilation_cache/cache_misses" in found)
"""


def compile_with(cache: Path) -> tuple[bool, bool, int]:
    """Whether something was found in the cache, whether something was not, and the warnings."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)
    command = [sys.executable, "-c", COMPILE]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found, missed = result.stdout.split()
    return found == "True", missed == "True", result.stderr.count("UserWarning")


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A cache with programs."""
    cache = tmp_path_factory.mktemp("cache")
    assert compile_with(cache) == (False, True, 0)
    return cache


DAMAGES = {
    "a bit": lambda data: data[:-9] + bytes([data[-9] ^ 1]) + data[-8:],
    "its end is missing": lambda data: data[: len(data) // 2],
    "empty": lambda data: b"",
    "something else": lambda data: b"x" * len(data),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_program_is_replaced_with_one_warning(filled, damage):
    files = set(filled.rglob("*-cache"))
    for path in files:
        path.write_bytes(damage(path.read_bytes()))
    assert compile_with(filled) == (False, True, len(files))
    assert set(filled.rglob("*-cache")) == files
    assert compile_with(filled) == (True, False, 0)
