"""The report of a run: one HTML page that needs nothing else, not even a network."""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transformer.config import Config
from transformer.config.files import to_json
from transformer.data.test_sets import TestSet
from transformer.data.vocabularies import Tokenizers
from transformer.decoding.translator import make_translator, translate
from transformer.errors import UserError
from transformer.evaluation.details import (
    Example,
    Group,
    groups_by_length,
    word_for_word,
    worst_and_best,
)
from transformer.evaluation.scores import References
from transformer.machine.files import write_text
from transformer.model.operations import pair_operations
from transformer.model.params import Params
from transformer.runs.folder import Launch
from transformer.viewing.attention import AttentionMap, attention_maps, maps_with_lists
from transformer.viewing.pages import as_json, render
from transformer.viewing.plots import curves

EXAMPLES = 8
"""Of the worst and of the best translations."""

MOST_SENTENCES, LONGEST_SENTENCE = 20, 60
"""Sentences whose attention is shown, and tokens of each: maps grow with the square."""

WATTS = {"core": 10, "device": 400}
"""Assumed power, with memory and cooling, of a core of a server, and of a GPU or TPU at work."""


@dataclass(frozen=True)
class TestResult:
    """What was found on one test set: the record that eval.py keeps; of a translator, details."""

    record: dict[str, Any]
    groups: Sequence[Group] = ()
    examples: Mapping[str, Sequence[Example]] = field(default_factory=dict)
    equal: str = ""


@dataclass(frozen=True)
class AttentionExample:
    """A sentence pair and its maps of encoder, masked and cross-attention."""

    source: str
    target: str
    maps: Sequence[AttentionMap]


@dataclass(frozen=True)
class ReportData:
    """All that a report shows of a run. `metrics` are those of several runs, this one first."""

    run: str
    checkpoint: str
    config: Config
    parameters: int
    metrics: Mapping[str, Sequence[dict]]
    launches: Sequence[Launch]
    results: Sequence[TestResult]
    attention: Sequence[AttentionExample]
    doctor: Sequence[str]


def write_page(path: Path, data: ReportData) -> None:
    """Writes the page atomically."""
    examples = [vars(one) | {"maps": maps_with_lists(one.maps)} for one in data.attention]
    values = {
        "curves": curves(data.metrics),
        "costs": list(costs(data)),
        "config": to_json(data.config),
        "maps": as_json(examples),
        "marked": lambda example: differences(example.reference, example.output),
    }
    write_text(path, render("report.html", vars(data) | values))


def result_with_details(
    config: Config,
    tokenizers: Tokenizers,
    test_set: TestSet,
    record: dict,
    translations: list | None,
) -> TestResult:
    """What a report shows of a test set."""
    if translations is None:
        return TestResult(record)
    references = References.of(
        test_set.settings(config.data), test_set.pairs, test_set.more_references
    )
    lengths = [len(ids) for ids in tokenizers.source.encode(references.sources)]
    return TestResult(
        record,
        list(groups_by_length(lengths, translations, references)),
        worst_and_best(translations, references, EXAMPLES),
        word_for_word(translations, references),
    )


def check_sentences(tokenizers: Tokenizers, sentences: Sequence[str]) -> None:
    """Raises UserError for sentences whose maps would be too large for a browser."""
    if len(sentences) > MOST_SENTENCES:
        raise UserError(
            f"--sentences: {len(sentences)} are given, but at most {MOST_SENTENCES} are allowed"
        )
    for text, ids in zip(sentences, tokenizers.source.encode(list(sentences))):
        if not 0 < len(ids) <= LONGEST_SENTENCE:
            raise UserError(
                f"--sentences: {text[:40]!r} has {len(ids):,} tokens, but must have 1 to "
                f"{LONGEST_SENTENCE}"
            )


