"""Can the tests fail? Makes each mistake of mutations.toml, alone, in a copy of the project.

    python tests/mutations.py            # all, as many at once as there are cores
    python tests/mutations.py dropout    # those that have one of these words

Ends with exit code 1 when no test noticed a mistake, or when one could not be made.
"""

import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from multiprocessing.pool import ThreadPool
from pathlib import Path

ROOT = Path(__file__).parents[1]
TABLE = Path(__file__).with_suffix(".toml")
COMMANDS = ("train.py", "eval.py", "translate.py", "generate.py", "convert.py")
NEEDED = ("transformer", "tests", "configs", "benchmarks", "README.md", "pyproject.toml", *COMMANDS)


@dataclass(frozen=True)
class Mutation:
    """A mistake: in `file`, `this` became `becomes`. `tests` should notice.

    `tier` is "quick" where one of the tests is of the first tier (`make test`), and "all" where
    only `make test-all EXTRAS=test,oracles` notices.
    """

    name: str
    file: str
    this: str
    becomes: str
    tests: list[str]
    tier: str = "quick"

    def faults(self) -> list[str]:
        """Why it can no longer be made, or not be noticed."""
        path = ROOT / self.file
        found = path.read_text(encoding="utf-8").count(self.this) if path.is_file() else 0
        faults = [] if found == 1 else [f"{self.file} has {found} times: {self.this}"]
        return faults + [f"there is no test {test}" for test in self.tests if not exists(test)]


def exists(test: str) -> bool:
    """Such as model/test_layers.py::test_a_thing."""
    name, _, function = test.partition("::")
    path = ROOT / "tests" / name
    return path.is_file() and f"\ndef {function}(" in path.read_text(encoding="utf-8")


def is_quick(test: str) -> bool:
    """Whether `make test` runs it: neither it nor its file is marked slow."""
    name, _, function = test.partition("::")
    slow = {"pytestmark = pytest.mark.slow", "@pytest.mark.slow"}
    module = ast.parse((ROOT / "tests" / name).read_text(encoding="utf-8")).body
    own = (node for node in module if getattr(node, "name", function) == function)
    return not any(slow & {*ast.unparse(node).splitlines()} for node in own)


def read_table() -> list[Mutation]:
    return [Mutation(**row) for row in tomllib.loads(TABLE.read_text(encoding="utf-8"))["mutation"]]


def noticed(mutation: Mutation) -> tuple[bool, str]:
    """Whether its tests fail in a copy that has it, and what there is to say of that."""
    if faults := mutation.faults():
        return False, "CANNOT BE MADE: " + "; ".join(faults)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in NEEDED:
            take = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            take(ROOT / name, copy / name)
        path = copy / mutation.file
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace(mutation.this, mutation.becomes), encoding="utf-8")
        tests = [f"tests/{test}" for test in mutation.tests]
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
        result = subprocess.run(command, cwd=copy, capture_output=True, text=True)
    if result.returncode == 0:
        return False, "SURVIVED"
    failed = re.search(r"^(?:FAILED|ERROR) tests/(.+?)(?: - |$)", result.stdout, re.MULTILINE)
    if result.returncode != 1 or not failed:
        return False, "ITS TESTS DO NOT RUN:\n" + (result.stdout + result.stderr)[-2000:]
    return True, failed[1]


def main(words: list[str]) -> int:
    """Prints each chosen mutation with the test that noticed it. Returns the exit code."""
    chosen = [
        mutation
        for mutation in read_table()
        if not words or any(word in f"{mutation.name} {mutation.file}" for word in words)
    ]
    if not chosen:
        print("no mutation has any of these words:", *words)
        return 1
    failures = 0
    with tempfile.TemporaryDirectory() as compiled, ThreadPool() as pool:
        os.environ["JAX_COMPILATION_CACHE_DIR"] = compiled
        for mutation, (good, outcome) in zip(chosen, pool.imap(noticed, chosen)):
            failures += not good
            print(f"{mutation.file}: {mutation.name}: {outcome}", flush=True)
    print(f"{len(chosen) - failures} of {len(chosen)} mutations noticed")
    return min(failures, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
