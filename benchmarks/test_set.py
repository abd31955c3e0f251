"""A test set translated by ours and by CTranslate2, the same weights on both sides, on the CPU.

    python -m benchmarks.test_set runs/multi30k
    python -m benchmarks.test_set runs/multi30k --sentences 50 --rounds 1      tries the script

Needs pip install -e '.[bench]', and the run's test set.

Text goes in and text comes out on both sides, by the same SentencePiece models. Both search with
the same beam and no length penalty, every sentence to its end. The longest output is ours' rule:
a sentence's tokens and `decode.max_extra_length`. CTranslate2 knows only one limit a call, and gets
that of the longest sentence; how many outputs met their limit stands in the table.

The stop rule is the same too. Without a length penalty CTranslate2 is done with a sentence when the
best candidate of a step ends, and returns the best that ended until then. No open hypothesis can
win any more, as in ours with `decode.stop` "bound", which may notice some steps earlier; the result
is one. ("full" is CTranslate2's rule with a length penalty.)

Ours runs with the run's `decode.batch_sentences`. CTranslate2 sorts by length itself, and gets the
best of several settings: batches of 16 to 128 sentences or of 1,024 tokens, one worker on all cores
or a worker on each. They are tried twice on the whole test set before the rounds. Each contestant
has a process of its own.

Every sentence that ours and CTranslate2 in float32 translate differently is printed, with the
log-probability that our model gives to both translations, read in one go (teacher forcing).
"""

import itertools
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import tyro

from benchmarks.measure import Outcome, contest, cores, machine, quickest, require, table, versions
from transformer.commands.command_line import parse_script
from transformer.commands.program import run_command
from transformer.config import Config, ModelConfig
from transformer.config.settings import BeamSize, Positive
from transformer.data.corpus import read_pairs
from transformer.data.vocabularies import Tokenizers, load_tokenizers
from transformer.decoding import batches
from transformer.decoding import translator as ours
from transformer.decoding.scoring import log_probabilities
from transformer.decoding.shortlist import load_lexicon
from transformer.errors import UserError
from transformer.evaluation.scores import bleu
from transformer.interchange.ctranslate2 import (
    Search,
    Translator,
    model_spec,
    open_translator,
    save_model,
    search,
    token_names,
)
from transformer.model.batch import EOS
from transformer.model.params import Params
from transformer.runs.folder import load_run_config
from transformer.runs.load import load_run

BATCHES = (
    ("examples", 16),
    ("examples", 32),
    ("examples", 64),
    ("examples", 128),
    ("tokens", 1024),
)
"""What CTranslate2 may count in a batch, and how many of them at most."""


@dataclass(frozen=True)
class TestSet:
    """Translate the test set of a run with ours and with CTranslate2 in turn."""

    run: tyro.conf.Positional[Path]
    """The run folder that train.py made."""
    checkpoint: str = "best"
    """best (by validation BLEU), last, average (of the last few) or a step."""
    sentences: Positive = 1000
    """Sentences to translate, the first of the test set."""
    rounds: Positive = 5
    """Times that each contestant translates them, timed."""
    beam_size: BeamSize = 4
    """Hypotheses kept; 1: greedy."""


class Translations(NamedTuple):
    """The translation of each sentence: its text, and its token ids without EOS."""

    texts: list[str]
    ids: list[list[int]]
    cut: int
    """How many reached the longest output without an end."""


class Work(NamedTuple):
    """What is translated, and by which search; contestants read the run folder themselves."""

    run: Path
    checkpoint: str
    config: Config
    sources: list[str]


def main(words: list[str]) -> None:
    command = parse_script(TestSet, words, "python -m benchmarks.test_set")
    require("ctranslate2")
    config = same_search(load_run_config(command.run), command.beam_size)
    sources, references = read_test_set(config, command.sentences)
    run = load_run(command.run, command.checkpoint, config)
    params, tokenizers = run.params, run.tokenizers
    print(f"{machine()}\n{versions('jax', 'ctranslate2')}")
    print(f"{command.run}, {run.label}; {len(sources):,} sentences, beam {command.beam_size}\n")

    work = Work(command.run, command.checkpoint, config, sources)
    with tempfile.TemporaryDirectory() as folder:
        limit = longest_output(config, sources, tokenizers)
        names = tuple(map(token_names, tokenizers))
        save_model(model_spec(config.model, params, names, limit + 1), Path(folder))
        outcomes = contest(
            {
                "ours float32": (build_ours, work, "float32"),
                "ours bfloat16": (build_ours, work, "bfloat16"),
                "CTranslate2 float32": (build_theirs, work, Path(folder), "float32", limit),
                "CTranslate2 int8": (build_theirs, work, Path(folder), "int8", limit),
            },
            command.rounds,
            warmup=1,
        )
    print(f"\n{table(result_rows(outcomes, references, config.data.target))}")
    ours = outcomes["ours float32"]
    print(
        f"\n{command.rounds} rounds, contestants in turn, each in a process of its own; the first "
        f"call of ours, which compiles, took {ours.first - ours.timing.median:.1f} s more\n"
    )
    outputs = {name: outcome.result for name, outcome in outcomes.items()}
    print_differences(config.model, params, tokenizers.source.encode(sources), outputs)


def same_search(config: Config, beam_size: int) -> Config:
    """The run's config with the search that CTranslate2 has too."""
    return replace(
        config,
        model=replace(config.model, dtype="float32"),
        decode=replace(config.decode, beam_size=beam_size, alpha=0.0, stop="bound"),
    )


