"""How often a masked model of the phrasebook's German finds the form that agreement asks for.

    python -m benchmarks.agreement runs/mlm_quickstart

Gender, case and number decide the forms of articles ("der", "dem", "keine") and the endings of
adjectives ("alter", "alten"). Each such word of the test split is blanked out, and the model
chooses among the forms of that word: the one whose pieces are likeliest together, one blank for
each. Beside it stands the majority: the form that is commonest in the training split.
"""

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
import tyro

from benchmarks.measure import table, versions
from transformer.commands.command_line import parse_script
from transformer.commands.program import run_command
from transformer.config import Config
from transformer.data.corpus import read_pairs
from transformer.data.datasets.phrasebook.grammar import DEFINITE, LEXICON
from transformer.data.files import Split
from transformer.data.tokenizer import Tokenizer
from transformer.decoding.fill_mask import logits_of
from transformer.errors import UserError
from transformer.machine import devices
from transformer.model.batch import UNK
from transformer.model.params import Params
from transformer.runs.folder import load_run_config
from transformer.runs.load import load_run
from transformer.training.validation import Z, ratio

ENDINGS = ("e", "en", "er", "es", "em")
CHUNK = 256
"""Sentences whose blanks are filled in together."""


@dataclass(frozen=True)
class Agreement:
    """Count how often a masked model finds the forms of articles and adjectives."""

    run: tyro.conf.Positional[Path]
    """The run folder of a masked model of the phrasebook's German."""
    checkpoint: str = "best"
    """best, last, average or a step."""


class Forms(NamedTuple):
    """The forms of one word of the lexicon, and whether it is an article or an adjective."""

    kind: str
    forms: tuple[str, ...]


class Place(NamedTuple):
    """A word that agreement decides: its sentence, its neighbours, what could stand there."""

    sentence: int
    before: str
    word: str
    after: str
    forms: Forms


def main(words: list[str]) -> None:
    command = parse_script(Agreement, words, "python -m benchmarks.agreement")
    devices.configure_devices("any")
    config = load_run_config(command.run)
    if config.data.sides != ("source",) or config.data.source != "de" or config.model.classes:
        raise UserError(f"{command.run} is no masked model of German")
    run = load_run(command.run, command.checkpoint, config)
    params, tokenizer = run.params, run.tokenizers.source
    majority = commonest(places(texts(config, "train")))
    found = list(places(texts(config, "test")))
    chosen = [form for part in parts(found) for form in choose(config, params, tokenizer, part)]
    print(f"{command.run}, checkpoint {run.label}, test split, {versions('jax')}\n")
    print(table(list(rows(found, chosen, majority))))


def texts(config: Config, split: Split) -> list[str]:
    return [text for text, _ in read_pairs(config.data, split)]


def lexicon() -> dict[str, Forms]:
    """Every form of an article or adjective -> all forms of that word, in lower case."""
    words = [Forms("articles", tuple(sorted({form for row in DEFINITE.values() for form in row})))]
    stems = [row.german for row in LEXICON["determiner"] if row.german != "der"]
    for stem in sorted({*stems, "kein"}):
        words.append(Forms("articles", (stem, *(stem + ending for ending in ENDINGS))))
    for row in LEXICON["adjective"]:
        stem = row.stem or row.german
        words.append(Forms("adjectives", tuple(stem + ending for ending in ENDINGS)))
    return {form: word for word in words for form in word.forms}


def places(sentences: Iterable[str]) -> Iterator[Place]:
    """The articles and adjectives that stand before what they agree with: a noun, or other words
    before a noun. (So "die" is not counted where a relative clause begins with it, nor "müde" where
    it is said of somebody.)"""
    known = lexicon()
    before_noun = known.keys() | {row.german for row in LEXICON["numeral"]}
    for number, sentence in enumerate(sentences):
        words = sentence.split(" ")
        for place, (word, after) in enumerate(itertools.pairwise(words)):
            forms = known.get(word.lower())
            is_noun = re.match(r"[A-ZÄÖÜ]", after) is not None
            if forms and (is_noun or (forms.kind == "articles" and after in before_noun)):
                before, behind = " ".join(words[:place]), " ".join(words[place + 1 :])
                yield Place(number, before, word, behind, forms)


def commonest(found: Iterable[Place]) -> dict[Forms, str]:
    """Of each word the form that occurs most."""
    counts: dict[Forms, Counter[str]] = defaultdict(Counter)
    for place in found:
        counts[place.forms][place.word.lower()] += 1
    return {forms: counted.most_common(1)[0][0] for forms, counted in counts.items()}


def parts(found: Sequence[Place]) -> Iterator[Sequence[Place]]:
    return (found[start : start + CHUNK] for start in range(0, len(found), CHUNK))


def choose(
    config: Config, params: Params, tokenizer: Tokenizer, found: Sequence[Place]
) -> list[str]:
    """For each place the form that the model finds likeliest, in lower case."""
    asked, blanked = [], {}
    for number, place in enumerate(found):
        left, right = tokenizer.encode([place.before, place.after])
        for form in place.forms.forms:
            written = form.capitalize() if place.word[0].isupper() else form
            [pieces] = tokenizer.encode([written])
            # Forms of as many pieces leave the same blanks.
            blanked[number, len(pieces)] = [*left, *[UNK] * len(pieces), *right]
            asked.append((number, form, len(left), pieces))
    answers = logits_of(config, params, list(blanked.values()))
    likely = {key: np.asarray(jax.nn.log_softmax(row)) for key, row in zip(blanked, answers)}
    best = {}
    for number, form, start, pieces in asked:
        rows = likely[number, len(pieces)][start : start + len(pieces)]
        score = rows[np.arange(len(pieces)), pieces].sum()
        best[number] = max(best.get(number, (-np.inf, "")), (score, form))
    return [best[number][1] for number in range(len(found))]


def rows(
    found: Sequence[Place], chosen: Sequence[str], majority: dict[Forms, str]
) -> Iterator[dict[str, str]]:
    """Rows of the table: articles, adjectives, both."""
    truth = np.array([place.word.lower() for place in found])
    common = np.array([majority.get(place.forms, "") for place in found])
    kinds = np.array([place.forms.kind for place in found])
    sentences = np.array([place.sentence for place in found])
    right = np.array(chosen) == truth
    for kind in ("articles", "adjectives", "both"):
        counted = (kinds == kind) | (kind == "both")
        asked = np.bincount(sentences[counted])
        hits = np.bincount(sentences[counted], right[counted])[asked > 0]
        share, error = ratio(hits, asked[asked > 0])
        yield {
            "words": kind,
            "places": f"{counted.sum():,}",
            "majority": f"{(common == truth)[counted].mean():.1%}",
            "model": f"{share:.1%}",
            "95 % interval": f"{share - Z * error:.1%} to {share + Z * error:.1%}",
        }


if __name__ == "__main__":
    run_command(main)
