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
    # Where a gradient is taken, JAX calls the forward function of a custom_vjp in its place.
    modules = [module for name, module in sys.modules.items() if name.startswith("transformer.")]
    for value in [value for module in modules for value in vars(module).values()]:
        if forward := getattr(value, "fwd", None):
            code = forward.__code__
            if (code.co_filename, code.co_name) in called:
                called.add((code.co_filename, value.__name__))
    names = sorted(f"{Path(path).relative_to(ROOT)} {name}\n" for path, name in called)
    Path(file).write_text("".join(names))
