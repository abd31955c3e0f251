"""A run is killed, and before it goes on something else goes wrong: it ends as if nothing had."""

import os
import random
import resource
from itertools import cycle

import pytest
from small_run import family_words, run, start
from test_resume import survives

pytestmark = pytest.mark.slow

SECOND_FAULTS = int(os.environ.get("SECOND_FAULTS", "2"))
"""How often each run is killed; after half of the kills something else goes wrong too."""


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


@pytest.mark.parametrize(
    "kind", ["translator", "language"] if "SECOND_FAULTS" in os.environ else ["translator"]
)
def test_a_run_survives_a_kill_and_what_comes_after_it(config, finished, tmp_path, kind):
    words = [config, *([] if kind == "translator" else family_words(config.parent, kind))]
    words += ["--train.steps", 40]
    chosen, faults = random.Random(kind), cycle(SECOND)

    def then(number, folder):
        if number % 4 in (0, 3) and folder.exists():  # half of them, of either parity
            next(faults)(words, folder, chosen)

    survives(SECOND_FAULTS, words, finished(f"second-faults-{kind}", *words), tmp_path, then)
