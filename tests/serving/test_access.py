"""Who may use a server."""

import pytest

pytest.importorskip("starlette", reason="needs the extra `server`")
from transformer.errors import UserError
from transformer.serving.access import Hosts, check_access, origin_of_browsers


@pytest.mark.parametrize(
    "hosts, asked, allowed",
    [
        (["localhost", "[::1]"], ["localhost", "LocalHost:5000", "[::1]", "[::1]:80"], True),
        (["localhost"], ["", "evil.example", "localhost.evil", "localhost:/../x?"], False),
        (["localhost"], ["a@localhost", "localhost:80:80", "localhost/", " localhost"], False),
        (["*.example.org"], ["a.example.org", "a.b.example.org:443"], True),
        (["*.example.org"], ["example.org", "evilexample.org", "*"], False),
        (["*"], ["a", "", "\xff"], True),
    ],
)  # fmt: skip
def test_a_host_is_one_of_those_named(hosts, asked, allowed):
    assert {Hosts(None, hosts).allows(one) for one in asked} == {allowed}


def test_names_that_could_never_be_asked_for_are_refused():
    check_access(
        ["*", "*.example.org", "a-b.example", "10.0.0.1", "[::1]"],
        ["*", "https://a.example", "http://localhost:80", "http://[::1]:80", "moz-extension://1-2"],
    )
    for host in ("https://a.example", "a.example:80", "a.example/", "", "a.*", "*a.example"):
        with pytest.raises(UserError, match="--hosts"):
            check_access([host], [])
    for origin in ("a.example", "https://a.example/", "https://", "https://*", "null"):
        with pytest.raises(UserError, match="--origins"):
            check_access([], [origin])


def test_origins_are_written_as_browsers_send_them():
    for origin, sent in {
        "HTTPS://Example.org:443": "https://example.org",
        "http://a.example:80": "http://a.example",
        "http://a.example:443": "http://a.example:443",
        "*": "*",
    }.items():
        check_access([], [origin])
        assert origin_of_browsers(origin) == sent
