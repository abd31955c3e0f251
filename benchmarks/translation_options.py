"""What the options of translate.py cost, beside plain beam search: python -m
benchmarks.translation_options RUN [--rounds 3] [--sentences 1000]

Interleaved in one process, on sentences of the test set: medians, and their ratios to the plain
search of the same round.
"""

import io
import json
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path

import tyro

from benchmarks.measure import against_the_first, table
from transformer.commands.command_line import parse_script
from transformer.commands.program import run_command
from transformer.config.settings import Positive
from transformer.data.corpus import read_pairs
from transformer.decoding.answers import scored, translated
from transformer.decoding.requests import Request, as_json, read_request
from transformer.decoding.translator import make_joint_translator
from transformer.runs.folder import load_run_config
from transformer.runs.load import load_run


@dataclass(frozen=True)
class Command:
    """Time n-best lists, prefixes, alignments, JSON, scores and ensembles."""

    run: tyro.conf.Positional[Path]
    """The run folder that train.py made."""
    rounds: Positive = 3
    """How often each is timed, after a first time that compiles."""
    sentences: Positive = 1000
    """Sentences of the test set, from its beginning."""
    beam_size: Positive = 4
    """Hypotheses kept."""


def main(words: list[str]) -> None:
    command = parse_script(Command, words, "python -m benchmarks.translation_options")
    config = load_run_config(command.run)
    config = replace(config, decode=replace(config.decode, beam_size=command.beam_size))
    run = load_run(command.run, config=config)
    member, tokenizers, label = (config.model, run.params), run.tokenizers, run.label
    one, two = (
        make_joint_translator([member] * count, config.decode, tokenizers) for count in (1, 2)
    )
    constrained = replace(one, settings=replace(config.decode, no_repeat_ngram=3, min_length=2))
    pairs = list(read_pairs(config.data, "test"))[: command.sentences]
    plain = [Request(source) for source, _ in pairs]
    prefixed = [Request(s, prefix=" ".join(target.split()[:2])) for s, target in pairs]
    given = [Request(s, translation=target) for s, target in pairs]
    lines = [json.dumps({"text": source, "id": n}) for n, (source, _) in enumerate(pairs)]

    def through_json() -> None:
        requests = [read_request(line, "json", False) for line in lines]
        with redirect_stdout(io.StringIO()):
            for request, answers in zip(requests, translated(one, requests, 1, False)):
                print(as_json(request, answers, False))

    ways: dict[str, Callable[[], object]] = {
        "plain": lambda: translated(one, plain, 1, False),
        "4 best": lambda: translated(one, plain, min(4, command.beam_size), False),
        "prefixes of two words": lambda: translated(one, prefixed, 1, False),
        "alignments": lambda: translated(one, plain, 1, True),
        "JSON": through_json,
        "no trigram twice, two tokens at least": lambda: translated(constrained, plain, 1, False),
        "ensemble of two": lambda: translated(two, plain, 1, False),
        "scores of the references": lambda: scored(one, given, False),
    }
    print(f"{command.run}, {label}, {len(pairs):,} sentences, beam {command.beam_size}")
    rows = [
        {"way": name, "seconds": f"{seconds:.2f}", "of plain beam search": f"{ratio:.2f}"}
        for name, (seconds, ratio) in against_the_first(ways, command.rounds, warmup=1).items()
    ]
    print(f"\n{table(rows)}")


if __name__ == "__main__":
    run_command(main)
