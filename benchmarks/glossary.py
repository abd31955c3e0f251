"""Terms that translations must have: python -m benchmarks.glossary RUN [--sentences 1000]

The glossary of each test sentence has one or two of its words, each with the word of the reference
that IBM Model 1 (`benchmarks.alignments`) links with it in both directions, so the terms are right.
Compared are a plain search, one that must have the terms, and one that gets a bonus for them: the
terms that the translations have, BLEU, and the median of the seconds of five interleaved runs, when
everything is compiled.
"""

import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import sacrebleu
import tyro

from benchmarks.alignments import both_ways, without_marks, words_of
from benchmarks.measure import machine, table
from transformer.commands.command_line import parse_script
from transformer.commands.program import run_command
from transformer.config.settings import Positive
from transformer.data.corpus import read_pairs
from transformer.decoding.glossary import Entry, Glossary, make_glossary
from transformer.decoding.terms import Term
from transformer.decoding.translator import Translator, make_translator, translate
from transformer.errors import UserError
from transformer.machine import devices
from transformer.runs.load import load_run

ROUNDS = 5


@dataclass(frozen=True)
class Command:
    """Compare searches with and without a glossary."""

    run: tyro.conf.Positional[Path]
    """The run folder of a translator."""
    sentences: Positive = 1_000
    """Sentences of the test set, from its beginning."""
    checkpoint: str = "best"
    """best, last, average, average-best or a step."""


@dataclass(frozen=True)
class SentenceGlossaries(Glossary):
    """A glossary for each sentence."""

    by_text: dict[str, list[Term]]

    def terms(self, text: str) -> list[Term]:
        return self.by_text.get(text, [])


def main(words: list[str]) -> None:
    command = parse_script(Command, words, "python -m benchmarks.glossary")
    devices.configure_devices("any")
    run = load_run(command.run, command.checkpoint)
    data = run.config.data
    plain = make_translator(run.config, run.params, run.tokenizers)
    pairs = [*islice(read_pairs(data, "test"), command.sentences)]
    wanted = words_wanted([*read_pairs(data, "train")], pairs)
    with_terms = replace(plain, glossary=glossary_of(plain, pairs, wanted))
    bonus = replace(with_terms, settings=replace(plain.settings, term_bonus=2.0))
    ways = {"plain": plain, "must have the terms": with_terms, "bonus of 2": bonus}
    sources, rows = [source for source, _ in pairs], []
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    translations = {name: translate(translator, sources) for name, translator in ways.items()}
    for _ in range(ROUNDS):
        for name, translator in ways.items():
            start = time.perf_counter()
            translate(translator, sources)
            seconds[name].append(time.perf_counter() - start)
    for name, found in translations.items():
        have = sum(term in words_of(text) for own, text in zip(wanted, found) for _, term in own)
        bleu = sacrebleu.corpus_bleu(found, [[target for _, target in pairs]]).score
        share = f"{have:,} of {sum(map(len, wanted)):,}"
        rows.append(
            {
                "search": name,
                "terms": share,
                "BLEU": f"{bleu:.1f}",
                "seconds": f"{statistics.median(seconds[name]):.1f}",
            }
        )
    print(f"{command.run}, {run.label}, {machine()}\n")
    print(table(rows))


def words_wanted(
    training: Sequence[tuple[str, str]], pairs: Sequence[tuple[str, str]]
) -> list[list[tuple[str, str]]]:
    """For each pair one or two links between words of its sentences."""
    links_of, draw, found = both_ways(training), random.Random(0), []
    for pair in pairs:
        source, target = map(words_of, pair)
        links = sorted(links_of(source, target))
        chosen = draw.sample(links, min(len(links), draw.choice([1, 2])))
        found.append([(source[a], target[b]) for a, b in chosen])
    return found


def glossary_of(
    translator: Translator,
    pairs: Sequence[tuple[str, str]],
    wanted: Sequence[Sequence[tuple[str, str]]],
) -> Glossary:
    """The glossaries of all sentences; words as the references write them."""
    by_text: dict[str, list[Term]] = {}
    for (source, target), own in zip(pairs, wanted):
        written = {word.lower(): word for word in map(without_marks, target.split())}
        entries = [Entry((word,), (written.get(term, term),)) for word, term in own]
        for entry in entries:
            try:
                glossary = make_glossary([entry], translator.tokenizers.target, "")
            except UserError:  # the vocabulary lacks a character
                continue
            by_text.setdefault(source, []).append(glossary.tokens[0])
    some = make_glossary([Entry(("a",), ("a",))], translator.tokenizers.target, "")
    return SentenceGlossaries((), (), some.continues, by_text)


if __name__ == "__main__":
    run_command(main)
