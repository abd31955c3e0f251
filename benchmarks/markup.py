"""Markup in translations: python -m benchmarks.markup runs/quickstart [--sentences 10000]

Sentences of the training split get <b> around one word, other elements around random runs of
words, also nested, void elements between words, and in a third of them a placeholder. Counted are
the sentences in which each tag and placeholder stands once and all elements are nested; and the
words in <b> whose translation is in it too, by the links on which IBM Model 1
(`benchmarks.alignments`) agrees in both directions. The seconds are those of the sentences without
markup, and of the documents, when everything is compiled.
"""

import random
import re
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

import tyro

from benchmarks.alignments import both_ways, words_of
from benchmarks.measure import machine
from transformer.commands.command_line import parse_script
from transformer.commands.program import run_command
from transformer.config.settings import Positive
from transformer.data.corpus import read_pairs
from transformer.decoding.translator import make_translator, translate
from transformer.documents.alignment import aligned_translations
from transformer.documents.html import VOID, read_html
from transformer.documents.translation import Handling, translated
from transformer.machine import devices
from transformer.runs.load import load_run

TAG = re.compile(r"<(/?)(\w+)[^>]*>")


@dataclass(frozen=True)
class Command:
    """Count markup that survives translation."""

    run: tyro.conf.Positional[Path]
    """The run folder of a translator."""
    sentences: Positive = 10_000
    """Sentences of the training set, from its beginning."""
    checkpoint: str = "best"
    """best, last, average, average-best or a step."""


def main(words: list[str]) -> None:
    command = parse_script(Command, words, "python -m benchmarks.markup")
    devices.configure_devices("any")
    run = load_run(command.run, command.checkpoint)
    translator = make_translator(run.config, run.params, run.tokenizers)
    pairs = [*read_pairs(run.config.data, "train")]
    sentences = [source for source, _ in islice(pairs, command.sentences)]
    marked, chosen = zip(*map(with_markup, map(random.Random, range(len(sentences))), sentences))
    translate_marked = partial(aligned_translations, translator)
    page, handling = read_html("<p>".join(marked)), Handling(run.config.data.source)
    for _ in range(2):  # the first time, programs are compiled
        start = time.perf_counter()
        translate(translator, sentences)
        middle = time.perf_counter()
        found = translated(page, translate_marked, handling).split("<p>")
        end = time.perf_counter()
    whole = [is_whole(*pair) for pair in zip(marked, found)]
    right, linked = words_inside(pairs, sentences, chosen, found)
    print(f"{command.run}, {run.label}, {machine()}")
    print(f"markup whole and nested in {sum(whole):,} of {len(whole):,} sentences")
    print(f"translations of words in <b> that are in it: {right:,} of {linked:,} linked words")
    print(f"plain {middle - start:.1f} s, with markup {end - middle:.1f} s")


def with_markup(draw: random.Random, sentence: str) -> tuple[str, int]:
    """The sentence with markup, and the number of its word in <b>."""
    words = sentence.split()
    number = draw.randrange(len(words))
    marked = [f"<b>{word}</b>" if place == number else word for place, word in enumerate(words)]
    if draw.random() < 0.3:
        place = draw.randrange(len(marked) + 1)
        marked.insert(place, draw.choice(["{name}", "%s", "https://example.org/a?b=1"]))
    for name in draw.sample(["i", "u", "a", "span"], draw.randrange(3)):
        first = draw.randrange(len(marked))
        last = draw.randrange(first, len(marked)) + 1
        marked[first:last] = [f"<{name} id='x'>{' '.join(marked[first:last])}</{name}>"]
    for name in draw.choices(["br", "img"], k=draw.randrange(3)):
        marked.insert(draw.randrange(len(marked) + 1), f"<{name} class='y'>")
    return " ".join(marked), number


def is_whole(source: str, target: str) -> bool:
    """Whether the target has the markup of the source, each once, and it is nested."""
    kept = re.compile(r"<[^>]*>|\{name\}|%s|https://example\.org/a\?b=1")
    return is_nested(target) and Counter(kept.findall(source)) == Counter(kept.findall(target))


def is_nested(text: str) -> bool:
    """Whether each tag has its partner, and no element crosses another."""
    opened: list[str] = []
    for closes, name in TAG.findall(text):
        if name in VOID:
            continue
        if not closes:
            opened.append(name)
        elif not opened or opened.pop() != name:
            return False
    return not opened


def words_inside(
    pairs: Sequence[tuple[str, str]],
    sentences: Sequence[str],
    chosen: Sequence[int],
    found: Sequence[str],
) -> tuple[int, int]:
    """Of the words in <b> whose translation the aligner finds, how many have it in <b>; and how
    many they are."""
    links_of = both_ways(pairs)
    right = linked = 0
    for sentence, number, target in zip(sentences, chosen, found):
        is_inside, words = [], []
        pieces = re.split(r"(</?b>)", target)
        for place, piece in enumerate(pieces):
            own = TAG.sub(" ", piece).split() if place % 2 == 0 else []
            words += own
            is_inside += [pieces[place - 1] == "<b>" and place > 0] * len(own)
        agreed = links_of(words_of(sentence), words_of(" ".join(words)))
        targets = [b for a, b in agreed if a == number]
        linked += len(targets)
        right += sum(is_inside[b] for b in targets)
    return right, linked


if __name__ == "__main__":
    run_command(main)
