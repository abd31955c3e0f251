"""The fields of a request: a JSON object, or a form of either encoding."""

import re
from collections.abc import Iterable, Mapping
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any
from urllib.parse import parse_qsl

from transformer.decoding.requests import read_object
from transformer.errors import UserError
from transformer.serving.access import RefusedError

FORM, PARTS = "application/x-www-form-urlencoded", "multipart/form-data"
ARRAY = re.compile(r"(.+?)\[\d*\]")
"""How PHP, jQuery and others write the names of a list: `q[]`, `q[0]`."""


def read_fields(content_type: str, body: bytes) -> Mapping[str, Any]:
    """The fields of a request. Raises UserError or RefusedError.

    JSON is known by its content, since clients often name no type for it, or that of a form. A
    field that comes several times, or whose name is that of an array, is a list.
    """
    kind = content_type.partition(";")[0].strip().lower()
    try:
        if kind == PARTS:
            return _listed(_parts(content_type, body))
        text = body.decode("utf-8-sig")
        if kind.endswith("json") or text.lstrip().startswith("{"):
            return read_object(text, "the request")
        if kind not in ("", FORM, "text/plain"):
            raise RefusedError(415, f"send application/json, {FORM} or {PARTS}, not {kind}")
        return _listed(parse_qsl(text, keep_blank_values=True, errors="strict"))
    except ValueError as error:
        raise UserError(f"the request is not UTF-8: {error}") from None


def _listed(pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, value in pairs:
        array = ARRAY.fullmatch(name)
        name = array[1] if array else name
        if name in fields or array:
            before = fields.get(name, [])
            fields[name] = [*(before if isinstance(before, list) else [before]), value]
        else:
            fields[name] = value
    return fields


def _parts(content_type: str, body: bytes) -> Iterable[tuple[str, str]]:
    head = f"Content-Type: {content_type}\r\n\r\n".encode("latin-1")
    message = message_from_bytes(head + body, EmailMessage, policy=policy.HTTP)
    if not message.is_multipart():
        raise UserError("the request has no parts, or does not name the boundary between them")
    for part in message.iter_parts():
        name = part.get_param("name", header="content-disposition")
        content = part.get_payload(decode=True)
        if not isinstance(name, str) or content is None:
            raise UserError("a part of the request has no name, or parts of its own")
        yield name, content.decode()
