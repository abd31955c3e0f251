"""A page to try runs in a browser, and LibreTranslate's interface for programs:
`python -m transformer.serving.server runs/quickstart` (extra `server`).

It listens on this machine only, unless `--host` says otherwise. Ctrl-C and SIGTERM end it after it
has answered the requests that it has received.
"""

import signal

if __name__ == "__main__" and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends the imports quietly

import asyncio
import ipaddress
import logging
import socket
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from operator import itemgetter
from threading import Thread
from typing import Annotated, Any

import tyro

from transformer.commands.command_line import parse_script
from transformer.commands.program import run_command
from transformer.config.rules import check_limits
from transformer.config.settings import Limit
from transformer.errors import UserError, one_line
from transformer.serving.requests import Limits

PROGRAM = "python -m transformer.serving.server"
SHUTDOWN_SECONDS = 60
"""Time in which running requests must finish after a signal."""

LOOPBACK = ("localhost", "127.0.0.1", "[::1]", "::1")
"""Names of this machine in requests of a browser on it."""


@dataclass(frozen=True)
class ServerCommand:
    """Serve runs of any kind: a web page to try them, and LibreTranslate's JSON interface."""

    runs: tyro.conf.Positional[tuple[str, ...]]
    """Runs to serve, each RUN or RUN:CHECKPOINT; of several translators between the same languages,
    the first answers LibreTranslate's clients."""
    host: str = "127.0.0.1"
    """The address to listen on; 0.0.0.0 lets other machines connect, without authentication."""
    port: Annotated[int, Limit(0, below=65_536)] = 5000
    """The port to listen on; 0: any free port."""
    hosts: tuple[str, ...] = ()
    """Host names that requests may use besides those of this machine, such as translate.example.org
    behind a proxy; * for any; if given, requests for other names are refused."""
    origins: tuple[str, ...] = ()
    """Origins of web pages that may send requests (CORS), such as https://example.org; * for all.
    """
    glossary: str = ""
    """Terms that translations must have: a file with lines of a source term, a tab, and its target
    term; "": none."""
    warm_up: bool = True
    """Compile in advance: for a short text before the server starts, for longer texts while it
    runs, the shortest first."""
    limits: Annotated[Limits, tyro.conf.arg(name="")] = field(default_factory=Limits)
    """Limits of requests, queue and connections."""


def main(words: list[str]) -> None:
    """Serves the runs that the command line names, until a signal ends it."""
    command = parse_script(ServerCommand, words, PROGRAM)
    check_limits(command.limits)
    if command.limits.waiting < command.limits.lines:
        raise UserError(
            "--waiting must be at least --lines, so that the largest request fits in the queue"
        )
    if not command.runs:
        raise UserError(f"no run is given: name one, such as {PROGRAM} runs/quickstart")

    # Slow imports come after the command line has been understood.
    try:
        import uvicorn

        from transformer.serving.access import access, check_access
        from transformer.serving.interface import BATCH_SIZES, make_application
    except ModuleNotFoundError as error:
        raise UserError(f"the server needs {error.name}: pip install -e '.[server]'") from error
    check_access(command.hosts, command.origins)
    from transformer.machine import devices
    from transformer.serving.service import load_service

    devices.configure_devices("any")
    with open_socket(command.host, command.port) as listener:
        services = [load_service(name, command.glossary) for name in dict.fromkeys(command.runs)]
        for service in services:
            print(f"{service.name}, {service.kind}, checkpoint {service.checkpoint}")
            if command.warm_up:
                service.warm_up()
        address, port = listener.getsockname()[:2]
        host = f"[{address}]" if ":" in address else address
        hosts = [*LOOPBACK, host, *command.hosts]
        if not ipaddress.ip_address(address).is_loopback:
            hosts = hosts if command.hosts else ["*"]
            print(f"warning: {host}:{port} is reachable from other machines without authentication")
        print(f"http://{host}:{port}  (Ctrl-C ends it)")
        application = make_application(services, command.limits, access(hosts, command.origins))
        if command.warm_up:
            Thread(target=compile_all, args=(services, BATCH_SIZES), daemon=True).start()
        uvicorn.Server(uvicorn_config(application, command.limits)).run([listener])


def compile_all(services: Sequence[Any], sizes: Sequence[int]) -> None:
    """Compiles what batches of these sizes need, and prints how far it is. Requests share the
    processor with it, but do not wait for it."""
    programs = [program for service in services for program in service.programs(sizes)]
    start, done = time.monotonic(), 0
    try:
        for tokens, group in groupby(sorted(programs, key=itemgetter(0)), key=itemgetter(0)):
            for _, compile_program in group:
                compile_program()
                done += 1
            print(
                f"compiled {done} of {len(programs)} programs, for texts of up to {tokens} tokens "
                f"({time.monotonic() - start:.0f} s)"
            )
    except Exception as error:  # the rest is compiled when it is needed
        progress = f"compiling in advance ended after {done} of {len(programs)} programs"
        warnings.warn(f"{progress}: {one_line(error)}", stacklevel=2)


def uvicorn_config(application: Any, limits: Limits) -> Any:
    """The configuration of uvicorn: running requests are finished at the end."""
    import uvicorn

    from transformer.serving.access import Connection

    logging.getLogger("uvicorn.error").addFilter(_is_not_cancellation)
    return uvicorn.Config(
        application,
        loop="asyncio",
        http=partial(Connection, limits),
        ws="none",
        log_level="error",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
    )


def _is_not_cancellation(record: logging.LogRecord) -> bool:
    """Whether it is something else than requests cancelled by a second Ctrl-C."""
    return not (record.exc_info and issubclass(record.exc_info[0], asyncio.CancelledError))


def open_socket(host: str, port: int) -> socket.socket:
    """A socket that listens there. Raises UserError if the system refuses it."""
    try:
        [(family, *_, address), *_] = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return socket.create_server(address[:2], family=family)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(
            f"cannot listen on {host}, port {port} ({reason}): choose others with --host and "
            "--port (0: any free port)"
        ) from error


if __name__ == "__main__":
    run_command(main)
