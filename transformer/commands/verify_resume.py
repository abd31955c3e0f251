"""`train.py CONFIG --verify-resume`: proves on this machine that interruptions change nothing."""

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

STEPS, VALIDATE_EVERY, LOG_EVERY = 50, 10, 5
KILL_AT, STOP_AT = "update 25/", "update 40:"
"""Lines of output that trigger the signals: SIGKILL after at least one checkpoint, perhaps while
another is written; SIGTERM after the validation of update 40 and before the last update. A small
model makes several updates before a signal arrives."""

SETTINGS = [
    f"--train.steps={STEPS}", f"--optimizer.cooldown-steps={STEPS // 4}",
    f"--train.validate-every={VALIDATE_EVERY}", f"--train.log-every={LOG_EVERY}",
    "--train.patience=0", "--no-verify-resume", "--no-profile", "--wandb=",
]  # fmt: skip
DIFFERS = ("seconds", "tokens_per_second")
"""Fields of metrics.jsonl that depend on the clock."""


def verify_resume(script: str, words: Sequence[str], run: Path, log: Callable[[str], None]) -> None:
    """Trains the first updates of a run twice: uninterrupted, and with a SIGKILL and a SIGTERM.

    Raises UserError if one of them fails, or if their results differ.
    """
    run.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{run.name}.verify-", dir=run.parent))
    plain, stopped = folder / "plain", folder / "stopped"

    def train(what: str, own: Path, stop: signal.Signals | None = None, at: str = "") -> int:
        start = time.perf_counter()
        _train([sys.executable, script, *words, *SETTINGS, f"--run={own}"], stop, at)
        newest = max(checkpoint_steps(own), default=0)
        if stop and not 0 < newest < STEPS:
            raise UserError(
                f"{what}: the run ended before it could be interrupted: use a larger model"
            )
        log(f"{what}: {time.perf_counter() - start:.0f} s")
        return newest

    try:
        train(f"{STEPS} updates, uninterrupted", plain)
        kept = train("again, killed by SIGKILL", stopped, signal.SIGKILL, KILL_AT)
        kept = train(f"from update {kept}, stopped by SIGTERM", stopped, signal.SIGTERM, STOP_AT)
        train(f"from update {kept} to the end", stopped)
        arrays = _compare(plain, stopped)
    except UserError as error:
        raise UserError(f"{error}; both runs are in {folder}") from error
    shutil.rmtree(folder)
    log(
        f"interruptions change nothing: all {arrays} arrays of parameters and optimizer, and all "
        f"metrics, are the same bit for bit after {STEPS} updates"
    )


def _train(command: list[str], stop: signal.Signals | None, at: str) -> None:
    """Runs train.py to its end, or sends a signal at the line of output that begins with `at`."""
    lines = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            for line in process.stdout or ():
                lines.append(line.strip())
                if stop and line.startswith(at):
                    process.send_signal(stop)
        except BaseException:  # Ctrl-C, say
            process.kill()
            raise
    expected = -signal.SIGKILL if stop == signal.SIGKILL else 0
    if process.returncode != expected:
        last = next((line for line in reversed(lines) if line), "without output")
        raise UserError(f"train.py exited with code {process.returncode}: {last}")


def _compare(plain: Path, stopped: Path) -> int:
    """The number of arrays. Raises UserError naming the first difference."""
    expected, found = _results(plain), _results(stopped)
    for name in expected | found:
        if expected.get(name) != found.get(name):
            raise UserError(
                f"{name} differs after an interruption: {found.get(name)} instead of "
                f"{expected.get(name)}"
            )
    return sum("metrics.jsonl" not in name for name in expected)


def _results(folder: Path) -> dict[str, object]:
    """The digests of all arrays of the last checkpoint, and the lines of metrics.jsonl."""
    path = folder / "checkpoints" / str(STEPS) / "digests" / "metadata"
    results = dict(sorted(json.loads(path.read_text(encoding="utf-8")).items()))
    del results["described"]  # it has the duration of training
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, start=1):
        values = {name: n for name, n in json.loads(line).items() if name not in DIFFERS}
        results[f"metrics.jsonl, line {number},"] = values
    return results
