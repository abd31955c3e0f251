"""`train.py CONFIG --verify-resume`: a proof that stopping changes nothing, here and now."""

import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from transformer.errors import UserError
from transformer.runs.folder import checkpoint_steps

STEPS, VALIDATE_EVERY, LOG_EVERY = 40, 10, 5
KILL_AT, STOP_AT = "update 25/", "update 30:"
"""What a run reports when it is killed, a checkpoint behind it for certain and another perhaps half
written; and when it is asked to stop, which it does an update later, between two checkpoints."""

SETTINGS = [
    f"--train.steps={STEPS}", f"--train.validate-every={VALIDATE_EVERY}",
    f"--train.log-every={LOG_EVERY}", "--no-verify-resume", "--no-profile", "--wandb=",
]  # fmt: skip
DIFFERS = ("seconds", "tokens_per_second")
"""What metrics.jsonl says of the clock."""


def verify_resume(script: str, words: Sequence[str], run: Path, say: Callable[[str], None]) -> None:
    """Trains the first updates of a run twice: without a stop, and with a kill and a stop between.

    Raises UserError where one of them fails, or where anything that they leave is not the same.
    """
    run.parent.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix=f"{run.name}.verify-", dir=run.parent))
    plain, stopped = place / "plain", place / "stopped"

    def train(what: str, folder: Path, stop: signal.Signals | None = None, at: str = "") -> int:
        begun = time.perf_counter()
        _train([sys.executable, script, *words, *SETTINGS, f"--run={folder}"], stop, at)
        newest = max(checkpoint_steps(folder), default=0)
        if stop and not 0 < newest < STEPS:
            raise UserError(f"after {what} there is no checkpoint between: take a larger model")
        say(f"{what}: {time.perf_counter() - begun:.0f} s")
        return newest

    try:
        train(f"{STEPS} updates without a stop", plain)
        kept = train("again, killed by kill -9", stopped, signal.SIGKILL, KILL_AT)
        kept = train(f"from update {kept}, stopped by SIGTERM", stopped, signal.SIGTERM, STOP_AT)
        train(f"from update {kept} to the end", stopped)
        arrays = _compare(plain, stopped)
    except UserError as error:
        raise UserError(f"{error}; both runs are in {place}") from error
    shutil.rmtree(place)
    say(
        f"stopping changes nothing: all {arrays} arrays of parameters and optimizer, and all "
        f"metrics, are the same bit for bit after {STEPS} updates"
    )


def _train(command: list[str], stop: signal.Signals | None, at: str) -> None:
    """Runs train.py to its end, or until it gets a signal when it says `at`."""
    said = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            for line in process.stdout or ():
                said.append(line.strip())
                if stop and line.startswith(at):
                    process.send_signal(stop)
        except BaseException:  # Ctrl-C, say
            process.kill()
            raise
    expected = -signal.SIGKILL if stop == signal.SIGKILL else 0
    if process.returncode != expected:
        last = next((line for line in reversed(said) if line), "without a word")
        raise UserError(f"train.py ended with {process.returncode}: {last}")


def _compare(plain: Path, stopped: Path) -> int:
    """How many arrays there are. Raises UserError naming the first thing that is not the same."""
    ours, theirs = _digests(plain), _digests(stopped)
    for name in sorted(ours.keys() | theirs.keys()):
        if ours.get(name) != theirs.get(name):
            raise UserError(f"after a stop {name} is not what it is without")
    for line, other in zip(_metrics(plain), _metrics(stopped), strict=True):
        if line != other:
            raise UserError(f"after a stop metrics.jsonl says {other} instead of {line}")
    return len(ours)


def _digests(folder: Path) -> dict[str, str]:
    """Of every array of the last checkpoint."""
    path = folder / "checkpoints" / str(STEPS) / "digests" / "metadata"
    found = json.loads(path.read_text(encoding="utf-8"))
    del found["described"]  # how long it took is in it
    return found


def _metrics(folder: Path) -> list[dict[str, object]]:
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [
        {name: value for name, value in json.loads(line).items() if name not in DIFFERS}
        for line in lines
    ]
