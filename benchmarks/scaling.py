"""How cost grows: of a training step, of decoding, and of preparing a corpus.

    python -m benchmarks.scaling
    python -m benchmarks.scaling --axes sentences corpus
    python -m benchmarks.scaling --rounds 1       tries the script

Needs nothing besides the project; the axis `corpus` generates the built-in phrasebook when it is
used for the first time. Memory is only known on Linux. Takes a few minutes.

A table an axis, along which one size grows and the others stay. `ms a unit` is the cost divided by
the size, and `a unit / first` how that changes: it falls while costs that do not grow with this
size still weigh, stays where cost is linear, and would rise if it grew faster. `ms each further
unit` is the slope from the row before: constant where the cost is linear with a fixed part.
Only length has a reason to rise: attention looks from every position at all others, and a step of
decoding at the whole cache, so that part grows with the square of the length.

The sizes of a step or a search take turns, one repetition each, and medians are compared.
Training is a whole update on full batches, as in train.py; decoding is beam search over random
weights that never end a sentence, so that every output has as many tokens as its source.
Preparing is what train.py does once its vocabulary is there: sentences become tokens on disk,
tokens a plan, and the plan an epoch of batches, in a process of its own for each size.
"""

import itertools
import os
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

from benchmarks.input_pipeline import take_epoch
from benchmarks.measure import (
    Memory,
    alternate,
    forget_peak,
    full_batch,
    in_own_process,
    machine,
    memory_cells,
    memory_status,
    parse_lists,
    table,
    timed,
    versions,
)
from benchmarks.work import endless_search, our_updates
from transformer.commands.program import run_command
from transformer.config import Config, DataConfig, ModelConfig
from transformer.config.settings import Positive
from transformer.data.buckets import make_plan
from transformer.data.corpus import read_pairs
from transformer.data.token_store import encode_pairs
from transformer.data.vocabularies import load_tokenizers, make_tokenizers, save_tokenizers
from transformer.machine import devices

Axis = Literal[
    "sentences", "length", "vocabulary", "layers", "decode-sentences", "decode-length", "corpus"
]
CORPUS = (20_000, 60_000, 200_000)
"""Sentence pairs; the phrasebook has 100,000, which are repeated when they do not suffice."""


class Work(NamedTuple):
    """The sizes of a training step or a search; one of them grows along an axis."""

    sentences: int = 16
    length: int = 32
    """Tokens of each source and each target sentence."""
    vocabulary: int = 4000
    layers: int = 2
    """In the encoder, and as many in the decoder."""


TRAINING: dict[Axis, tuple[int, ...]] = {
    "sentences": (8, 16, 32, 64),
    "length": (16, 32, 64, 128),
    "vocabulary": (2000, 4000, 8000, 16_000),
    "layers": (1, 2, 4, 8),
}
DECODING: dict[Axis, tuple[int, ...]] = {
    "decode-sentences": (8, 16, 32, 64),
    "decode-length": (16, 32, 64, 128),
}


@dataclass(frozen=True)
class Scaling:
    """Measure cost against size, one table per axis."""

    axes: tuple[Axis, ...] = (*TRAINING, *DECODING, "corpus")
    """What grows."""
    rounds: Positive = 7
    """Repetitions of each training step and search that are timed."""


def main(words: list[str]) -> None:
    command = parse_lists(Scaling, words, "python -m benchmarks.scaling")
    print(f"{machine()}\n{versions('jax')}, {devices.describe()}")
    print(f"training and decoding: d_model 256, d_ff 1024, 4 heads, beam 4, {Work()}")
    for axis in command.axes:
        if axis == "corpus":
            heading, rows = "preparing a corpus, sentence pairs", corpus_rows(CORPUS)
        elif axis in TRAINING:
            heading = f"training step, {axis}"
            rows = step_rows(training, axis, TRAINING[axis], command.rounds)
        else:
            size = axis.removeprefix("decode-")
            heading = f"decoding, {size}"
            rows = step_rows(decoding, size, DECODING[axis], command.rounds)
        print(f"\n{heading}\n\n{table(rows)}")


