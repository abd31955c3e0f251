"""From text to batches: how fast, in how many shapes, and with how much padding.

    python -m benchmarks.input_pipeline configs/multi30k.py
    MULTI30K_DIR=... python -m benchmarks.input_pipeline configs/multi30k.py --buckets

Needs nothing besides the project, and the training data of the config. Trains the vocabulary as
train.py would, and reports the time of each stage: the corpus read, the vocabulary trained, all
sentences encoded, the batches planned, an epoch of batches made. The first four happen once (the
encoded corpus is kept on disk; here it is encoded anew), the last goes on beside training, in one
thread. Padding is counted in the batches themselves.
"""

import math
from dataclasses import dataclass
from pathlib import Path

import tyro

from benchmarks.measure import machine, summary, table, timed, versions
from transformer.commands.command_line import parse_script
from transformer.commands.program import run_command
from transformer.config.files import load_config
from transformer.config.rules import check
from transformer.config.settings import Positive
from transformer.data.batching import Position, batches
from transformer.data.buckets import BatchPlan, make_plan
from transformer.data.corpus import read_pairs
from transformer.data.token_store import TokenPairs, encoded
from transformer.data.vocabularies import make_tokenizers
from transformer.model.batch import PAD


@dataclass(frozen=True)
class InputPipeline:
    """Time the way from text to batches."""

    config_file: tyro.conf.Positional[Path]
    """A config file, such as configs/multi30k.py."""
    epochs: Positive = 5
    """Epochs of batches that are timed."""
    buckets: bool = False
    """List the batch shapes too."""


def main(words: list[str]) -> None:
    command = parse_script(InputPipeline, words, "python -m benchmarks.input_pipeline")
    config = load_config(command.config_file)
    check(config)
    text, read_seconds = timed(lambda: list(read_pairs(config.data, "train")))
    tokenizers, vocabulary_seconds = timed(make_tokenizers, config.data)
    pairs, encode_seconds = timed(encoded, config.data, tokenizers, text)
    plan, plan_seconds = timed(make_plan, pairs, config.data)
    epochs = [timed(take_epoch, pairs, plan, number)[1] for number in range(command.epochs)]
    epoch = summary(epochs)

    print(f"{machine()}\n{versions('numpy', 'sentencepiece')}\n")
    stages = {
        "corpus read": read_seconds,
        "vocabulary trained": vocabulary_seconds,
        "sentences encoded": encode_seconds,
        "batches planned": plan_seconds,
        f"an epoch of batches (median of {epoch.rounds})": epoch.median,
    }
    rows = [
        {"stage": stage, "seconds": f"{seconds:.3f}", "pairs/s": f"{len(pairs) / seconds:,.0f}"}
        for stage, seconds in stages.items()
    ]
    print(f"{command.config_file}: {len(pairs):,} pairs, {plan.left_out:,} left out\n")
    print(f"{table(rows)}\n")
    print(table([batch_facts(pairs, plan, epoch.median)]))
    if command.buckets:
        print(f"\n{bucket_table(pairs, plan)}")


def take_epoch(pairs: TokenPairs, plan: BatchPlan, epoch: int) -> None:
    """Makes every batch of an epoch."""
    stream = batches(pairs, plan, 0, Position(epoch))
    for _ in range(plan.batches_per_epoch):
        next(stream)


def batch_facts(pairs: TokenPairs, plan: BatchPlan, seconds: float) -> dict[str, str]:
    """Counts over the batches of one epoch, which takes `seconds`."""
    stream = batches(pairs, plan, 0, Position())
    shapes, positions, real, targets = set(), 0, 0, 0
    for _ in range(plan.batches_per_epoch):
        batch, _ = next(stream)
        shapes.add((batch.source.shape, batch.target_out.shape))
        positions += batch.source.size + batch.target_out.size
        targets += int((batch.target_out != PAD).sum())
        real += int((batch.source != PAD).sum()) + int((batch.target_out != PAD).sum())
    return {
        "shapes": f"{len(shapes)}",
        "padding": f"{1 - real / positions:.1%}",
        "batches an epoch": f"{plan.batches_per_epoch:,}",
        "target tokens a batch": f"{targets / plan.batches_per_epoch:,.0f}",
        "batches/s": f"{plan.batches_per_epoch / seconds:,.0f}",
        "target tokens/s": f"{targets / seconds:,.0f}",
    }


def bucket_table(pairs: TokenPairs, plan: BatchPlan) -> str:
    """The batch shapes: rows, lengths, pairs, and the padding in each."""
    rows = []
    for bucket, members in sorted(zip(plan.buckets, plan.members), key=lambda pair: pair[0][1:]):
        count = math.ceil(len(members) / bucket.rows)
        lengths = pairs.source.lengths[members] + pairs.target.lengths[members]
        width = bucket.source_length + bucket.target_length
        padding = 1 - lengths.sum() / (count * bucket.rows * width)
        rows.append(
            {
                "rows": f"{bucket.rows}",
                "source": f"{bucket.source_length}",
                "target": f"{bucket.target_length}",
                "pairs": f"{len(members):,}",
                "batches": f"{count:,}",
                "padding": f"{padding:.1%}",
            }
        )
    return table(rows)


if __name__ == "__main__":
    run_command(main)
