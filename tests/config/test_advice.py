"""Settings by the amount of text: allowed for every amount, and larger for more."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transformer.config import Config, DataConfig
from transformer.config.advice import (
    CLASSIFIER,
    LANGUAGE_MODEL,
    TRANSLATOR,
    CorpusSize,
    advice,
    advised,
    settings_of,
    task_of,
)
from transformer.config.rules import check, doubts
from transformer.config.settings import by_name

FILES = {"dataset": "", "train_files": ("t.tsv",), "validation_files": ("v.tsv",)}
DATA = {
    "translator": (TRANSLATOR, DataConfig(**FILES)),
    "language model": (LANGUAGE_MODEL, DataConfig(**FILES, source="", target="en", windows=True)),
    "masked model": (LANGUAGE_MODEL, DataConfig(**FILES, source="en", target="")),
    "classifier": (CLASSIFIER, DataConfig(**FILES, source="en", target="", label_column=2)),
}
SIZES = st.builds(CorpusSize, st.integers(1, 10**9), st.integers(1, 10**12), st.booleans())


@pytest.mark.parametrize("task, data", DATA.values(), ids=DATA)
@given(size=SIZES)
def test_settings_for_any_amount_of_text_are_allowed_and_would_not_waste_the_run(task, data, size):
    assert task_of(data) is task
    config = advised(Config(data=data), size)
    check(config)
    assert list(doubts(config)) == []


@pytest.mark.parametrize("task", [TRANSLATOR, LANGUAGE_MODEL, CLASSIFIER], ids=lambda t: t.model)
def test_more_text_gets_a_larger_model_and_less_dropout(task):
    for smaller, larger in zip(task.rows, task.rows[1:]):
        assert smaller.max_megabytes < larger.max_megabytes
        assert smaller.epochs > larger.epochs
        assert smaller.dropout >= larger.dropout
        for name in ("layers", "d_model", "d_ff", "vocab_size", "batch_tokens"):
            assert getattr(smaller, name) <= getattr(larger, name)
    assert task.rows[-1].max_megabytes == float("inf")


def test_training_has_the_epochs_of_the_row_whatever_the_length_of_the_texts():
    """4.5 bytes per token and one EOS per text, in batches that are filled to 85 %."""
    _, data = DATA["translator"]
    row = TRANSLATOR.rows[1]
    for texts in (20_000, 40_000):
        steps = advised(Config(data=data), CorpusSize(texts, 2_700_000)).train.steps
        tokens = 2_700_000 / 4.5 + texts
        assert steps * row.batch_tokens * 0.85 == pytest.approx(row.epochs * tokens, rel=0.02)


@pytest.mark.parametrize("steps", [1, 10, 100, 100_000])
def test_the_schedule_follows_the_updates_that_are_named(steps):
    data, size = DATA["translator"][1], CorpusSize(30_000, 2_500_000)
    named = {"train.steps": steps, "data.batch_tokens": 1000}
    config = advised(Config(data=data), size, named)
    check(config)
    assert config.train.steps == steps
    assert config.optimizer.cooldown_steps == steps // 2
    assert config.optimizer.warmup_steps + config.optimizer.cooldown_steps <= max(steps, 1)


def test_smaller_batches_are_more_updates():
    data, size = DATA["translator"][1], CorpusSize(30_000, 2_500_000)
    rows = TRANSLATOR.rows
    usual, half = (
        advised(Config(data=data), size, {"data.batch_tokens": n}).train.steps
        for n in (rows[1].batch_tokens, rows[1].batch_tokens // 2)
    )
    assert half == pytest.approx(2 * usual, abs=100)


@pytest.mark.parametrize("task, data", DATA.values(), ids=DATA)
def test_what_is_printed_is_what_is_trained_with(task, data):
    size = CorpusSize(30_000, 2_500_000, one_script=False)
    settings = by_name(advised(Config(data=data), size))
    head, *lines = advice(data, size)
    assert "30,000 texts, 2.5 MB" in head
    assert task.model in head
    words = [line.split() for line in lines if "." in line.split()[0]]
    assert [name for name, *_ in words] == [*settings_of(task.row(size), data, size)]
    for name, value, *_ in words:
        assert value.replace(",", "") == str(settings[name])
    index = task.rows.index(task.row(size))
    for amount, row in zip(("this amount", "more text"), task.rows[index:]):
        assert f"  evidence for {amount}: {row.evidence}" in lines


def test_a_range_spans_the_rows_for_less_and_for_more_text():
    lines = [*advice(DATA["translator"][1], CorpusSize(30_000, 2_500_000))]
    [width] = [line.split() for line in lines if "model.d_model" in line]
    assert width == ["model.d_model", "128", "(128", "to", "256)"]
    [norm] = [line.split() for line in lines if "model.norm" in line]
    assert norm == ["model.norm", "pre"]


def test_the_tokens_of_a_classifier_are_words_where_spaces_separate_them():
    for name, (_, data) in DATA.items():
        for has_words in (True, False):
            config = advised(Config(data=data), CorpusSize(5000, 300_000, has_words=has_words))
            words = name == "classifier" and has_words
            assert config.data.tokenizer == ("word" if words else "unigram")
            assert config.optimizer.name == ("adam" if name == "classifier" else "muon")
            assert (config.model.positions == "rotary") == (name != "classifier")
