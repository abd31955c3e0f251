"""Settings that suit a corpus, by its task and its amount of text, with the evidence for them.

`python train.py FILES` trains with them, and `--doctor` prints them. The optimiser is Muon, which
needs two thirds of Adam's updates on the phrasebook, and Adam for classifiers, whose tokens are
whole words. All others have rotary positions: on the phrasebook, 660 updates with them are better
than 960 with sinusoids, and a masked model of windows learns little with sinusoids
(docs/experiments.md). Translators have weight decay, which gains 0.8 BLEU on Multi30k and 1.8 on
Tanaka. The less text, the smaller the model and its vocabulary, and the stronger its dropout: on
5,000 to 165,000 pairs, tuned models are up to 7.3 BLEU better than the paper's base model (Araabi
and Monz, 2020, https://arxiv.org/abs/2011.02266), and the best vocabularies have 1,000 tokens for
30,000 pairs and 32,000 or more for millions (Gowda and May, 2020,
https://arxiv.org/abs/2004.02334).
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from transformer.config.settings import Config, DataConfig

BYTES_PER_TOKEN = 4.5
"""Bytes (UTF-8) per token, roughly: 5 in English and German, 4 in Chinese. Cyrillic letters have
two bytes and Devanagari three, so the side of a pair with fewer bytes counts."""

FILLED = 0.85
"""The fraction of the positions of a batch that hold tokens, roughly; the others are padding."""

UPDATES_PER_SHAPE = 200
"""Updates for each batch shape, at least: to compile a shape takes as long as about 60 updates of
the quickstart."""

NONE: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class CorpusSize:
    """How much training text there is.

    texts       pairs, or texts of one side
    utf8_bytes  bytes of the side that has fewer
    one_script  whether both sides are mostly in the same script
    has_words   whether spaces separate words, as they do not in Chinese or Thai
    """

    texts: int
    utf8_bytes: int
    one_script: bool = True
    has_words: bool = True


@dataclass(frozen=True)
class Row:
    """Settings for corpora of up to `max_megabytes`; `layers` are those of each stack, and `epochs`
    are passes over the corpus. `evidence` says what they were taken from, or that they were not
    measured."""

    max_megabytes: float
    layers: int
    d_model: int
    num_heads: int
    d_ff: int
    dropout: float
    vocab_size: int
    batch_tokens: int
    epochs: int
    evidence: str


@dataclass(frozen=True)
class Task:
    """A kind of model: its rows, from the smallest corpora to the largest, and what it needs at
    every size."""

    model: str
    rows: tuple[Row, ...]
    settings: Mapping[str, Any]

    def row(self, size: CorpusSize) -> Row:
        """The one for this amount of text."""
        return next(row for row in self.rows if size.utf8_bytes <= row.max_megabytes * 1e6)


# MB, layers, d_model, heads, d_ff, dropout, vocabulary, tokens per batch, epochs, evidence
TRANSLATOR = Task(
    "a translator",
    (
        Row(1, 4, 128, 4, 256, 0.3, 4000, 2048, 49, "Tanaka, 14.8 BLEU: docs/experiments.md"),
        Row(3, 4, 128, 4, 256, 0.3, 8000, 4096, 33, "Multi30k, 41.4 BLEU: docs/experiments.md"),
        Row(20, 4, 256, 4, 512, 0.3, 8000, 4096, 16, "Coursera, 17.3 BLEU: docs/benchmarks.md"),
        Row(200, 6, 256, 4, 1024, 0.2, 16_000, 8192, 10, "not measured yet"),
        Row(math.inf, 6, 512, 8, 2048, 0.1, 32_000, 25_000, 4, "base model, not measured yet"),
    ),
    {
        "model.positions": "rotary",
        "optimizer.weight_decay": 0.3,
        "decode.beam_size": 5,
        "decode.alpha": 1.0,
        "decode.normalisation": "length",
    },
)
LANGUAGE_MODEL = Task(
    "a language model",
    (
        Row(3, 4, 128, 4, 512, 0.1, 1000, 2048, 15, "Shakespeare, 1.45 nats: docs/benchmarks.md"),
        Row(50, 6, 256, 4, 1024, 0.1, 8000, 8192, 10, "not measured yet"),
        Row(math.inf, 12, 768, 12, 3072, 0.1, 32_000, 32_768, 2, "GPT-2, not measured yet"),
    ),
    {"model.positions": "rotary", "train.label_smoothing": 0.0},
)
CLASSIFIER = Task(
    "a classifier",
    (
        Row(3, 1, 512, 8, 512, 0.3, 20_000, 2048, 10, "TREC, 88.4 %: docs/experiments.md"),
        Row(math.inf, 4, 512, 8, 1024, 0.1, 20_000, 4096, 5, "not measured yet"),
    ),
    {"train.best_by": "accuracy", "optimizer.name": "adam", "optimizer.scale": 0.3},
)


def task_of(data: DataConfig) -> Task:
    """By the sides of the data; a masked model has the settings of a language model."""
    if data.label_column:
        return CLASSIFIER
    return TRANSLATOR if len(data.sides) == 2 else LANGUAGE_MODEL


def advised(config: Config, size: CorpusSize, named: Mapping[str, Any] = NONE) -> Config:
    """`config` with the settings that suit its data; the schedule follows from those settings that
    are `named` (by section.name), which the caller applies."""
    row = task_of(config.data).row(size)
    return config.with_settings(settings_of(row, config.data, size, named))


def advice(data: DataConfig, size: CorpusSize) -> Iterator[str]:
    """The settings as text, with their range over the rows for less and for more text, and the
    evidence for each row."""
    task = task_of(data)
    index = task.rows.index(task.row(size))
    near = range(max(index - 1, 0), min(index + 2, len(task.rows)))
    nearby = [settings_of(task.rows[n], data, size) for n in near]
    yield (
        f"settings that suit {task.model} with {size.texts:,} texts, {size.utf8_bytes / 1e6:.1f} "
        "MB; in parentheses their range over the rows for less and for more text:"
    )
    for name, value in settings_of(task.rows[index], data, size).items():
        others = [settings[name] for settings in nearby]
        span = f"({_shown(min(others))} to {_shown(max(others))})" if len({*others}) > 1 else ""
        yield f"  {name:24} {_shown(value):>8} {span}".rstrip()
    amounts = {index - 1: "less text", index: "this amount", index + 1: "more text"}
    for n in near:
        yield f"  evidence for {amounts[n]}: {task.rows[n].evidence}"


def settings_of(
    row: Row, data: DataConfig, size: CorpusSize, named: Mapping[str, Any] = NONE
) -> dict[str, Any]:
    """The settings of a row of the data's task, by section.name."""
    batch_tokens = named.get("data.batch_tokens", row.batch_tokens)
    tokens = size.utf8_bytes / BYTES_PER_TOKEN + size.texts  # each text ends with EOS
    updates = row.epochs * tokens / (FILLED * batch_tokens)
    steps = named.get("train.steps", max(500, 100 * round(updates / 100)))
    shared = len(data.sides) == 1 or size.one_script
    of_adam = {"optimizer.weight_decay": 0.0} if named.get("optimizer.name") == "adam" else {}
    return {
        "model.encoder_layers": row.layers * bool(data.source),
        "model.decoder_layers": row.layers * bool(data.target),
        "model.d_model": row.d_model,
        "model.num_heads": row.num_heads,
        "model.d_ff": row.d_ff,
        "model.dropout": row.dropout,
        "model.norm": "pre",
        "model.tying": "all" if shared else "target",
        "data.tokenizer": "word" if data.label_column and size.has_words else "unigram",
        "data.vocab_size": row.vocab_size,
        "data.shared_vocabulary": shared,
        "data.batch_tokens": batch_tokens,
        "data.num_buckets": max(4, min(DataConfig.num_buckets, steps // UPDATES_PER_SHAPE)),
        "optimizer.name": "muon",
        "optimizer.scale": 1.8,
        "optimizer.warmup_steps": max(1, min(steps // 2, max(200, steps // 8))),
        "optimizer.cooldown_steps": steps // 2,
        "train.steps": steps,
        "train.validate_every": min(2000, math.ceil(steps / 8)),
        **task_of(data).settings,
        **of_adam,
    }


def _shown(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
