"""The address of the project, for the badges of the notebooks and the cells that install it.

It is [project.urls] Repository in pyproject.toml. `make notebooks` takes it from the git remote
`origin` if that is on GitHub, which is where Colab reads notebooks from.
"""

import re
import subprocess
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
COLAB = "https://colab.research.google.com/"
REMOTE = re.compile(r"(?:https://|ssh://git@|git@)github\.com[/:]([\w.-]+/[\w.-]+?)(?:\.git)?/?")


def address_of_project(project: str) -> str:
    """That of a pyproject.toml; "" if it has none."""
    return tomllib.loads(project)["project"].get("urls", {}).get("Repository", "")


def address_of_remote(remote: str) -> str:
    """That of a git remote on GitHub; "" for any other."""
    found = REMOTE.fullmatch(remote.strip())
    return f"https://github.com/{found[1]}" if found else ""


def with_address(project: str, new: str) -> str:
    """The pyproject.toml with this address instead of its own."""
    line = f'Repository = "{new}"'
    if address_of_project(project):
        return re.sub(r'^Repository = ".*"$', line, project, flags=re.MULTILINE)
    table = "[project.optional-dependencies]"
    return project.replace(table, f"[project.urls]\n{line}\n\n{table}")


def addressed(notebook: str, name: str, address: str) -> str:
    """The text of a notebook, NAME.py, with the address in its badge and its first cell. Without
    an address, the badge leads to Colab's own page, where a notebook can be uploaded."""
    page = COLAB
    if address:
        repository = address.removeprefix("https://github.com/")
        page += f"github/{repository}/blob/main/notebooks/{name}.ipynb"
    notebook = re.sub(rf"\({COLAB}(?!assets)[^)]*\)", f"({page})", notebook)
    return re.sub(r'^REPOSITORY = "[^"]*"', f'REPOSITORY = "{address}"', notebook, flags=re.M)


def fill(root: Path = ROOT) -> None:
    """Writes the address of the remote, if there is one, to pyproject.toml, and that of
    pyproject.toml to the notebooks."""
    remote = subprocess.run(
        ["git", "-C", root, "remote", "get-url", "origin"], capture_output=True, text=True
    )
    path = root / "pyproject.toml"
    project = path.read_text(encoding="utf-8")
    if new := address_of_remote(remote.stdout):
        project = with_address(project, new)
        path.write_text(project, encoding="utf-8")
    address = address_of_project(project)
    for source in (root / "notebooks").glob("[0-9]*.py"):
        text = source.read_text(encoding="utf-8")
        source.write_text(addressed(text, source.stem, address), encoding="utf-8")
