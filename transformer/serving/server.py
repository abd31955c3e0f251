"""A page to try runs in a browser, and LibreTranslate's interface for programs:
`python -m transformer.serving.server runs/quickstart` (extra `server`).

It listens on this machine alone unless `--host` says otherwise. Ctrl-C and SIGTERM end it, when it
has answered what it was asked.
"""

import signal

if __name__ == "__main__" and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends the imports without a word

import asyncio
import ipaddress
import logging
import socket
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from threading import Thread
from typing import Annotated, Any

import tyro

from transformer.commands.command_line import member, parse_script
from transformer.commands.program import run_command
from transformer.config.rules import check_limits
from transformer.config.settings import Limit
from transformer.errors import UserError, one_line
from transformer.serving.limits import Limits

LONGEST_END = 60
"""Seconds in which what is under way must be finished, once a signal has come."""

LOOPBACK = ("localhost", "127.0.0.1", "[::1]", "::1")
"""Names of this machine, with which a browser on it may ask."""


@dataclass(frozen=True)
class ServerCommand:
    """Serve runs of any kind: a page to try them, and LibreTranslate's JSON interface."""

    runs: tyro.conf.Positional[tuple[str, ...]]
    """Run folders, or RUN:CHECKPOINT. Of several translators of the same languages the first one
    answers LibreTranslate's clients."""
    host: str = "127.0.0.1"
    """The address to listen on; 0.0.0.0 lets other machines ask, whoever they are."""
    port: Annotated[int, Limit(0, below=65_536)] = 5000
    """The port; 0: one that is free."""
    hosts: tuple[str, ...] = ()
    """Names of this server besides those of this machine, such as translate.example.org, where it
    stands behind a proxy; * for any. With these, requests for other names are refused."""
    origins: tuple[str, ...] = ()
    """Pages elsewhere that may ask (CORS), such as https://example.org; * for all."""
    warm_up: bool = True
    """Compile what runs will be asked for before they are: a short text before the server starts,
    the rest while it answers, the shortest first."""
    limits: Annotated[Limits, tyro.conf.arg(name="")] = field(default_factory=Limits)
    """How much may be asked."""


def main(words: list[str]) -> None:
    """Serves what the words of a command line name, until a signal ends it."""
    command = parse_script(ServerCommand, words, "python -m transformer.serving.server")
    check_limits(command.limits)
    if command.limits.waiting < command.limits.lines:
        raise UserError("--waiting must be at least --lines, or some requests could never wait")
    if not command.runs:
        raise UserError("name a run: python -m transformer.serving.server runs/quickstart")

    # Slow imports come after the command line has been understood.
    try:
        import uvicorn

        from transformer.serving.access import check_access
        from transformer.serving.interface import TOGETHER, make_application
    except ModuleNotFoundError as error:
        raise UserError(f"{error.name} is missing: pip install -e '.[server]'") from error
    check_access(command.hosts, command.origins)
    from transformer.machine import devices
    from transformer.serving.service import load_service

    devices.configure_devices("any")
    with listening(command.host, command.port) as found:
        runs = [load_service(*member(name), name) for name in dict.fromkeys(command.runs)]
        for run in runs:
            print(f"{run.name}, {run.kind}, checkpoint {run.checkpoint}")
            if command.warm_up:
                run.warm_up()
        host, port = found.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        hosts = [*LOOPBACK, shown, *command.hosts]
        if not ipaddress.ip_address(host).is_loopback:
            hosts = hosts if command.hosts else ["*"]
            print(f"warning: other machines can reach {host}:{port}, and nobody is asked who he is")
        print(f"http://{shown}:{port}  (Ctrl-C ends it)")
        application = make_application(runs, command.limits, hosts, command.origins)
        if command.warm_up:
            Thread(target=compile_all, args=(runs, TOGETHER), daemon=True).start()
        uvicorn.Server(settings(application, command.limits)).run([found])


def compile_all(runs: Sequence[Any], sizes: Sequence[int]) -> None:
    """Compiles what runs are asked for so many texts at once, and says how far it is. It takes its
    share of the processor, but no request waits for it."""
    programs = sorted((one for run in runs for one in run.programs(sizes)), key=lambda one: one[0])
    start, ready = time.monotonic(), 0
    try:
        for tokens, same in groupby(programs, key=lambda one: one[0]):
            for _, compile_one in same:
                compile_one()
                ready += 1
            print(
                f"compiled {ready} of {len(programs)} programs, for texts of up to {tokens} tokens "
                f"({time.monotonic() - start:.0f} s)"
            )
    except Exception as error:  # what is not compiled now is compiled when it is asked for
        done = f"compiled {ready} of {len(programs)} programs"
        warnings.warn(f"{done}: {one_line(error)}", stacklevel=2)


def settings(application, limits: Limits):
    """Of uvicorn: what is under way at the end is finished, for clients that take it."""
    import uvicorn

    from transformer.serving.connections import limited

    logging.getLogger("uvicorn.error").addFilter(_is_no_end)

    return uvicorn.Config(
        application,
        loop="asyncio",
        http=limited(limits),
        ws="none",
        log_level="error",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=LONGEST_END,
    )


def _is_no_end(record: logging.LogRecord) -> bool:
    """Whether what is to be logged is more than that the end was not waited for (Ctrl-C twice)."""
    return not (record.exc_info and issubclass(record.exc_info[0], asyncio.CancelledError))


def listening(host: str, port: int) -> socket.socket:
    """A socket of that address. Raises UserError where none is to be had."""
    try:
        [(family, *_, address), *_] = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return socket.create_server(address[:2], family=family)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(
            f"cannot listen on {host}, port {port} ({reason}): choose others with --host and "
            "--port (0: any that is free)"
        ) from error


if __name__ == "__main__":
    run_command(main)
