"""A real server that answers for small models of each kind, and a report of one."""

import http.client
import json
import socket
import threading
import time
from contextlib import closing, contextmanager

import pytest

from transformer.serving.requests import Limits
from transformer.serving.service import ModelService


@pytest.fixture(scope="session")
def services(models):
    """All of them, as a server has them."""
    return [ModelService(kind, config, "last", *rest) for kind, (config, *rest) in models.items()]


@pytest.fixture(scope="session")
def serving():
    """A function from runs and limits to a context in which a server answers for them; it gives a
    function that asks it."""
    uvicorn = pytest.importorskip("uvicorn", reason="needs the extra `server`")
    from transformer.serving.access import access
    from transformer.serving.interface import make_application
    from transformer.serving.server import LOOPBACK, uvicorn_config

    @contextmanager
    def serve(runs, limits=Limits(), hosts=LOOPBACK, origins=()):  # noqa: B008
        application = make_application(runs, limits, access(hosts, origins))
        server = uvicorn.Server(uvicorn_config(application, limits))
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
def client(serving, services):
    with serving(services, Limits(characters=200, lines=6)) as client:
        yield client


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
