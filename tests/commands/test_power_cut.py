"""A power cut: what train.py has written, and not asked the system to put on disk, is gone.

strace notes what is written and what is synced. After a kill, every file that was written to after
its last sync is emptied, the worst that file systems do; what was renamed or deleted stays so.
"""

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from small_run import ROOT, run, wait_until
from test_resume import assert_same_end, last_saved, mid_save

CUTS = int(os.environ.get("CUTS", "2"))
"""How often the power is cut."""

CALLS = "write,pwrite64,writev,pwritev,ftruncate,rename,renameat,renameat2,fsync,fdatasync"
WRITTEN = re.compile(r"(?:write|pwrite64|writev|pwritev|ftruncate)\(\d+<(.*?)>")
SYNCED = re.compile(r"f(?:data)?sync\(\d+<(.*?)>(.*)")
RESUMED = re.compile(r"<\.\.\. f(?:data)?sync resumed>")
RENAMED = re.compile(r'rename(?:at2?)?\((?:AT_FDCWD[^,]*, )?"(.*?)", (?:AT_FDCWD[^,]*, )?"(.*?)"')


def not_on_disk(log: list[str]) -> set[str]:
    """The files that were written to after their last sync."""
    unsynced, syncing = set(), {}
    for line in log:
        thread, _, call = line.partition(" ")
        call = call.strip()
        if found := WRITTEN.match(call):
            unsynced.add(found[1])
        elif found := SYNCED.match(call):
            if "unfinished" in found[2]:
                syncing[thread] = found[1]
            else:
                unsynced.discard(found[1])
        elif RESUMED.match(call):
            unsynced.discard(syncing.pop(thread))
        elif found := RENAMED.match(call):
            old, new = found.groups()
            moved = {path for path in unsynced if path == old or path.startswith(f"{old}/")}
            unsynced = unsynced - moved - {new} | {new + path.removeprefix(old) for path in moved}
    return unsynced


def test_what_is_not_on_disk_is_told_from_what_is():
    log = """1 write(3</a/x>, "text", 4) = 4
2 fsync(4</a/y> <unfinished ...>
1 write(5</a/z.tmp>, "text", 4) = 4
1 pwrite64(4</a/y>, "text", 4, 0) = 4
2 <... fsync resumed>) = 0
1 fsync(5</a/z.tmp>) = 0
1 rename("/a/z.tmp", "/a/z") = 0
1 renameat2(AT_FDCWD</>, "/a", AT_FDCWD</>, "/b", 0) = 0
1 fsync(3</b/x>) = 0
1 write(3</b/x>, "more", 4) = 4"""
    assert not_on_disk(log.splitlines()[:5]) == {"/a/x", "/a/z.tmp"}
    assert not_on_disk(log.splitlines()[:8]) == {"/b/x"}
    assert not_on_disk(log.splitlines()[:9]) == set()
    assert not_on_disk(log.splitlines()) == {"/b/x"}


def cut_power(words: list[object], folder: Path, log: Path, moment, caches: dict) -> list[Path]:
    """Starts train.py, and cuts the power at that moment; the files that have lost something."""
    strace = ["strace", "--follow-forks", "--seccomp-bpf", "-y", f"--trace={CALLS}"]
    command = [sys.executable, str(ROOT / "train.py"), *map(str, words), "--run", str(folder)]
    process = subprocess.Popen(
        [*strace, f"--output={log}", *command],
        cwd=ROOT, env=os.environ | caches, start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    begun = time.time()
    wait_until(lambda: moment(folder, time.time() - begun), process)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    ours = (folder.parent, *caches.values())
    names = not_on_disk(log.read_text(errors="replace").splitlines())
    lost = [Path(name) for name in names if name.startswith(tuple(map(str, ours)))]
    lost = [path for path in lost if path.exists()]
    for path in lost:
        os.truncate(path, 0)
    return lost


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("strace"), reason="needs strace")
def test_a_run_whose_power_is_cut_ends_as_if_it_had_not_been(config, undisturbed, tmp_path):
    folder, chosen = tmp_path / "run", random.Random(2)
    caches = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    for cut in range(CUTS):
        saved, seconds = last_saved(folder), chosen.uniform(2, 12)
        moments = [
            lambda folder, _, saved=saved: last_saved(folder) > saved,
            lambda folder, _: mid_save(folder),
            lambda _, passed, seconds=seconds: passed > seconds,
        ]
        lost = cut_power([config], folder, tmp_path / "log", moments[cut % 3], caches)
        names = [str(path.relative_to(tmp_path)) for path in lost]
        print(f"cut {cut}: update {last_saved(folder)} saved; lost {names}")
    result = run("train.py", config, "--run", folder)
    assert result.returncode == 0, result.stderr
    assert_same_end(folder, undisturbed)
