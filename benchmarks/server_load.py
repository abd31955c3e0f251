"""A server under load: many clients at once, each answer checked, latency and throughput beside
those of translating the same sentences as a file.

    python -m benchmarks.server_load runs/quickstart [--clients 32 --requests 1000]

Needs the extra `server`. The server is a process of its own, and so is translate.py; both have
translated the same sentences once before, so that no time is for compiling. Clients are threads of
this process, on the same machine: they take their share of it.
"""

import http.client
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tyro

from benchmarks.measure import run_script, table, versions
from transformer.commands.command_line import parse_script
from transformer.commands.program import run_command
from transformer.config.settings import Positive
from transformer.data.corpus import read_pairs
from transformer.errors import UserError
from transformer.runs.folder import load_run_config


@dataclass(frozen=True)
class ServerLoad:
    """Load a server with many concurrent clients."""

    run: tyro.conf.Positional[Path]
    """The run folder of a translator."""
    clients: Positive = 32
    """Clients that ask one sentence after the other."""
    requests: Positive = 1000
    """Sentences of the test split, each a request."""


def main(words: list[str]) -> None:
    command = parse_script(ServerLoad, words, "python -m benchmarks.server_load")
    data = load_run_config(command.run).data
    sentences = [source for source, _ in read_pairs(data, "test")]
    sentences = (sentences * (1 + command.requests // len(sentences)))[: command.requests]

    expected, file_seconds = as_file(command.run, sentences)
    languages = {"source": data.source, "target": data.target}
    with serve(command.run) as port:
        for _ in range(3):  # compiles: which sentences meet is another each time
            ask_all(port, sentences, languages, command.clients)
        answers, latencies, seconds = ask_all(port, sentences, languages, command.clients)
        alone = ask_all(port, sentences[:100], languages, 1)[1]
    wrong = sum(one != other for one, other in zip(answers, expected, strict=True))
    print(f"{command.requests:,} requests by {command.clients} clients, {versions('jax')}")
    print(f"{len(answers):,} answered, {wrong:,} of them not what translate.py says\n")
    middle, slow = np.quantile(latencies, (0.5, 0.99))
    print(
        table(
            [
                {
                    "": f"server, {command.clients} clients",
                    "sentences/s": f"{len(answers) / seconds:.1f}",
                    "p50": f"{1000 * middle:.0f} ms",
                    "p99": f"{1000 * slow:.0f} ms",
                },
                {
                    "": "server, one client",
                    "sentences/s": f"{len(alone) / sum(alone):.1f}",
                    "p50": f"{1000 * np.quantile(alone, 0.5):.0f} ms",
                    "p99": f"{1000 * np.quantile(alone, 0.99):.0f} ms",
                },
                {
                    "": "translate.py, start not counted",
                    "sentences/s": f"{len(sentences) / file_seconds:.1f}",
                    "p50": "-",
                    "p99": "-",
                },
            ]
        )
    )


def as_file(run: Path, sentences: list[str]) -> tuple[list[str], float]:
    """What translate.py makes of the sentences, and the seconds that they take it: those for all
    of them less those for a blank one."""

    def timed(texts: list[str]) -> tuple[list[str], float]:
        start = time.perf_counter()
        output = run_script("translate.py", str(run), text="".join(f"{text}\n" for text in texts))
        return output.split("\n")[:-1], time.perf_counter() - start

    timed(sentences)  # compiles
    translations, seconds = timed(sentences)
    return translations, seconds - timed([""])[1]


@contextmanager
def serve(run: Path) -> Iterator[int]:
    """A server for the run; its port."""
    command = [sys.executable, "-m", "transformer.serving.server", str(run)]
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            [*command, "--port", "0", "--no-warm-up"],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        try:
            for line in process.stdout:
                if found := re.search(r"http://[^:]+:(\d+)", line):
                    yield int(found[1])
                    return
            errors.seek(0)
            raise UserError(f"the server did not start: {errors.read().strip()}")
        finally:
            process.terminate()
            process.wait()


def ask_all(
    port: int, sentences: list[str], languages: dict[str, str], clients: int
) -> tuple[list[str], list[float], float]:
    """The translations in order, the seconds that each took, and all together."""

    def ask(sentence: str) -> tuple[str, float]:
        start = time.perf_counter()
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=300)) as connection:
            body = json.dumps({"q": sentence} | languages)
            connection.request("POST", "/translate", body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            answer = json.loads(response.read())
        if response.status != 200:
            raise UserError(f"the server answered {response.status}: {answer}")
        return answer["translatedText"], time.perf_counter() - start

    start = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        found = list(pool.map(ask, sentences))
    seconds = time.perf_counter() - start
    return [text for text, _ in found], [taken for _, taken in found], seconds


if __name__ == "__main__":
    run_command(main)
