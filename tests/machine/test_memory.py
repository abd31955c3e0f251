"""Free memory: the least of what the system, a container and `ulimit -v` leave."""

import subprocess
import sys

import jax
import pytest

from transformer.machine import memory


def test_what_is_held_is_part_of_the_peak_and_less_than_there_is():
    held, peak = memory._table("self/status", "VmRSS"), memory.peak_memory()
    assert 50e6 < held <= peak
    assert memory.free_memory() > 50e6


def test_a_limit_of_addresses_counts():
    code = "from transformer.machine.memory import free_memory; print(free_memory())"

    def free(gigabytes):
        words = f'ulimit -v {gigabytes * 2**20} && exec "$0" -c "{code}"'
        result = subprocess.run(["sh", "-c", words, sys.executable], capture_output=True)
        assert result.returncode == 0, result.stderr
        return int(result.stdout)

    assert free(5) < 2.5 * 2**30
    assert free(5) < free(500)


@pytest.mark.parametrize("version", [0, 1])
def test_a_containers_limit_counts(tmp_path, monkeypatch, version):
    limit, used = memory.CGROUPS[version]
    (tmp_path / limit).parent.mkdir(exist_ok=True)
    monkeypatch.setattr(memory, "GROUPS", tmp_path)
    (tmp_path / used).write_text("30000\n")
    (tmp_path / limit).write_text("max\n")
    unlimited = memory.free_memory()
    (tmp_path / limit).write_text("50000\n")
    assert memory.free_memory() == 20000 // jax.local_device_count() < unlimited


def test_a_system_without_such_tables_is_not_asked(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "TABLES", tmp_path)
    monkeypatch.setattr(memory, "GROUPS", tmp_path)
    assert memory.free_memory() is None
    assert memory.peak_memory() is None
