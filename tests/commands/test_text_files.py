"""`train.py FILES`: settings without a config file, as parse_train makes them."""

from pathlib import Path

import pytest

from transformer.commands.command_line import parse_train
from transformer.config.advice import TRANSLATOR
from transformer.config.files import to_json
from transformer.errors import UserError


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working directory with text: 2 MB of pairs, a table, a text alone."""
    monkeypatch.chdir(tmp_path)
    for name in ("news.en", "news.de", "valid.en", "valid.de", "book.txt"):
        Path(name).write_text("a sentence of some length, line by line\n" * 50_000)
    Path("pairs.tsv").write_text("one\teins\n")
    return tmp_path


PAIRS = ["news.en", "news.de", "--data.validation-files", "valid.en", "valid.de"]


def test_settings_follow_from_the_text_and_languages_from_the_names(folder):
    command = parse_train(PAIRS)
    data = command.settings.data
    assert command.run == Path("runs/news")
    assert (data.dataset, data.source, data.target) == ("", "en", "de")
    assert data.train_files == ("news.en", "news.de")
    assert data.vocab_size == TRANSLATOR.rows[1].vocab_size
    assert command.settings.model.d_model == TRANSLATOR.rows[1].d_model
    assert not data.windows


def test_settings_of_the_command_line_hold(folder):
    settings = parse_train([*PAIRS, "--model.d-model", "64", "--data.target", "nl"]).settings
    assert (settings.model.d_model, settings.data.target) == (64, "nl")


def test_a_text_alone_is_a_stream_for_a_language_model(folder):
    words = ["book.txt", "--data.target", "en", "--data.validation-files", "valid.en"]
    settings = parse_train(words).settings
    assert settings.data.windows
    assert (settings.model.encoder_layers, settings.data.sides) == (0, ("target",))
    masked = parse_train([w.replace("target", "source") for w in words]).settings
    assert (masked.model.decoder_layers, masked.data.sides) == (0, ("source",))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "name a config file, such as configs/quickstart.py, or text files"),
        (["pairs.tsv"], "languages of pairs.tsv are unknown: add --data.source and --data.target"),
        (["news.en", "news.fr"], "there is no file news.fr"),
        (["some.py", "news.en"], "name one config file, or text files alone"),
        (["news.en", "news.de"], "data.validation_files must be set"),
        (["nowhere"], "no config file nowhere"),
        (["nowhere.tsv", "--data.source", "en"], "there is no file nowhere.tsv"),
    ],
)
def test_a_mistake_is_one_sentence(folder, words, message):
    with pytest.raises(UserError, match=message):
        parse_train(words)


def test_a_run_that_has_begun_keeps_its_settings_when_its_text_grows(folder):
    before = parse_train(PAIRS).settings
    run = folder / "runs" / "news"
    (run / "checkpoints" / "500").mkdir(parents=True)
    (run / "config.json").write_text(to_json(before.with_vocabularies(100, 100, "a digest")))
    Path("news.en").write_text("a sentence of some length, line by line\n" * 500_000)
    Path("news.de").write_text("a sentence of some length, line by line\n" * 500_000)
    assert parse_train(PAIRS).settings == before
