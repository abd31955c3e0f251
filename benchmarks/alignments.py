"""How far the links of cross-attention are those of a statistical aligner, by layer: python -m
benchmarks.alignments RUN [--sentences 300]

IBM Model 1 (Brown et al., 1993, https://aclanthology.org/J93-2003) is trained on the run's training
pairs in both directions; of the test pairs those links count on which both agree. The model reads
the references, and links each word with the one that it looks at most while it predicts it.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tyro

from benchmarks.measure import table
from transformer.commands.command_line import parse_script
from transformer.commands.program import run_command
from transformer.config.settings import Positive
from transformer.data.corpus import read_pairs
from transformer.decoding.alignment import Links, word_links
from transformer.machine import devices
from transformer.runs.load import load_run
from transformer.viewing.attention import attention_maps

ROUNDS = 8
Words = list[str]


@dataclass(frozen=True)
class Command:
    """Compare the layers' alignments with those of IBM Model 1."""

    run: tyro.conf.Positional[Path]
    """The run folder of a translator."""
    sentences: Positive = 300
    """Sentences of the test set, from its beginning."""
    checkpoint: str = "best"
    """best, last, average, average-best or a step."""


class Model1:
    """Probabilities of target words given a source word, by expectation maximisation."""

    def __init__(self, pairs: list[tuple[Words, Words]]):
        self.sources, self.targets = {"": 0}, {}  # the empty word explains what has no origin
        places = [
            (self.sources.setdefault(word, len(self.sources)), written, number)
            for number, (sentence, target) in enumerate(
                (["", *source], target) for source, words in pairs for target in words
            )
            for written in [self.targets.setdefault(target, len(self.targets))]
            for word in sentence
        ]
        source, target, number = np.array(places).T
        self.width = len(self.targets)
        cells, cell = np.unique(source * self.width + target, return_inverse=True)
        chances = np.ones(len(cells))
        for _ in range(ROUNDS):
            each = chances[cell]
            share = each / np.bincount(number, each)[number]
            expected = np.bincount(cell, share)
            chances = expected / np.bincount(cells // self.width, expected)[cells // self.width]
        self.chances = dict(zip(cells.tolist(), chances.tolist()))

    def links(self, source: Words, target: Words) -> Links:
        """For each target word that is known the likeliest source word."""
        found = []
        for here, written in enumerate(target):
            if written in self.targets:
                column = self.targets[written]
                rows = [self.sources.get(word, -1) * self.width + column for word in source]
                each = [self.chances.get(cell, 0.0) for cell in rows]
                if max(each, default=0):
                    found.append((int(np.argmax(each)), here))
        return found


def without_marks(word: str) -> str:
    """A word without the punctuation behind it."""
    return re.sub(r"\W+$", "", word) or word


def words_of(sentence: str) -> Words:
    """Lower-cased, without the punctuation behind them."""
    return [without_marks(word) for word in sentence.lower().split()]


def both_ways(
    training: Iterable[tuple[str, str]],
) -> Callable[[Words, Words], set[tuple[int, int]]]:
    """From the words of two sentences to the links on which two models agree, one of each direction
    of the training pairs."""
    known = [(words_of(source), words_of(target)) for source, target in training]
    forward, backward = Model1(known), Model1([(b, a) for a, b in known])
    return lambda source, target: (
        {*forward.links(source, target)} & {(a, b) for b, a in backward.links(target, source)}
    )


def main(words: list[str]) -> None:
    command = parse_script(Command, words, "python -m benchmarks.alignments")
    devices.configure_devices("any")
    run = load_run(command.run, command.checkpoint)
    config, params, tokenizers = run.config, run.params, run.tokenizers
    links_of = both_ways(read_pairs(config.data, "train"))
    hits: dict[str, int] = {}
    total = 0
    for source, target in list(read_pairs(config.data, "test"))[: command.sentences]:
        agreed = links_of(words_of(source), words_of(target))
        total += len(agreed)
        cross = attention_maps(config.model, params, tokenizers, source, target)[-1]
        for name, weights in ways(cross.weights.mean(1)).items():
            links = word_links(weights, cross.columns[:-1], cross.rows[:-1])
            hits[name] = hits.get(name, 0) + len(agreed & {*links})
    print(f"{command.run}, {run.label}: {total:,} links in {command.sentences} sentences\n")
    print(table([{"of": name, "found": f"{n / total:.1%}"} for name, n in hits.items()]))


def ways(layers: np.ndarray) -> dict[str, np.ndarray]:
    """What could be taken: [N, T, S] -> each [T, S]."""
    one_by_one = {f"layer {number}": layer for number, layer in enumerate(layers, start=1)}
    return one_by_one | {
        "all but the first": layers[min(1, len(layers) - 1) :].mean(0),
        "all": layers.mean(0),
    }


if __name__ == "__main__":
    run_command(main)
