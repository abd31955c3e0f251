"""Lines from a file, a pipe or a terminal."""

import io
import os
import threading
import time

import pytest

from transformer.commands.command_line import TranslateCommand
from transformer.commands.standard_input import (
    Arrivals,
    answer_lines,
    in_blocks,
    printed_errors,
    read_line,
    typed_lines,
)
from transformer.config import Config
from transformer.data.tokenizer import train_tokenizer
from transformer.data.vocabularies import Tokenizers
from transformer.decoding.requests import Answer
from transformer.decoding.translator import make_translator
from transformer.errors import UserError
from translate import Translation

ODD = "a\r\nb\u2028c\x0bd\n\ne".encode()


def read(blocks):
    """The texts of the lines, each with its number, and the sizes of the blocks."""
    blocks = list(blocks)
    lines = [(n, line) for first, block in blocks for n, line in enumerate(block, first)]
    return [(n, read_line(line, n == 0)) for n, line in lines], [len(block) for _, block in blocks]


@pytest.fixture
def pipe():
    """A pipe: what it gives, and the descriptor to write to."""
    reading, writing = os.pipe()
    with open(reading, "rb") as stream:
        yield stream, writing


def test_a_file_is_cut_into_blocks_of_one_size_and_only_a_line_feed_ends_a_line(tmp_path):
    path = tmp_path / "lines"
    path.write_bytes(ODD)
    with path.open("rb") as stream:
        lines, sizes = read(in_blocks(stream, 3))
    assert lines == [(0, "a"), (1, "b\u2028c\x0bd"), (2, ""), (3, "e")] and sizes == [3, 1]


def test_a_pipe_gives_the_same_lines_wherever_it_is_cut(pipe):
    """Within a line, within a character, between CR and LF."""
    stream, writing = pipe
    data = ODD * 20 + b"\n" + ("\u2028" * 50_000).encode() + b"\nlast"

    def write():
        for start in range(0, len(data), 7919):
            os.write(writing, data[start : start + 7919])
        os.close(writing)

    threading.Thread(target=write).start()
    lines, sizes = read(in_blocks(stream, 8))
    assert [text for _, text in lines] == [
        line.removesuffix("\r") for line in data.decode().split("\n")
    ]
    assert [n for n, _ in lines] == list(range(len(lines))) and max(sizes) <= 8


def test_a_line_is_given_when_it_comes_and_those_that_wait_together(pipe):
    stream, writing = pipe
    timer = threading.Timer(20, os.close, [writing])  # ends what waits for more
    timer.start()
    blocks = in_blocks(stream, 4)
    os.write(writing, b"one\nbegun")  # nobody writes more until this is answered
    assert next(blocks) == (0, [b"one"])
    os.write(writing, b" two\n")
    assert next(blocks) == (1, [b"begun two"])
    os.write(writing, b"3\n4\n5\n6\n7\n8\n9\n")
    assert [next(blocks), next(blocks)] == [(2, [b"3", b"4", b"5", b"6"]), (6, [b"7", b"8", b"9"])]
    timer.cancel()
    os.close(writing)
    assert list(blocks) == []


def test_a_full_pipe_gives_full_blocks_and_is_not_read_far_ahead(pipe):
    stream, writing = pipe
    taken = []

    def write():
        for number in range(1000):
            os.write(writing, (b"x" * 99 + b"\n") * 10)
            taken.append(number)
        os.close(writing)

    threading.Thread(target=write, daemon=True).start()
    while len(taken) < 60:  # the pipe is full, as after the start
        time.sleep(0.01)
    sizes = []
    for first, block in in_blocks(stream, 100):
        sizes.append(len(block))
        assert 10 * len(taken) < first + 3000  # a pipe, what has been read, and a chunk
        time.sleep(0.01)
    assert sum(sizes) == 10_000 and sum(size == 100 for size in sizes) > 0.9 * len(sizes)


def test_what_cannot_be_read_is_an_error(tmp_path):
    class Broken:
        fileno = isatty = lambda self: 0

        def read1(self, _):
            raise OSError(5, "Input/output error")

    with pytest.raises(OSError, match="Input/output"):
        list(Arrivals(Broken(), 4))


def test_a_byte_order_mark_is_no_text():
    assert read_line("\ufeffa\n".encode(), is_first=True) == "a"
    assert read_line("\ufeffa\n".encode(), is_first=False) == "\ufeffa"


