"""The data of a config as text files, to try settings that need files:

    python -m benchmarks.text_files configs/quickstart.py data/phrasebook

writes train, validation and test, each with the endings .en and .de: a file for each side that the
config reads.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import tyro

from transformer.commands.command_line import parse_script
from transformer.commands.program import run_command
from transformer.config.files import load_config
from transformer.data.corpus import has_test_split, read_pairs
from transformer.data.files import Split
from transformer.errors import UserError


@dataclass(frozen=True)
class TextFiles:
    """Write the data of a config as text files."""

    config_file: tyro.conf.Positional[Path]
    """A config file, such as configs/quickstart.py."""
    folder: tyro.conf.Positional[Path]
    """Where the files are written."""


def main(words: list[str]) -> None:
    command = parse_script(TextFiles, words, "python -m benchmarks.text_files")
    data = load_config(command.config_file).data
    if data.label_column or data.source == data.target:
        raise UserError(
            f"{command.config_file} must read text in two different languages, or text alone"
        )
    command.folder.mkdir(parents=True, exist_ok=True)
    splits = [split for split in get_args(Split) if split != "test" or has_test_split(data)]
    for split in splits:
        for side, lines in zip(("source", "target"), zip(*read_pairs(data, split))):
            if side in data.sides:
                path = command.folder / f"{split}.{getattr(data, side)}"
                text = "".join(f"{line}\n" for line in lines).encode()
                if path.exists() and path.read_bytes() != text:
                    raise UserError(f"{path} exists and has other text: name another folder")
                path.write_bytes(text)
                print(f"{path}: {len(lines):,} lines")


if __name__ == "__main__":
    run_command(main)
