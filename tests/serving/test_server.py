"""What a server compiles in advance."""

from types import SimpleNamespace

import pytest

from transformer.data.tokenizer import train_tokenizer
from transformer.decoding.warm_up import search_shapes
from transformer.serving.server import compile_all
from transformer.serving.service import OPTIONS, ModelService, text_of_length

SIZES = (1, 4, 16)


def run_of(*programs):
    return SimpleNamespace(programs=lambda sizes: programs)


def test_the_shortest_of_all_runs_come_first_and_progress_is_printed(capsys):
    compiled = []

    def program(tokens, name):
        return tokens, lambda: compiled.append(name)

    first = run_of(program(16, "a"), program(64, "d"))
    compile_all([first, run_of(program(16, "b"), program(32, "c"))], SIZES)
    assert compiled == ["a", "b", "c", "d"]
    said = capsys.readouterr().out.splitlines()
    assert [line.partition(" (")[0] for line in said] == [
        f"compiled {ready} of 4 programs, for texts of up to {tokens} tokens"
        for ready, tokens in ((2, 16), (3, 32), (4, 64))
    ]


def test_what_cannot_be_compiled_is_a_warning():
    def fail():
        raise MemoryError("no\nroom")

    with pytest.warns(
        UserWarning, match="compiling in advance ended after 1 of 3 programs: no room"
    ):
        compile_all([run_of((16, lambda: None), (16, fail), (32, fail))], SIZES)


def test_what_is_compiled_is_what_requests_need(services, monkeypatch):
    asked = []
    answer = lambda _, texts, options: asked.append((texts, options))  # noqa: E731
    monkeypatch.setattr(ModelService, "answer", answer)
    translator, *others = services
    shapes = search_shapes(translator.translator, SIZES)
    for_the_page = [shape for shape in shapes if shape.rows == 1]
    assert [tokens for tokens, _ in translator.programs(SIZES)] == [
        shape.tokens for shape in shapes + for_the_page
    ]
    for run in others:
        asked.clear()
        for _, program in run.programs(SIZES):
            program()
        assert {len(texts) for texts, _ in asked} == {*SIZES}
        assert all(options == OPTIONS[run.kind][0] for _, options in asked)
        for text in {texts[0] for texts, _ in asked}:
            run.check(text)
            assert ("__" in text) == (run.kind == "masked model")


@pytest.mark.parametrize("kind", ["word", "bpe", "char"])
def test_a_text_of_a_given_length(kind):
    tokenizer = train_tokenizer(["the cat sees a dog", "der Hund sieht die Katze"] * 3, kind, 40)
    for count in (2, 7, 60):
        assert len(tokenizer.encode([text_of_length(tokenizer, count)])[0]) == count
