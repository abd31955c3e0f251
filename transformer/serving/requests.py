"""Limits of requests, and how their fields are read: from JSON, or a form of either encoding."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from email import message_from_string
from email.message import Message
from itertools import takewhile
from typing import Annotated, Any, NamedTuple
from urllib.parse import parse_qsl

from transformer.config.settings import Limit, Positive
from transformer.decoding.requests import read_object
from transformer.errors import UserError

FORM, MULTIPART = "application/x-www-form-urlencoded", "multipart/form-data"
ARRAY = re.compile(r"(.+?)\[\d*\]")
"""How PHP, jQuery and others write the names of a list: `q[]`, `q[0]`."""


MOST_PARTS = 50
LONGEST_HEAD = 1_000
"""Parts of a request, and characters of the head of each: the time to parse a head grows with the
square of its length."""


class RefusedError(Exception):
    """A request that is refused: an HTTP status, and a sentence."""

    def __init__(self, status: int, sentence: str):
        super().__init__(sentence)
        self.status = status


@dataclass(frozen=True)
class Limits:
    """Limits of requests, queue and connections; an error names the one that is exceeded."""

    characters: Positive = 5000
    """Most characters in a request, in all of its lines together."""
    file_characters: Positive = 200_000
    """Most characters in a file."""
    lines: Positive = 100
    """Most lines in a request, or texts in its list."""
    waiting: Positive = 1000
    """Most lines in the queue, of all requests together."""
    connections: Positive = 500
    """Most connections at the same time."""
    seconds: Annotated[float, Limit(0, above=True)] = 10.0
    """Seconds within which the head of a request must arrive, and then its body."""

    @property
    def bytes(self) -> int:
        """Of a body: JSON and forms write a character with at most 12 bytes."""
        return 12 * self.characters + 10_000

    @property
    def file_bytes(self) -> int:
        """Of a form with a file: UTF-8 has at most 4 bytes in a character."""
        return 4 * self.file_characters + 10_000


class UploadedFile(NamedTuple):
    """A field of a form that is a file."""

    name: str
    content: bytes


def read_fields(content_type: str, body: bytes) -> Mapping[str, Any]:
    """The fields of a request. Raises UserError or RefusedError.

    JSON is recognised by its content, since clients often send it as a form or without a type. A
    field that occurs several times, or whose name is that of an array, is a list.
    """
    kind = content_type.partition(";")[0].strip().lower()
    try:
        if kind == MULTIPART:
            return _with_lists(_multipart(content_type, body))
        text = body.decode("utf-8-sig")
        if kind.endswith("json") or text.lstrip().startswith("{"):
            return read_object(text, "the request")
        if kind not in ("", FORM, "text/plain"):
            raise RefusedError(415, f"send application/json, {FORM} or {MULTIPART}, not {kind}")
        return _with_lists(parse_qsl(text, keep_blank_values=True, errors="strict"))
    except ValueError:
        raise UserError("the request is not UTF-8: send its texts in this encoding") from None


def _with_lists(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    values: dict[str, list] = {}
    arrays = set()
    for name, value in pairs:
        if array := ARRAY.fullmatch(name):
            name = array[1]
            arrays.add(name)
        values.setdefault(name, []).append(value)
    return {
        name: found if len(found) > 1 or name in arrays else found[0]
        for name, found in values.items()
    }


def _multipart(content_type: str, body: bytes) -> Iterable[tuple[str, Any]]:
    """The fields of a form with several parts (RFC 7578)."""
    boundary = _head(f"Content-Type: {content_type}").get_boundary() or ""
    _, *parts = (b"\r\n" + body).split(b"\r\n--" + boundary.encode("latin-1"))
    if not boundary or not parts:
        raise UserError("the request has no parts, or does not name the boundary between them")
    if len(parts) > MOST_PARTS:
        raise UserError(f"the request has more than {MOST_PARTS} parts: send it as JSON")
    for part in takewhile(lambda part: not part.startswith(b"--"), parts):
        raw, _, content = part.partition(b"\r\n\r\n")
        head = _head(raw.decode().strip())
        name = head.get_param("name", header="content-disposition")
        if not isinstance(name, str):
            raise UserError("a part of the request has no name")
        file = head.get_filename()
        yield name, UploadedFile(file, content) if file else content.decode()


def _head(text: str) -> Message:
    """The headers of a request or of a part."""
    if len(text) > LONGEST_HEAD:
        raise UserError(
            f"a part of the request has a head of more than {LONGEST_HEAD:,} characters"
        )
    return message_from_string(text)
