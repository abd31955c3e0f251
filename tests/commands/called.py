"""A command that writes which functions of the package it called: called.py FILE COMMAND WORDS."""

import runpy
import sys
import threading
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = str(ROOT / "transformer")
file, command, *words = sys.argv[1:]
called: set[tuple[str, str]] = set()


def note(frame, event, _):
    code = frame.f_code
    if event == "call" and code.co_filename.startswith(PACKAGE):
        called.add((code.co_filename, code.co_name))


sys.path.insert(0, str(ROOT))
sys.argv = [command, *words]
threading.setprofile(note)
sys.setprofile(note)
try:
    runpy.run_path(str(ROOT / command), run_name="__main__")
finally:
    sys.setprofile(None)
    names = sorted(f"{Path(path).relative_to(ROOT)} {name}\n" for path, name in called)
    Path(file).write_text("".join(names))
