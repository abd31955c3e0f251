"""Makes each notebook from its text source, and runs it: `make notebooks`.

The text (NAME.py) is what people edit, except for the address of the project, which is written into
it; NAME.ipynb is generated, its outputs included.
"""

import time
from pathlib import Path

import address
import jupytext
from nbclient import NotebookClient

FOLDER = Path(__file__).parent

SECONDS = 300
"""A notebook that takes longer is too slow. Two minutes are the aim, on two idle cores; machines
differ threefold."""


def build(source: Path) -> float:
    """Runs it, and returns how many seconds that took."""
    begun = time.perf_counter()
    notebook = jupytext.read(source)
    where = {"metadata": {"path": FOLDER}}
    NotebookClient(notebook, timeout=1800, coalesce_streams=True, resources=where).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # times of day: noise in every diff
    jupytext.write(notebook, source.with_suffix(".ipynb"))
    seconds = time.perf_counter() - begun
    name = source.with_suffix(".ipynb").name
    print(f"{name}: {len(notebook.cells)} cells, all ran, in {seconds:.0f} s", flush=True)
    return seconds


if __name__ == "__main__":
    address.fill()
    times = {source.stem: build(source) for source in sorted(FOLDER.glob("[0-9]*.py"))}
    if slow := [name for name, seconds in times.items() if seconds > SECONDS]:
        raise SystemExit(f"more than {SECONDS} s: {', '.join(slow)}")
