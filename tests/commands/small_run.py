"""A run small enough for tests that start the real commands: 300 made-up pairs, a tiny model."""

import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent

CONFIG = """
from transformer.config import Config, DataConfig, DecodeConfig, ModelConfig
from transformer.config import OptimizerConfig, TrainConfig

config = Config(
    model=ModelConfig(encoder_layers=1, decoder_layers=1, d_model=16, num_heads=2, d_ff=32),
    data=DataConfig(
        dataset="",
        train_files=("{folder}/train.en", "{folder}/train.de"),
        validation_files=("{folder}/valid.en", "{folder}/valid.de"),
        test_files=("{folder}/valid.en", "{folder}/valid.de"),
        tokenizer="char",
        vocab_size=40,
        batch_tokens=600,
        num_buckets=2,
    ),
    optimizer=OptimizerConfig(warmup_steps=20),
    train=TrainConfig(steps=20, validate_every=5, log_every=5, keep_last=3, average_last=3),
    decode=DecodeConfig(beam_size=2, max_extra_length=10),
)
"""

WORDS = {"cat": "Katze", "dog": "Hund", "sees": "sieht", "likes": "mag", "old": "alt", "red": "rot"}


def write_data(folder: Path) -> Path:
    """Pairs and sentences with a class, and a config that names the pairs; returns its path.

    Those to validate with are short: so validation compiles few shapes.
    """
    chosen = random.Random(0)
    for name, count, longest in (("train", 300, 6), ("valid", 12, 2)):
        lines = [chosen.choices(list(WORDS), k=chosen.randint(1, longest)) for _ in range(count)]
        source = "".join(" ".join(words) + "\n" for words in lines)
        target = "".join(" ".join(WORDS[word] for word in words) + "\n" for words in lines)
        (folder / f"{name}.en").write_text(source, encoding="utf-8")
        (folder / f"{name}.de").write_text(target, encoding="utf-8")
        labelled = ((line, "cat" if "cat" in line else "none") for line in source.splitlines())
        table = "".join(f"{line}\t{label}\n" for line, label in labelled)
        (folder / f"{name}.tsv").write_text(table, encoding="utf-8")
    config = folder / "small.py"
    config.write_text(CONFIG.format(folder=folder), encoding="utf-8")
    return config


def family_words(folder: Path, kind: str) -> list[object]:
    """The words that make the small run a "language" or "masked" model, or sort into "classes"."""
    names = {"train": "train", "validation": "valid", "test": "valid"}
    ending = {"language": "de", "masked": "en", "classes": "tsv"}[kind]
    words = [
        word
        for split, name in names.items()
        for word in (f"--data.{split}-files", folder / f"{name}.{ending}")
    ]
    words += ["--data.vocab-size", 30]
    if kind == "language":
        return [*words, "--model.encoder-layers", 0, "--data.source=", "--train.best-by", "loss"]
    words += ["--model.decoder-layers", 0, "--data.target=", "--train.best-by", "accuracy"]
    return [*words, "--data.label-column", 2] if kind == "classes" else words


def regularised_words(folder: Path) -> list[object]:
    """The words that make the small run draw what it reads, average its weights and end early."""
    corpus = [folder / "train.en", folder / "train.de"]
    return [
        *("--data.train-files", *corpus, *corpus, "--data.train-weights", 1, 0.5),
        *("--data.tokenizer", "bpe", "--data.vocab-size", 40, "--data.sampling", 0.2),
        *("--data.upper-case", 0.2, "--data.typos", 0.2),
        *("--model.word-dropout", 0.1, "--train.r-drop", 2, "--train.ema-decay", 0.9),
        *("--train.steps", 1000, "--train.patience", 2, "--train.best-by", "accuracy"),
        *("--optimizer.scale", 20),
    ]


def start(command: str, *words: object, **options) -> subprocess.Popen:
    """Starts train.py, eval.py or translate.py; text pipes."""
    return subprocess.Popen(
        [sys.executable, str(ROOT / command), *map(str, words)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def wait_until(moment: Callable[[], bool], *processes: subprocess.Popen) -> bool:
    """Waits for a moment, or until one of the processes has ended; whether the moment has come."""
    while not (has_come := moment()) and all(process.poll() is None for process in processes):
        time.sleep(0.002)
    return has_come


def run(
    command: str, *words: object, stdin: str | bytes | None = None
) -> subprocess.CompletedProcess:
    """Runs a command to its end; its words are bytes where `stdin` is."""
    return subprocess.run(
        [sys.executable, str(ROOT / command), *map(str, words)],
        cwd=ROOT,
        input=stdin,
        capture_output=True,
        text=not isinstance(stdin, bytes),
    )
