"""Who may use a server: host names, pages of other origins, and connections; refusals as JSON."""

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import JSONResponse, Response
from uvicorn.protocols.http.h11_impl import H11Protocol

from transformer.errors import UserError
from transformer.serving.requests import Limits

HOST = re.compile(r"(\[[0-9a-f:.]+\]|[\w.-]+)(:\d*)?", re.IGNORECASE | re.ASCII)
"""A name or an address, and perhaps a port."""

HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src data:; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
LONGEST_ERROR = 500
"""Characters of an error, which may quote a text."""


def refused(status: int, sentence: str, headers: Mapping[str, str] | None = None) -> Response:
    """An error as LibreTranslate's clients show it."""
    shown = sentence if len(sentence) <= LONGEST_ERROR else f"{sentence[:LONGEST_ERROR]} ..."
    return JSONResponse({"error": shown}, status, HEADERS | dict(headers or {}))


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
        is_origin = re.fullmatch("[a-z][a-z0-9+.-]*", scheme.lower()) and HOST.fullmatch(host)
        if origin != "*" and not is_origin:
            raise UserError(
                f"--origins {origin!r}: name origins as browsers do, with a scheme and without a "
                "path, such as https://example.org or http://localhost:8080, or * for all"
            )


def origin_of_browsers(origin: str) -> str:
    """An origin as browsers send it: in lower case, without the default port of its scheme."""
    origin = origin.lower()
    for scheme, port in (("http://", ":80"), ("https://", ":443")):
        if origin.startswith(scheme):
            origin = origin.removesuffix(port)
    return origin


def access(hosts: Sequence[str], origins: Sequence[str]) -> list[Middleware]:
    """Middleware that answers requests for these hosts only ("*": any), and lets pages of these
    origins read the answers."""
    found = [Middleware(Hosts, hosts=hosts)]
    if origins:
        names = [*map(origin_of_browsers, origins)]
        pages = {"allow_origins": names, "allow_methods": ["GET", "POST"], "allow_headers": ["*"]}
        found.insert(0, Middleware(Origins, **pages))
    return found


class Hosts:
    """Refuses requests for other hosts. Otherwise a page elsewhere could let its own name resolve
    to this machine (DNS rebinding), and read the answers."""

    def __init__(self, app: Any, hosts: Sequence[str]):
        self.app, self.hosts = app, [host.lower() for host in hosts]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Passes a request on, or refuses it."""
        host = Headers(scope=scope).get("host", "") if scope["type"] == "http" else None
        app = self.app
        if host is not None and not self.allows(host):
            app = refused(
                400, f"this server does not answer for the host {host!r}: allow it with --hosts"
            )
        await app(scope, receive, send)

    def allows(self, header: str) -> bool:
        """Whether a Host header names one of the hosts."""
        found = HOST.fullmatch(header)
        name = found[1].lower() if found else ""
        return any(
            host == "*"
            or (found and (name == host or (host[:2] == "*." and name.endswith(host[1:]))))
            for host in self.hosts
        )


class Origins(CORSMiddleware):
    """starlette's, with refusals as JSON."""

    def preflight_response(self, request_headers: Headers) -> Response:
        """The answer to a browser that asks whether a page may send a request."""
        response = super().preflight_response(request_headers)
        if response.status_code < 400:
            return response
        return refused(response.status_code, f"{response.body.decode()}: allow it with --origins")


class Connection(H11Protocol):
    """uvicorn's HTTP protocol with limits: the number of connections, and the time in which the
    head of a request must arrive, so that idle clients cannot keep others out."""

    def __init__(self, limits: Limits, **others: Any):
        super().__init__(**others)
        self.limits = limits
        self.timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport) -> None:
        """Refuses the connection if there are too many."""
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            sentence = f"more than {self.limits.connections:,} connections: try again"
            transport.write(_refusal("503 Service Unavailable", sentence))
            transport.close()
        else:
            self.start_timer()

    def send_400_response(self, msg: str) -> None:
        """Refuses what is not HTTP."""
        if self.is_idle():
            self.transport.write(_refusal("400 Bad Request", msg))
        self.transport.close()

    def on_response_complete(self) -> None:
        """Gives the client time for another request."""
        super().on_response_complete()
        self.start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancels the timer."""
        super().connection_lost(exc)
        if self.timer:
            self.timer.cancel()

    def is_idle(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def start_timer(self) -> None:
        """Gives the client time for a request."""
        if self.timer:
            self.timer.cancel()
        self.timer = self.loop.call_later(self.limits.seconds, self.close_if_idle)

    def close_if_idle(self) -> None:
        """Closes the connection, unless a request is being answered."""
        if self.is_idle():
            self.transport.close()


def _refusal(status: str, sentence: str) -> bytes:
    body = json.dumps({"error": sentence})
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return (head + body).encode()