def read_test_set(config: Config, count: int) -> tuple[list[str], list[str]]:
    """The first `count` sources that are not blank, and their references."""
    pairs = (pair for pair in read_pairs(config.data, "test") if pair[0].strip())
    chosen = list(itertools.islice(pairs, count))
    if not chosen:
        raise UserError("there is nothing to translate: the test set is empty")
    sources, references = zip(*chosen)
    return list(sources), list(references)


def longest_output(config: Config, sources: list[str], tokenizers: Tokenizers) -> int:
    """The most tokens, EOS included, that ours gives to any of the sentences."""
    longest = max(map(len, tokenizers.source.encode(sources)))
    return batches.longest_output([config.model], config.decode, longest)


def build_ours(work: Work, dtype: Literal["float32", "bfloat16"]) -> Callable[[], Translations]:
    config = replace(work.config, decode=replace(work.config.decode, dtype=dtype))
    run = load_run(work.run, work.checkpoint, config)
    translator = ours.make_translator(config, run.params, run.tokenizers)
    translator = replace(translator, lexicon=load_lexicon(work.run, config))
    return partial(our_translations, translator, work.sources)


def our_translations(translator: ours.Translator, sources: list[str]) -> Translations:
    best = ours.best_hypotheses(translator, sources)
    ids = [list(itertools.takewhile(lambda id: id != EOS, found.tokens)) for found in best]
    return Translations([found.text for found in best], ids, sum(EOS not in f.tokens for f in best))


def build_theirs(
    work: Work, folder: Path, compute_type: str, limit: int, use_vmap: bool = False
) -> Callable[[], Translations]:
    """CTranslate2 at its best setting, which is printed."""
    tokenizers = load_tokenizers(work.run / "tokenizer", work.config.data)
    settings = {}
    for workers, threads in sorted({(1, cores()), (cores(), 1)}):
        translator = open_translator(folder, compute_type, threads, workers)
        decoder = their_decoder(translator, tokenizers)
        plain = Search(work.config.decode.beam_size, limit, use_vmap=use_vmap)
        decoder(work.sources[: 4 * workers], plain)  # the first call is slower
        for batch_type, size in BATCHES:
            setting = f"{workers} x {threads} threads, batches of {size} {batch_type}"
            batched = replace(plain, batch_type=batch_type, batch_size=size)
            settings[setting] = partial(decoder, work.sources, batched)
    best = quickest(settings)
    print(f"CTranslate2 {compute_type}, best of {len(settings)} settings: {best}", flush=True)
    return settings[best]


def their_decoder(
    translator: Translator, tokenizers: Tokenizers
) -> Callable[[list[str], Search], Translations]:
    """A translator of sentences."""
    source_names, target_names = map(token_names, tokenizers)
    numbers = {name: number for number, name in enumerate(target_names)}

    def translate_texts(sources: list[str], settings: Search) -> Translations:
        rows = tokenizers.source.encode(sources)
        pieces = [[source_names[token] for token in row] for row in rows]
        found = search(translator, pieces, settings)
        ids = [[numbers[name] for name in row] for row in found]
        cut = sum(len(row) >= settings.limit for row in ids)
        return Translations(tokenizers.target.decode(ids), ids, cut)

    return translate_texts


def result_rows(
    outcomes: dict[str, Outcome], references: list[str], language: str
) -> list[dict[str, str]]:
    """A row for each contestant; ours is the first."""
    ours = next(iter(outcomes))
    rows = []
    for name, (timing, _, (texts, ids, cut), _) in outcomes.items():
        same = np.mean([a == b for a, b in zip(ids, outcomes[ours].result.ids)])
        rows.append(
            {
                "contestant": name,
                "median s": f"{timing.median:.2f}",
                "quartiles": f"{timing.lower_quartile:.2f} - {timing.upper_quartile:.2f}",
                "sentences/s": f"{len(ids) / timing.median:.1f}",
                "target tokens/s": f"{sum(len(row) + 1 for row in ids) / timing.median:,.0f}",
                "time / ours": f"{timing.median / outcomes[ours].timing.median:.2f}",
                "same tokens": "-" if name == ours else f"{same:.1%}",
                "cut": str(cut),
                "BLEU": f"{bleu(texts, references, language):.2f}",
            }
        )
    return rows


def print_differences(
    model: ModelConfig,
    params: Params,
    sources: list[list[int]],
    outputs: dict[str, Translations],
) -> None:
    """Each sentence that the two in float32 translate differently, and which is better."""
    our_name, their_name = "ours float32", "CTranslate2 float32"
    ours, theirs = outputs[our_name], outputs[their_name]
    different = [i for i, (a, b) in enumerate(zip(ours.ids, theirs.ids)) if a != b]
    print(f"{len(different)} sentences of {our_name} and {their_name} differ")
    for i in different:
        scores = [
            log_probabilities(
                model, params, *(np.array([[*ids, EOS]]) for ids in (sources[i], output.ids[i]))
            )[0]
            for output in (ours, theirs)
        ]
        better = our_name if scores[0] > scores[1] else their_name
        print(f"\n{i + 1}: better by {abs(scores[0] - scores[1]):.1e} nats: {better}")
        for score, output in zip(scores, (ours, theirs)):
            print(f"  {score:.6f}  {output.texts[i]}")


if __name__ == "__main__":
    run_command(main)