class Doubling:
    """Doubles numbers; lines that are none cannot be read, 13 is none that can be answered."""

    def __init__(self):
        self.asked = []

    def read(self, line):
        if not line:
            return None
        if not line.isdecimal():
            raise UserError(f"{line!r} is no number")
        return int(line)

    def answer(self, requests, numbers):
        if 13 in requests:
            raise UserError("13 is too unlucky")
        self.asked.append(requests)
        return [f"{number}: {2 * request}" for number, request in zip(numbers, requests)]

    def failed(self, number, line, sentence):
        return f"{number}: no {line}"


def answered(tmp_path, capsys, data, skip, size=8):
    """What is printed of the lines of a file, the error, and what was asked together."""
    path, exchange, error = tmp_path / "lines", Doubling(), None
    path.write_bytes(data)
    with path.open("rb") as stream:
        try:
            answer_lines(stream, size, exchange, skip)
        except UserError as refused:
            error = str(refused)
    return capsys.readouterr().out.split("\n")[:-1], error, exchange.asked


BAD = [
    (b"x", "line 4: 'x' is no number"),
    (b"13", "line 4: 13 is too unlucky"),
    (b"\xff", "line 4: not UTF-8 (invalid start byte): convert the input, for example with iconv"),
]


@pytest.mark.parametrize("size", [1, 3, 4, 8])
@pytest.mark.parametrize("bad, sentence", BAD)
def test_a_bad_line_stops_when_all_before_it_are_answered(tmp_path, capsys, bad, sentence, size):
    data = b"1\n\n3\n" + bad + b"\n13\n6\n"
    found, error, _ = answered(tmp_path, capsys, data, skip=False, size=size)
    assert found == ["0: 2", "", "2: 6"] and error == sentence


@pytest.mark.parametrize("size", [1, 3, 4, 8])
@pytest.mark.parametrize("bad, sentence", BAD)
def test_a_bad_line_that_is_skipped_costs_itself_alone(
    tmp_path, capsys, recwarn, bad, sentence, size
):
    text = bad.decode(errors="replace").replace("\ufffd", "")
    data = b"1\n\n3\n" + bad + b"\n5\n6\n13\n"
    found, error, _ = answered(tmp_path, capsys, data, skip=True, size=size)
    expected = ["0: 2", "", "2: 6", f"3: no {text}", "4: 10", "5: 12", "6: no 13"]
    assert found == expected and error is None
    assert [str(one.message) for one in recwarn] == [
        f"{sentence} (skipped)",
        "line 7: 13 is too unlucky (skipped)",
        "2 lines were skipped (--on-error skip)",
    ]


@pytest.mark.filterwarnings("ignore:.*skip")
def test_lines_around_a_bad_one_are_answered_together(tmp_path, capsys):
    assert answered(tmp_path, capsys, b"1\nx\n3\n4\n", skip=True)[2] == [[1, 3, 4]]
    assert answered(tmp_path, capsys, b"1\n2\n13\n4\n", skip=True)[2] == [[1, 2], [4]]
    assert answered(tmp_path, capsys, b"1\n2\nx\n4\n", skip=False)[2] == [[1, 2]]
    assert answered(tmp_path, capsys, b"", skip=False) == ([], None, [])


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
    said = capsys.readouterr()
    assert said.err == "de> de> this line is not UTF-8: type it again\nde> de> \n"
    assert said.out == ""  # which may be a file, so that prompts are no part of it


def test_a_typed_line_without_an_answer_does_not_end_the_program(capsys):
    with printed_errors():
        raise UserError("the text has no target tag")
    assert capsys.readouterr().err == "the text has no target tag\n"


class Lines(io.BufferedReader):
    """Gives a line at a time."""

    def read1(self, size=-1):
        return self.readline()


def test_translations_that_are_truncated_are_counted_and_told_of_once(
    monkeypatch, recwarn, small_model, random_params
):
    def cut_the_long(translator, requests, *_):
        return [[Answer("x", truncated="long" in one.text or None)] for one in requests]

    monkeypatch.setattr("transformer.decoding.answers.translated", cut_the_long)
    command = TranslateCommand(run="here")
    config, pieces = Config(model=small_model()), train_tokenizer(["ab"], "char", 9)
    translator = make_translator(config, random_params(config.model), Tokenizers(pieces, pieces))
    exchange = Translation(command, translator)
    exchange.answer([exchange.read("short")], [0])
    exchange.warn_of_truncated()
    assert not recwarn.list
    for number, line in enumerate(["long", "short", "long"]):
        exchange.answer([exchange.read(line)], [number])
    exchange.warn_of_truncated()
    [warning] = recwarn.list
    assert str(warning.message).startswith(
        "2 of 4 translations were truncated at the longest length"
    )
