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
    # Without the free memory of the system and of a container, which may be less than the limit.
    code = "; ".join([
        "from transformer.machine import memory",
        "table, memory._of_groups = memory._table, tuple",
        "memory._table = lambda file, name: None if file == 'meminfo' else table(file, name)",
        "print(memory.free_memory())",
    ])  # fmt: skip

    def free(gigabytes):
        words = f'ulimit -v {gigabytes * 2**20} && exec "$0" -c "{code}"'
        result = subprocess.run(["sh", "-c", words, sys.executable], capture_output=True)
        assert result.returncode == 0, result.stderr
        return int(result.stdout)

    assert free(5) < 2.5 * 2**30
    assert free(5) < free(500)


@pytest.mark.parametrize("controllers", ["", "memory"])
@pytest.mark.parametrize("limited", ["", "jobs", "jobs/7"])
def test_the_limit_of_a_container_or_a_job_counts(tmp_path, monkeypatch, controllers, limited):
    monkeypatch.setattr(memory, "GROUPS", tmp_path / "groups")
    monkeypatch.setattr(memory, "TABLES", tmp_path)
    (tmp_path / "self").mkdir()
    (tmp_path / "self/cgroup").write_text(f"9:pids:/\n4:{controllers}:/jobs/7\n")
    (tmp_path / "meminfo").write_text("MemAvailable: 1000 kB\n")
    files = memory.CGROUPS[controllers]
    group = tmp_path / "groups" / controllers / limited
    group.mkdir(parents=True)
    (group / files.used).write_text("30000\n")
    for limit, free in [("max", 1_024_000), ("50000", 20_000)]:
        (group / files.limit).write_text(limit + "\n")
        assert memory.free_memory() == free // jax.local_device_count()
    # What the system keeps of files is given back when it is needed.
    (group / "memory.stat").write_text(f"anon 12000\n{files.cached} 18000\n")
    assert memory.free_memory() == 38_000 // jax.local_device_count()


def test_a_system_without_such_tables_is_not_asked(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "TABLES", tmp_path)
    monkeypatch.setattr(memory, "GROUPS", tmp_path)
    assert memory.free_memory() is None
    assert memory.peak_memory() is None
