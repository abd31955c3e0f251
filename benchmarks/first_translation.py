"""Seconds from the start of translate.py to its first translation, cache empty and warm.

    python -m benchmarks.first_translation RUN

Each start is a process of its own, with imports, reading the run, compiling and one sentence. Of
the starts in a round, the first finds the cache of compiled programs empty, the second finds what
it left there. With several folders of the project (`--projects`, of different commits), rounds
alternate between them.
"""

import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import tyro

from benchmarks.measure import environment_with_cache, machine, summary, table, versions
from transformer.commands.command_line import parse_script
from transformer.commands.program import run_command
from transformer.config.settings import Positive


@dataclass(frozen=True)
class FirstTranslation:
    """Time the first translation of a run."""

    run: tyro.conf.Positional[Path]
    """The run folder."""
    projects: tuple[Path, ...] = (Path(__file__).parents[1],)
    """Folders of the project."""
    sentence: str = "At the moment a nurse is dreaming of the car although she is tired."
    """What is translated."""
    rounds: Positive = 3
    """Starts with an empty cache, and with a warm one."""


def main(words: list[str]) -> None:
    command = parse_script(FirstTranslation, words, "python -m benchmarks.first_translation")
    print(f"{machine()}\n{versions('jax')}\n")
    seconds = {(project, kind): [] for project in command.projects for kind in ("empty", "warm")}
    for _ in range(command.rounds):
        for project in command.projects:
            with tempfile.TemporaryDirectory() as cache:
                for kind in ("empty", "warm"):
                    seconds[project, kind].append(start(command, project, cache))
    rows = []
    for (project, kind), found in seconds.items():
        shown = f"{summary(found).median:.1f}"
        rows.append({"project": str(project), "cache of compiled programs": kind, "seconds": shown})
    print(table(rows))


def start(command: FirstTranslation, project: Path, cache: str) -> float:
    """Seconds that a process takes for its first translation."""
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, project / "translate.py", command.run],
        env=environment_with_cache(cache) | {"PYTHONPATH": str(project.resolve())},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with process:
        process.stdin.write(command.sentence + "\n")
        process.stdin.close()
        assert process.stdout.readline().strip(), f"{project}: translate.py printed nothing"
        return time.perf_counter() - began


if __name__ == "__main__":
    run_command(main)
