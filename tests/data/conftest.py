"""A tokenizer for any text, and a server of files on this machine that can be made to break off."""

import http.server
import re
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from sentences import SENTENCES

from transformer.config import DataConfig
from transformer.data.tokenizer import Tokenizer, train_tokenizer


@pytest.fixture(scope="session")
def bytewise() -> Tokenizer:
    return train_tokenizer(SENTENCES, "unigram", 300, DataConfig(byte_fallback=True))


@dataclass
class FileServer:
    """Serves a folder, from any byte on, over the loopback address."""

    folder: Path
    url: str = ""
    requests: list[tuple[str, str]] = field(default_factory=list)
    """(name, Range header) of each request."""
    cuts: dict[str, int] = field(default_factory=dict)
    """name -> bytes after which the next answer breaks off."""
    ranges: bool = True
    """Whether the server can begin in the middle of a file."""

    def answer(self, handler: http.server.BaseHTTPRequestHandler) -> None:
        address, wanted = handler.path.lstrip("/"), handler.headers.get("Range", "")
        name = address.removeprefix("download.php?f=").partition("?")[0]
        self.requests.append((name, wanted))
        if not (self.folder / name).is_file():
            handler.send_error(404, "no such file")
            return
        content = (self.folder / name).read_bytes()
        start = int(re.findall(r"\d+", wanted)[0]) if wanted and self.ranges else 0
        handler.send_response(206 if start else 200)
        handler.send_header("Content-Length", str(len(content) - start))
        handler.end_headers()
        handler.wfile.write(content[start : self.cuts.pop(name, len(content))])


@pytest.fixture
def file_server(tmp_path):
    server = FileServer(tmp_path / "served")
    server.folder.mkdir()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            server.answer(self)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        server.url = f"http://127.0.0.1:{running.server_port}/"
        yield server
        running.shutdown()
