"""A run is killed, and before it goes on something else goes wrong: it ends as if nothing had."""

import os
import random
import resource
import signal
import time

import pytest
from small_run import family_words, run, start
from test_resume import assert_same_end, last_saved, mid_save, mid_validation

SECOND_FAULTS = int(os.environ.get("SECOND_FAULTS", "2"))
"""How often each run is killed; after every second kill something else goes wrong too."""


def newest_file(folder, chosen):
    """Some file of the newest checkpoint, where there is an older one to go back to."""
    steps = sorted(int(p.name) for p in folder.glob("checkpoints/*") if p.name.isdecimal())
    if len(steps) < 2:
        return None
    place = folder / "checkpoints" / str(steps[-1])
    files = sorted(path for path in place.rglob("*") if path.is_file())
    return chosen.choice([path for path in files if path.parent.name == "d"] or files)


def truncated(words, folder, chosen):
    if path := newest_file(folder, chosen):
        os.truncate(path, path.stat().st_size // 2)


def flipped(words, folder, chosen):
    if path := newest_file(folder, chosen):
        content = bytearray(path.read_bytes())
        content[chosen.randrange(len(content))] ^= 1 << chosen.randrange(8)
        path.write_bytes(content)


def no_room(words, folder, chosen):
    """A start on a disk that has none left: refused in a sentence, if it came to saving."""
    process = start("train.py", *words, "--run", folder)
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (20_000, 20_000))
    _, said = process.communicate(timeout=120)
    assert process.returncode in (0, 2), said


def read_only(words, folder, chosen):
    """A start in a folder that cannot be written to; root may write to any."""
    places = [folder, folder / "checkpoints"]
    places = [place for place in places if place.exists()]
    for place in places:
        place.chmod(0o555)
    result = run("train.py", *words, "--run", folder)
    for place in places:
        place.chmod(0o755)
    assert result.returncode in (0, 2), result.stderr


SECOND = [truncated, flipped, no_room, read_only]


def kill(words, folder, number, chosen):
    """Kills a run in a save, in a validation or at a random moment."""
    process = start("train.py", *words, "--run", folder)
    if number % 3 == 2:
        time.sleep(chosen.uniform(1, 8))
    else:
        moment = (mid_save, mid_validation)[number % 3]
        while process.poll() is None and not moment(folder):
            time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.communicate()


@pytest.mark.parametrize("kind", ["translator", "language"])
def test_a_run_survives_a_kill_and_what_comes_after_it(config, finished, tmp_path, kind):
    words = [config, *([] if kind == "translator" else family_words(config.parent, kind))]
    words += ["--train.steps", 40]
    undisturbed, folder = finished(f"second-faults-{kind}", *words), tmp_path / "run"
    chosen = random.Random(kind)
    for number in range(SECOND_FAULTS):
        if last_saved(folder) == 40:  # it went well all the same: another run
            assert_same_end(folder, undisturbed)
            folder = tmp_path / f"run-{number}"
        kill(words, folder, number, chosen)
        if number % 2 and folder.exists():
            SECOND[number // 2 % len(SECOND)](words, folder, chosen)
        print(f"{kind}, kill {number}: update {last_saved(folder)} saved")
    result = run("train.py", *words, "--run", folder)
    assert result.returncode == 0, result.stderr
    assert_same_end(folder, undisturbed)
