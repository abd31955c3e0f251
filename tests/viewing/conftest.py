"""Small models of each kind with random weights, and a real server that answers for them."""

import http.client
import json
import socket
import sys
import threading
import time
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from transformer.config import Config, DataConfig, DecodeConfig
from transformer.data.tokenizer import train_tokenizer
from transformer.data.vocabularies import Labels, Tokenizers
from transformer.viewing.limits import Limits
from transformer.viewing.served import make_served

TEXT = "the cat sees a dog in the garden . a dog sees the cat ."


@pytest.fixture(scope="session")
def models(small_model, random_params):
    """Of each kind of model: config, parameters, tokenizers."""
    pieces = train_tokenizer([TEXT] * 3, "word", 13)
    size = pieces.vocab_size
    decode = DecodeConfig(beam_size=4, max_extra_length=6, max_source_length=20)

    def build(target_side=pieces, source="en", target="de", **changes):
        model = small_model(source_vocab_size=size, target_vocab_size=size, **changes)
        config = Config(model=model, data=DataConfig(source=source, target=target), decode=decode)
        return config, random_params(model), Tokenizers(pieces, target_side)

    return {
        "translator": build(),
        "language model": build(source="", encoder_layers=0),
        "masked model": build(target="", decoder_layers=0),
        "classifier": build(Labels(("one", "two")), decoder_layers=0, classes=2),
    }


@pytest.fixture(scope="session")
def served(models):
    """All of them, as a server has them."""
    return [make_served(kind, config, "last", *rest) for kind, (config, *rest) in models.items()]


@pytest.fixture(scope="session")
def serving():
    """A function from runs and limits to a context in which a server answers for them; it gives a
    function that asks it."""
    uvicorn = pytest.importorskip("uvicorn", reason="needs the extra `server`")
    from transformer.viewing.interface import make_application
    from transformer.viewing.server import LOOPBACK, settings

    @contextmanager
    def serve(runs, limits=Limits(), hosts=LOOPBACK, origins=()):  # noqa: B008
        server = uvicorn.Server(settings(make_application(runs, limits, hosts, origins), limits))
        with socket.create_server(("127.0.0.1", 0)) as found:
            thread = threading.Thread(target=server.run, args=([found],))
            thread.start()
            try:
                while not server.started:
                    assert thread.is_alive()
                    time.sleep(0.01)
                yield Client(found.getsockname()[1])
            finally:
                server.should_exit = True
                thread.join()

    return serve


@pytest.fixture(scope="session")
def client(serving, served):
    with serving(served, Limits(characters=200, lines=6)) as client:
        yield client


@pytest.fixture(scope="session")
def report(models, tmp_path_factory):
    """A report of the translator."""
    for package in ("matplotlib", "jinja2"):
        pytest.importorskip(package, reason="needs the extra `viewing`")
    from small_report import write_report

    path = tmp_path_factory.mktemp("report") / "report.html"
    write_report(path, models["translator"])
    return path


class Client:
    """Asks a server, each time on a new connection: status and answer."""

    def __init__(self, port):
        self.port = port

    def raw(self, method, path, body=None, headers=()):
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            connection.request(method, path, body, dict(headers))
            response = connection.getresponse()
            return response.status, response.headers, response.read()

    def get(self, path, **headers):
        status, _, body = self.raw("GET", path, headers=headers)
        return status, json.loads(body)

    def post(self, path, values):
        headers = {"Content-Type": "application/json"}
        status, _, body = self.raw("POST", path, json.dumps(values), headers)
        return status, json.loads(body)
