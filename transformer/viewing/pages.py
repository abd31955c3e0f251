"""HTML pages that need no other file and no network."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

FOLDER = Path(__file__).parent / "page"


def render(template: str, values: Mapping[str, Any]) -> str:
    """A page from a template of `page/`, where `file(name)` is the text of a style or script."""
    loader = jinja2.FileSystemLoader(FOLDER)
    environment = jinja2.Environment(
        loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template(template).render({**values, "file": _text})


def _text(name: str) -> Markup:
    return Markup((FOLDER / name).read_text(encoding="utf-8"))


def as_json(value: Any) -> str:
    """JSON that cannot end the script element around it."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text
