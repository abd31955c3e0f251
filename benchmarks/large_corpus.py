"""Preparing a corpus that is larger than memory, and opening it again.

    python -m benchmarks.large_corpus --pairs 1_000_000 20_000_000
    python -m benchmarks.large_corpus --pairs 100_000         tries the script

Needs nothing besides the project, and 250 bytes of disk a pair. Each sentence is made of four
phrases of one to five made-up words, drawn from 200,000 phrases. Each stage is what train.py does,
in a process of its own: the vocabulary trained; sentences made tokens on disk; then, as in each
start of a run, the tokens opened, planned, looked at, and the first batch made. `own MB` is the
most memory that a stage holds besides its imports and besides files that are mapped, whose memory
the system may take back (Linux tells, fifty times a second).
"""

import itertools
import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.measure import (
    in_own_process,
    machine,
    memory_status,
    parse_lists,
    require_memory_status,
    table,
    timed,
    versions,
)
from transformer.commands.program import run_command
from transformer.config import DataConfig
from transformer.config.settings import Positive
from transformer.data.batching import Position, batches, first_uses
from transformer.data.buckets import make_plan
from transformer.data.summary import data_summary
from transformer.data.token_store import TokenPairs, encode_pairs
from transformer.data.vocabularies import load_tokenizers, make_tokenizers, save_tokenizers

PHRASES, WORDS, AT_ONCE = 200_000, 30_000, 10_000


@dataclass(frozen=True)
class LargeCorpus:
    """Measure how preparing a corpus grows with it."""

    pairs: tuple[Positive, ...] = (1_000_000, 20_000_000)
    """Sizes."""
    vocab_size: Positive = 16_000
    """Of the vocabulary, of both sides."""
    folder: Path = Path(tempfile.gettempdir())
    """Where text and tokens go, and are removed from."""


def main(words: list[str]) -> None:
    command = parse_lists(LargeCorpus, words, "python -m benchmarks.large_corpus")
    require_memory_status()
    print(f"{machine()}\n{versions('numpy', 'sentencepiece')}", flush=True)
    rows = []
    for size in command.pairs:
        with tempfile.TemporaryDirectory(dir=command.folder) as name:
            rows += measured(Path(name), size, command.vocab_size)
    print(f"\n{table(rows)}")


def measured(folder: Path, size: int, vocab_size: int) -> list[dict[str, str]]:
    """A row for each stage."""
    data = DataConfig(
        dataset="",
        train_files=tuple(str(folder / name) for name in ("source.txt", "target.txt")),
        vocab_size=vocab_size,
    )
    write_corpus(data, size)
    os.environ["XDG_CACHE_HOME"] = str(folder)
    rows = []
    for name, stage in (("vocabulary", vocabulary), ("tokens", tokens), ("a start", start)):
        (bytes_of_its_own, printed), seconds = in_own_process(watched, stage, data, folder)
        row = {
            "pairs": f"{size:,}",
            "stage": name,
            "s": f"{seconds:,.1f}",
            "own MB": f"{bytes_of_its_own / 1e6:,.0f}",
            "of which": printed,
        }
        print(row, flush=True)
        rows.append(row)
    return rows


def watched(stage, data: DataConfig, folder: Path) -> tuple[tuple[int, str], float]:
    """Memory of a stage in bytes, what it printed, and its seconds."""
    with own_memory() as most:
        printed, seconds = timed(stage, data, folder)
    return (most[0], printed), seconds


@contextmanager
def own_memory() -> Iterator[list[int]]:
    """A list of one number, the growth of anonymous memory at its peak, in bytes."""
    before, most, over = memory_status("RssAnon"), [0], threading.Event()

    def look() -> None:
        while not over.wait(0.02):
            most[0] = max(most[0], memory_status("RssAnon") - before)

    watch = threading.Thread(target=look)
    watch.start()
    try:
        yield most
    finally:
        over.set()
        watch.join()


def write_corpus(data: DataConfig, size: int) -> None:
    """Two files of made-up sentences."""
    generator = np.random.default_rng(0)
    letters = np.array(list("abcdefghijklmnoprstuvw"))
    words = ["".join(generator.choice(letters, generator.integers(2, 10))) for _ in range(WORDS)]
    places = (WORDS * generator.random((PHRASES, 5)) ** 3).astype(int)  # some are frequent
    lengths = generator.integers(1, 6, PHRASES)
    phrases = [" ".join(words[i] for i in row[:n]) for row, n in zip(places, lengths)]
    for name in data.train_files:
        with Path(name).open("w", encoding="utf-8") as file:
            for first in range(0, size, AT_ONCE):
                chosen = generator.integers(PHRASES, size=(min(AT_ONCE, size - first), 4)).tolist()
                file.writelines(" ".join(phrases[i] for i in row) + "\n" for row in chosen)


def vocabulary(data: DataConfig, folder: Path) -> str:
    """Trained and saved."""
    save_tokenizers(make_tokenizers(data, print), folder)
    return "-"


def tokens(data: DataConfig, folder: Path) -> str:
    """Encoded and stored."""
    pairs = encode_pairs(data, load_tokenizers(folder, data), "train", print)
    return f"{len(pairs.source.ids) + len(pairs.target.ids):,} tokens"


def start(data: DataConfig, folder: Path) -> str:
    """What each start of a run does; the data summary is a new run's alone."""
    tokenizers = load_tokenizers(folder, data)
    pairs, opened = timed(encode_pairs, data, tokenizers, "train")
    plan, planned = timed(make_plan, pairs, data)
    _, ordered = timed(lambda: (plan.digest, first_uses(plan, 0, Position())))
    _, first = timed(next, batches(pairs, plan, 0, Position()))
    stream = batches(pairs, plan, 1, Position())
    next(stream)
    read, made = timed(lambda: sum(b.target_out.size for b, _ in itertools.islice(stream, 200)))
    _, summary = timed(data_summary, data, pairs, held_out(pairs))
    return (
        f"opening {opened:.1f} s, plan {planned:.1f} s, its digest and shapes "
        f"{ordered:.1f} s, first batch {first:.1f} s, "
        f"data summary {summary:.1f} s; {read / made / 1e6:.0f} M target positions a second"
    )


def held_out(pairs: TokenPairs) -> TokenPairs:
    """A thousand of the pairs."""
    return pairs.part(slice(0, 1000))


if __name__ == "__main__":
    run_command(main)
