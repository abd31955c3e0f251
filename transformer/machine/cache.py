"""Where the program keeps what it can make again."""

import os
from pathlib import Path

from transformer.errors import UserError


def cache_folder() -> Path:
    """The folder `transformer` in the user's cache folder (XDG base directory specification)."""
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "transformer"
    except RuntimeError as error:
        raise UserError("you have no home folder: set XDG_CACHE_HOME to a folder") from error