def attention_examples(
    config: Config,
    params: Params,
    tokenizers: Tokenizers,
    result: tuple[TestSet, dict, list | None],
    sentences: Sequence[str],
) -> list[AttentionExample]:
    """These sentences, or some of the test set, with their translations and maps."""
    test_set, _, translations = result
    if sentences:
        sources = targets = list(sentences)
        if translations is not None:
            targets = translate(make_translator(config, params, tokenizers), sources)
    else:
        texts = [source or target for source, target in test_set.pairs]
        typical = _typical(tokenizers, texts)
        sources = [texts[number] for number in typical]
        targets = [(texts if translations is None else translations)[n] for n in typical]
    return [
        AttentionExample(*pair, attention_maps(config.model, params, tokenizers, *pair))
        for pair in zip(sources, targets)
    ]


def _typical(tokenizers: Tokenizers, texts: Sequence[str]) -> list[int]:
    """The numbers of texts longer than 2/8, 3/8 and 4/8 of all, empty and long ones left out."""
    lengths = [len(ids) for ids in tokenizers.source.encode(texts)]
    fitting = [number for number, length in enumerate(lengths) if 0 < length <= LONGEST_SENTENCE]
    order = sorted(fitting, key=lengths.__getitem__)
    return [*dict.fromkeys(order[len(order) * part // 8] for part in (2, 3, 4))] if order else []


def differences(reference: str, output: str) -> Iterator[tuple[str, str]]:
    """The output, word by word, with what the reference has instead: runs of words that are
    "same", "missing" (in the output) or "added" (by it)."""
    wanted, written = reference.split(), output.split()
    matcher = difflib.SequenceMatcher(None, wanted, written, autojunk=False)
    for kind, first, last, begin, end in matcher.get_opcodes():
        runs = [("missing", wanted[first:last]), ("added", written[begin:end])]
        if kind == "equal":
            runs = [("same", written[begin:end])]
        yield from ((name, " ".join(words)) for name, words in runs if words)


def costs(data: ReportData) -> Iterator[tuple[str, str]]:
    """What training took, by name; estimates say what they assume."""
    lines = next(iter(data.metrics.values()), [])
    yield "parameters", f"{data.parameters:,}"
    if not lines:
        return
    steps, seconds = lines[-1]["step"], lines[-1]["seconds"]
    yield "updates", f"{steps:,} in {seconds / 60:,.1f} minutes, without validations"
    tokens = _predicted_tokens(lines)
    yield "tokens predicted in training", f"about {tokens:,.0f}"
    if tokens:
        length = 20
        each = 3 * pair_operations(data.config.model, length, length) / length
        yield (
            "operations of training",
            f"about {each * tokens:.2g}, {each:.2g} per predicted token (matrix products of "
            f"forward and backward pass, for texts of {length} tokens)",
        )
        yield "speed", f"{tokens / max(seconds, 1e-9):,.0f} tokens/s, with compilation"
    hours = unit_hours(data.launches, seconds)
    for unit, spent in hours.items():
        names = sorted({launch.name for launch in data.launches if launch.unit == unit})
        yield f"{unit}-hours", f"{spent:.3g} ({', '.join(names)})"
    if hours:
        assumed = " and ".join(f"{WATTS[unit]} W for a {unit}" for unit in hours)
        kilowatt_hours = sum(WATTS[unit] * spent for unit, spent in hours.items()) / 1000
        yield "energy", f"{kilowatt_hours:.2g} kWh, assuming {assumed}; not measured"


def unit_hours(launches: Sequence[Launch], seconds: float) -> dict[str, float]:
    """Hours of cores or devices, of training that took this many seconds in all."""
    hours: dict[str, float] = {}
    ends = [*(launch.seconds for launch in launches[1:]), seconds]
    for launch, end in zip(launches, ends):
        used = max(end - launch.seconds, 0) * launch.count / 3600
        hours[launch.unit] = hours.get(launch.unit, 0) + used
    return hours


def _predicted_tokens(lines: Sequence[dict]) -> float:
    """The sum of speed times duration over all lines."""
    total, before = 0.0, 0.0
    for line in lines:
        if "tokens_per_second" in line:
            total += line["tokens_per_second"] * max(line["seconds"] - before, 0)
            before = line["seconds"]
    return total
