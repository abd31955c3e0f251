"""Lines from a pipe or a terminal."""

import io

import pytest

from transformer.commands.standard_input import read_lines, typed_lines
from transformer.errors import UserError


def test_only_a_line_feed_ends_a_line():
    data = "a\r\nb\u2028c\x0bd\n\ne".encode()
    assert list(read_lines(io.BytesIO(data))) == ["a", "b\u2028c\x0bd", "", "e"]


def test_a_line_that_is_not_utf_8_is_named():
    lines = read_lines(io.BytesIO(b"a\nb\xfc\n"))
    assert next(lines) == "a"
    with pytest.raises(UserError, match="line 2 of standard input is not UTF-8"):
        next(lines)


@pytest.mark.parametrize(
    "encoding, errors", [("utf-8", "strict"), ("utf-8", "surrogateescape"),
                         ("ascii", "surrogateescape")],
)  # fmt: skip
def test_what_is_typed_is_utf_8_in_every_locale(monkeypatch, capsys, encoding, errors):
    data = io.BytesIO("die Tür\n".encode() + b"die T\xfcr\nein Hund\n")
    # Unbuffered, as a terminal is: a line that cannot be decoded takes no other along.
    terminal = io.TextIOWrapper(Lines(data), encoding=encoding, errors=errors)
    monkeypatch.setattr("sys.stdin", terminal)
    assert list(typed_lines("de")) == ["die Tür", "ein Hund"]
    assert capsys.readouterr().err == "this line is not UTF-8: type it again\n"


class Lines(io.BufferedReader):
    """Gives a line at a time."""

    def read1(self, size=-1):
        return self.readline()
