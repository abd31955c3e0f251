"""Connections to a server: none may wait for ever, and there are not too many."""

import asyncio
import json

from uvicorn.protocols.http.h11_impl import H11Protocol

from transformer.serving.limits import Limits


def limited(limits: Limits) -> type[H11Protocol]:
    """uvicorn's protocol, with an end for those who connect and do not ask: they would else keep
    all others out. What it refuses by itself is JSON too."""
    too_many = _refusal(
        "503 Service Unavailable", f"more than {limits.connections:,} connections: try again"
    )

    class Connection(H11Protocol):
        """One of them. A request's head must have come `limits.seconds` after the connection was
        made, or after the answer before."""

        timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport) -> None:
            super().connection_made(transport)
            if len(self.connections) > limits.connections:
                transport.write(too_many)
                transport.close()
            else:
                self.wait()

        def send_400_response(self, msg: str) -> None:
            """Refuses what is no HTTP."""
            if self.cycle is None or self.cycle.response_complete:
                self.transport.write(_refusal("400 Bad Request", msg))
            self.transport.close()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            self.wait()

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            if self.timer:
                self.timer.cancel()

        def wait(self) -> None:
            """Gives the client time for a request."""
            if self.timer:
                self.timer.cancel()
            self.timer = self.loop.call_later(limits.seconds, self.end_if_idle)

        def end_if_idle(self) -> None:
            """Closes a connection on which nothing is being answered."""
            if self.cycle is None or self.cycle.response_complete:
                self.transport.close()

    return Connection


def _refusal(status: str, sentence: str) -> bytes:
    body = json.dumps({"error": sentence})
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return (head + body).encode()