def step_rows(
    build: Callable[[Work], Callable[[], object]], size: str, values: Sequence[int], rounds: int
) -> list[dict[str, str]]:
    """A row for each value of one size of the work; they take turns."""
    runs = {f"{value}": build(Work()._replace(**{size: value})) for value in values}
    timings = alternate(runs, rounds)
    return growth_rows(size, values, [timing.median for timing in timings.values()])


def growth_rows(size: str, values: Sequence[int], seconds: Sequence[float]) -> list[dict[str, str]]:
    """How seconds grow with a size."""
    units = [1000 * cost / value for cost, value in zip(seconds, values)]
    slopes = [
        f"{1000 * (b - a) / (n - m):.4g}"
        for (a, m), (b, n) in itertools.pairwise(zip(seconds, values))
    ]
    return [
        {
            size: f"{value:,}",
            "ms": f"{1000 * cost:,.1f}",
            "ms a unit": f"{unit:.4g}",
            "a unit / first": f"{unit / units[0]:.2f}",
            "ms each further unit": slope,
        }
        for value, cost, unit, slope in zip(values, seconds, units, ["-", *slopes])
    ]


def model_of(work: Work) -> ModelConfig:
    """A small model of that many layers and tokens."""
    return ModelConfig(
        source_vocab_size=work.vocabulary,
        target_vocab_size=work.vocabulary,
        encoder_layers=work.layers,
        decoder_layers=work.layers,
        d_model=256,
        d_ff=1024,
        num_heads=4,
    )


def training(work: Work) -> Callable[[], object]:
    """An update on a full batch, with waiting for its end."""
    batch = full_batch(work.sentences, work.length, work.length, work.vocabulary)
    return partial(our_updates(Config(model=model_of(work)), batch), 1)


def decoding(work: Work) -> Callable[[], object]:
    """Beam search for outputs as long as the sources, waited for."""
    return endless_search(model_of(work), work.sentences, work.length)


class Preparation(NamedTuple):
    """Seconds of the stages, and the memory of the process that did them."""

    tokens: float
    plan: float
    epoch: float
    memory: Memory | None


def corpus_rows(sizes: Sequence[int]) -> list[dict[str, str]]:
    """A row for each number of sentence pairs."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = list(read_pairs(DataConfig(), "train"))
        tokenizers = make_tokenizers(DataConfig(vocab_size=1500))
        save_tokenizers(tokenizers, folder)
        found = []
        for size in sizes:
            data = write_corpus(folder, itertools.islice(itertools.cycle(text), size))
            found.append(in_own_process(prepare, folder, data))
    totals = [one.tokens + one.plan + one.epoch for one in found]
    return [
        row
        | {
            "tokens s": f"{one.tokens:.2f}",
            "plan s": f"{one.plan:.2f}",
            "epoch s": f"{one.epoch:.2f}",
            **memory_cells(one.memory),
        }
        for row, one in zip(growth_rows("pairs", sizes, totals), found)
    ]


def write_corpus(folder: Path, pairs: Iterable[tuple[str, str]]) -> DataConfig:
    """The pairs as plain files, and the settings that read them."""
    names = [folder / "source.txt", folder / "target.txt"]
    with ExitStack() as stack:
        files = [stack.enter_context(name.open("w", encoding="utf-8")) for name in names]
        for pair in pairs:
            for file, sentence in zip(files, pair):
                file.write(f"{sentence}\n")
    return DataConfig(dataset="", train_files=tuple(map(str, names)))


def prepare(folder: Path, data: DataConfig) -> Preparation:
    """What train.py does with a corpus before the first update, and an epoch of batches."""
    os.environ["XDG_CACHE_HOME"] = str(folder)  # the tokens are encoded and stored anew
    tokenizers = load_tokenizers(folder, data)
    imported = memory_status("VmRSS")
    forget_peak()
    pairs, token_seconds = timed(encode_pairs, data, tokenizers, "train")
    plan, plan_seconds = timed(make_plan, pairs, data)
    _, epoch_seconds = timed(take_epoch, pairs, plan, 0)
    memory = Memory(imported, memory_status("VmHWM")) if imported else None
    return Preparation(token_seconds, plan_seconds, epoch_seconds, memory)


if __name__ == "__main__":
    run_command(main)
