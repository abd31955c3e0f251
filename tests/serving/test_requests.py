"""The fields of requests, as existing clients write them."""

import json

import pytest

from transformer.errors import UserError
from transformer.serving.requests import RefusedError, UploadedFile, read_fields

FORM = "application/x-www-form-urlencoded"
TEXTS = [
    "a",
    "",
    "\n",
    " a \n",
    "a\r\nb\r\n",
    "a\u2028b\x0bc\x0cd\x85e\rf",
    "Tür 😀",
    "--",
    "a: b\n\nc",
]


@pytest.mark.parametrize(
    "kind", ["application/json", "", "text/plain", FORM, "application/ld+json"]
)
def test_json_is_known_by_its_content(kind):
    for text in ('{"q": "a=b&c"}', ' \n{"q": "a=b&c"}', '\ufeff{"q": "a=b&c"}'):
        assert read_fields(f"{kind}; charset=utf-8", text.encode()) == {"q": "a=b&c"}
    with pytest.raises(UserError, match="the request is not JSON"):
        read_fields(kind, b'{"q": ')


@pytest.mark.parametrize(
    "body, fields",
    [
        ("q=a&q=b", {"q": ["a", "b"]}),
        ("q[]=a", {"q": ["a"]}),
        ("q%5B%5D=a&q%5B%5D=&source=en", {"q": ["a", ""], "source": "en"}),
        ("q[0]=a&q[1]=b&q[2]=c", {"q": ["a", "b", "c"]}),
        ("q=a+b%0A&source=", {"q": "a b\n", "source": ""}),
        ("q=[]", {"q": "[]"}),
        ("", {}),
    ],
)
def test_fields_that_occur_several_times_are_lists(body, fields):
    for kind in (FORM, "", "text/plain"):
        assert read_fields(kind, body.encode()) == fields


MULTIPART = "multipart/form-data; boundary=XyZ"


def parts(*fields):
    head = '--XyZ\r\nContent-Disposition: form-data; name="{}"\r\n\r\n{}\r\n'
    return ("".join(head.format(*field) for field in fields) + "--XyZ--\r\n").encode()


@pytest.mark.parametrize("text", TEXTS)
def test_every_way_to_send_a_text_keeps_it_as_it_is(text):
    from urllib.parse import urlencode

    expected = {"q": [text, text], "target": "de"}
    pairs = [("q", text), ("q", text), ("target", "de")]
    assert read_fields("application/json", json.dumps(expected).encode()) == expected
    assert read_fields(FORM, urlencode(pairs).encode()) == expected
    assert read_fields(MULTIPART, parts(*pairs)) == expected


@pytest.mark.parametrize(
    "kind, body, error, sentence",
    [
        ("multipart/form-data", parts(("q", "a")), UserError, "does not name the boundary"),
        (MULTIPART, b"q=a", UserError, "has no parts"),
        (MULTIPART, b"--XyZ\r\n\r\nx\r\n--XyZ--", UserError, "no name"),
        (MULTIPART, parts(("q", "a")).replace(b"a\r", b"\xff\r"),
         UserError, "not UTF-8"),
        (MULTIPART, parts(("q" * 1_000, "a")), UserError, "head of more than 1,000 characters"),
        (MULTIPART + ";a=" * 400, parts(("q", "a")), UserError, "head of more than 1,000"),
        (MULTIPART, parts(*[("q", "a")] * 51), UserError, "more than 50 parts"),
        (FORM, b"q=%ff", UserError, "not UTF-8"),
        ("application/xml", b"<q/>", RefusedError, "send application/json"),
    ],
)  # fmt: skip
def test_what_has_no_fields_is_refused(kind, body, error, sentence):
    with pytest.raises(error, match=sentence):
        read_fields(kind, body)


def test_forms_may_have_lists_and_files():
    for name in ("T\u00fcr (1).srt", "(" * 900):  # Python's newer parser nests brackets
        form = parts(("q", "a"), ("q", "b"), (f'file"; filename="{name}', "c"))
        assert read_fields(MULTIPART, form) == {"q": ["a", "b"], "file": UploadedFile(name, b"c")}
