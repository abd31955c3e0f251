"""`train.py FILES`: settings without a config file, as parse_train makes them."""

import gzip
from pathlib import Path

import pytest

from transformer.commands.command_line import parse_train
from transformer.config.advice import TRANSLATOR
from transformer.config.files import to_json
from transformer.errors import UserError

SENTENCE = "a sentence of some length, line by line\n"
NAMES = (
    "news.en", "news.de", "more.en", "more.de", "valid.en", "valid.de", "book.txt", "tgt.deu",
    "words.zho_Hans", "news.ru",
)  # fmt: skip


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working directory with a few lines of text in each file, and tables."""
    monkeypatch.chdir(tmp_path)
    for name in NAMES:
        Path(name).write_text(SENTENCE * 10)
    Path("news.ru").write_text("\u0441\u043b\u043e\u0432\u043e\n" * 10)
    Path("news.en.gz").write_bytes(gzip.compress(SENTENCE.encode() * 10))
    Path("pairs.tsv").write_text("one\teins\n")
    return tmp_path


def grow(megabytes):
    """Lets the pairs of the first corpus become so large."""
    for name in ("news.en", "news.de"):
        Path(name).write_text(SENTENCE * round(megabytes * 1e6 / len(SENTENCE)))


PAIRS = ["news.en", "news.de", "--data.validation-files", "valid.en", "valid.de"]


def test_settings_follow_from_the_text_and_languages_from_the_names(folder):
    grow(2)
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
    assert settings.optimizer.weight_decay > 0
    assert parse_train([*PAIRS, "--optimizer.name", "adam"]).settings.optimizer.weight_decay == 0


def test_a_text_alone_is_a_stream_for_a_language_model(folder):
    words = ["book.txt", "--data.target", "en", "--data.validation-files", "valid.en"]
    settings = parse_train(words).settings
    assert settings.data.windows
    assert (settings.model.encoder_layers, settings.data.sides) == (0, ("target",))
    masked = parse_train([w.replace("target", "source") for w in words]).settings
    assert (masked.model.decoder_layers, masked.data.sides) == (0, ("source",))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("news.en.gz news.de", ("en", "de", False)),
        ("news.en news.de more.en more.de", ("en", "de", False)),
        ("pairs.tsv news.en news.de", ("en", "de", False)),
        ("pairs.tsv --data.source en --data.target de", ("en", "de", False)),
        ("news.en words.zho_Hans", ("en", "zho_Hans", False)),
        ("news.en tgt.deu --data.target de", ("en", "de", False)),
        ("news.en", ("", "en", True)),
        ("news.en more.en --data.target en", ("", "en", False)),
        ("pairs.tsv --data.source en --data.label-column 2", ("en", "", False)),
    ],
)
def test_sides_follow_from_the_names_or_from_settings(folder, words, expected):
    valid = "pairs.tsv" if "label" in words else "valid.en"
    command = parse_train([*words.split(), "--data.validation-files", valid])
    data = command.settings.data
    assert (data.source, data.target, data.windows) == expected
    assert command.run == Path("runs") / words.partition(".")[0]


def test_two_scripts_have_a_vocabulary_each(folder):
    words = ["news.en", "news.ru", "--data.validation-files", "valid.en", "valid.de"]
    settings = parse_train(words).settings
    assert not settings.data.shared_vocabulary
    assert settings.model.tying == "target"


def test_the_schedule_follows_the_updates_of_the_command_line(folder):
    settings = parse_train([*PAIRS, "--train.steps", "100"]).settings
    assert (settings.train.steps, settings.optimizer.cooldown_steps) == (100, 50)
    own = parse_train([*PAIRS, "--train.steps=100", "--optimizer.cooldown-steps", "10"]).settings
    assert (own.train.steps, own.optimizer.cooldown_steps) == (100, 10)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "name a config file, such as configs/quickstart.py, or text files"),
        (["pairs.tsv"], "names of pairs.tsv do not tell the languages: add --data.source and"),
        (["news.en", "more.en"], "names of news.en more.en do not tell the languages"),
        (["news.en", "tgt.deu"], "names of news.en tgt.deu do not tell the languages"),
        (["book.txt", "news.en"], "names of book.txt news.en do not tell the languages"),
        (["news.en", "news.fr"], "there is no file news.fr"),
        (["configs/quickstart.yp"], "there is no file configs/quickstart.yp"),
        (["news.en", "news.de", "--data.swap-files"], "name the files in the other order"),
        (["some.py", "news.en"], "name one config file, or text files alone"),
        (["news.en", "news.de"], "data.validation_files must be set"),
        (["news.en", *PAIRS[2:]], "some files are in de, but the training text in en alone"),
        ([*PAIRS, "--data.batch-tokens", "0"], r"data.batch_tokens \(0\) must be at least 1"),
        ([*PAIRS, "--train.steps=-5"], r"train.steps \(-5\) must be at least 1"),
        (
            ["pairs.tsv", "--data.source=en", "--data.target=de", "--data.tsv-columns", "-5", "1"],
            "data.tsv_columns .* must be at least 1",
        ),
        (["nowhere"], "no config file nowhere"),
        (["nowhere.tsv"], "there is no file nowhere.tsv"),
    ],
)
def test_a_mistake_is_one_sentence(folder, words, message):
    with pytest.raises(UserError, match=message):
        parse_train(words)


@pytest.fixture
def begun(folder):
    """A run on PAIRS with a checkpoint, and its settings."""
    settings = parse_train(PAIRS).settings
    (folder / "runs" / "news" / "checkpoints" / "500").mkdir(parents=True)
    text = to_json(settings.with_vocabularies(100, 100, "a digest"))
    (folder / "runs" / "news" / "config.json").write_text(text)
    return settings


def test_a_run_that_has_begun_keeps_its_settings_when_its_text_grows(begun):
    grow(21)
    assert parse_train(PAIRS).settings == begun


def test_a_run_that_has_begun_on_other_text_is_not_described_as_this_one(begun):
    other = parse_train(["more.de", "more.en", "--run", "runs/news"]).settings.data
    assert (other.source, other.target) == ("de", "en")
    assert other.train_files == ("more.de", "more.en")
