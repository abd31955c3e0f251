"""Who may ask a server (by which names of its own, from which pages), and refusals as JSON."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import JSONResponse, Response

from transformer.errors import UserError

HOST = re.compile(r"(\[[0-9a-f:.]+\]|[\w.-]+)(:\d*)?", re.IGNORECASE | re.ASCII)
"""A name or an address, and perhaps a port."""

HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src data:; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
LONGEST_REFUSAL = 500
"""Letters: a mistake is shown, but not all of a text that is full of it."""


class RefusedError(Exception):
    """A request that is not answered: an HTTP status, and a sentence."""

    def __init__(self, status: int, sentence: str):
        super().__init__(sentence)
        self.status = status


def refused(status: int, sentence: str, headers: Mapping[str, str] | None = None) -> Response:
    """What LibreTranslate's clients show."""
    shown = sentence if len(sentence) <= LONGEST_REFUSAL else f"{sentence[:LONGEST_REFUSAL]} ..."
    return JSONResponse({"error": shown}, status, HEADERS | dict(headers or {}))


def access(hosts: Sequence[str], origins: Sequence[str]) -> list[Middleware]:
    """Answers requests for these hosts alone ("*" for any), and lets pages of these origins read
    the answers."""
    found = [Middleware(Hosts, hosts=hosts)]
    if origins:
        pages = {"allow_origins": origins, "allow_methods": ["GET", "POST"], "allow_headers": ["*"]}
        found.insert(0, Middleware(Origins, **pages))
    return found


def check_access(hosts: Sequence[str], origins: Sequence[str]) -> None:
    """Raises UserError for what is neither the name of a host nor an origin."""
    for host in hosts:
        found = HOST.fullmatch(host.removeprefix("*."))
        if host != "*" and (not found or found[2]):
            raise UserError(
                f"--hosts {host!r}: name hosts without scheme, port and path, such as "
                "translate.example.org, *.example.org, or * for any"
            )
    for origin in origins:
        scheme, _, host = origin.partition("://")
        if origin != "*" and not (
            re.fullmatch("[a-z][a-z0-9+.-]*", scheme) and HOST.fullmatch(host)
        ):
            raise UserError(
                f"--origins {origin!r}: name origins as browsers do, with a scheme and without a "
                "path, such as https://example.org or http://localhost:8080, or * for all"
            )


class Hosts:
    """Refuses requests for other hosts: a page elsewhere could have its own name lead to this
    machine (DNS rebinding), and read the answers."""

    def __init__(self, app: Any, hosts: Sequence[str]):
        self.app, self.hosts = app, [host.lower() for host in hosts]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Passes a request on, or refuses it."""
        if scope["type"] != "http" or self.allows(asked := Headers(scope=scope).get("host", "")):
            await self.app(scope, receive, send)
        else:
            sentence = f"this server does not answer for the host {asked!r}: name it with --hosts"
            await refused(400, sentence)(scope, receive, send)

    def allows(self, asked: str) -> bool:
        """Whether a Host header names one of the hosts."""
        found = HOST.fullmatch(asked)
        name = found[1].lower() if found else ""
        return any(
            host == "*"
            or (found and (name == host or (host[:2] == "*." and name.endswith(host[1:]))))
            for host in self.hosts
        )


class Origins(CORSMiddleware):
    """starlette's, but what it refuses is JSON too."""

    def preflight_response(self, request_headers: Headers) -> Response:
        """The answer to a browser that asks whether a page may ask."""
        response = super().preflight_response(request_headers)
        if response.status_code < 400:
            return response
        return refused(response.status_code, f"{response.body.decode()}: name it with --origins")
