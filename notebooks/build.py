"""Makes each notebook from its text source, and runs it: `make notebooks`.

The text (NAME.py) is what people edit; NAME.ipynb is generated, its outputs included.
"""

import time
from pathlib import Path

import jupytext
from nbclient import NotebookClient

FOLDER = Path(__file__).parent


def build(source: Path) -> None:
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


if __name__ == "__main__":
    for source in sorted(FOLDER.glob("*.py")):
        if source.name != Path(__file__).name:
            build(source)
