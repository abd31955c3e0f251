"""The phrasebook as text files, to try settings that need files:

python -m benchmarks.phrasebook_files data/phrasebook

writes train, validation and test, each with the endings .en and .de.
"""

import sys
from pathlib import Path

from transformer.data.datasets.phrasebook.splits import splits


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for split, pairs in splits().items():
        for ending, column in zip(("en", "de"), zip(*pairs)):
            path = folder / f"{split}.{ending}"
            path.write_text("".join(f"{line}\n" for line in column), encoding="utf-8")
            print(f"{path}: {len(column):,} sentences")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
