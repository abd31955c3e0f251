"""A long text that every Python has: what help() says of its topics and of its library.

    python -m benchmarks.help_text text
    python train.py configs/lm_quickstart.py --run runs/help --data.dataset "" --data.target en \\
        --data.windows --data.max-length 128 --data.vocab-size 4000 \\
        --data.train-files text/train.txt --data.validation-files text/validation.txt \\
        --data.test-files text/test.txt

Its last tenth is for validation and test. Another version of Python has another text.
"""

import importlib
import platform
import pydoc
import pydoc_data.topics
import re
from dataclasses import dataclass
from pathlib import Path

import tyro

from transformer.commands.command_line import parse_script
from transformer.commands.program import run_command

MODULES = (
    "argparse", "asyncio", "collections", "concurrent.futures", "configparser", "contextlib",
    "csv", "dataclasses", "datetime", "decimal", "difflib", "email", "enum", "fractions",
    "functools", "heapq", "http.client", "inspect", "io", "ipaddress", "itertools", "json",
    "logging", "math", "multiprocessing", "os.path", "pathlib", "pickle", "random", "re", "shutil",
    "socket", "sqlite3", "ssl", "statistics", "string", "subprocess", "tarfile", "tempfile",
    "threading", "tkinter", "tokenize", "turtle", "typing", "unittest", "urllib.parse",
    "urllib.request", "uuid", "xml.dom.minidom", "zipfile",
)  # fmt: skip
SPLITS = {"train": (0, 0.9), "validation": (0.9, 0.95), "test": (0.95, 1)}


@dataclass(frozen=True)
class HelpText:
    """Write train.txt, validation.txt and test.txt."""

    folder: tyro.conf.Positional[Path]
    """Where to write them."""


def main(words: list[str]) -> None:
    command = parse_script(HelpText, words, "python -m benchmarks.help_text")
    command.folder.mkdir(parents=True, exist_ok=True)
    lines = "\n".join([*pydoc_data.topics.topics.values(), *descriptions()]).splitlines()
    for split, (first, last) in SPLITS.items():
        text = "".join(
            f"{line}\n" for line in lines[int(first * len(lines)) : int(last * len(lines))]
        )
        path = command.folder / f"{split}.txt"
        path.write_text(text, encoding="utf-8")
        print(f"{path}: {len(text.encode()):,} bytes, Python {platform.python_version()}")


def descriptions() -> list[str]:
    """What help() says of each module, without addresses in memory."""
    modules = [importlib.import_module(name) for name in MODULES]
    texts = [pydoc.plain(pydoc.render_doc(module, renderer=pydoc.plaintext)) for module in modules]
    return [re.sub(r"0x[0-9a-f]{6,}", "0x...", text) for text in texts]


if __name__ == "__main__":
    run_command(main)
