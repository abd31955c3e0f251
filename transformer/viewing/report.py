"""The report of a run: one HTML page that needs nothing else, no network either."""

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jinja2

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
from transformer.machine.disk import write_text
from transformer.model.operations import pair_operations
from transformer.model.params import Params
from transformer.runs.launches import Launch
from transformer.viewing.attention import AttentionMap, attention_maps
from transformer.viewing.cost import WATTS, kilowatt_hours, unit_hours
from transformer.viewing.curves import curves

FOLDER = Path(__file__).parent / "page"
INLINED = {"style": "css", "attention": "js", "report": "js"}
"""Files that the page would else need."""

EXAMPLES = 8
"""Of the worst and of the best translations."""

MOST_SENTENCES, LONGEST_SHOWN = 20, 60
"""Whose attention is shown, and tokens of each: maps grow with the square."""

Pairs = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class TestResult:
    """What was found on one test set: the record that eval.py keeps, and of a translator more."""

    record: dict[str, Any]
    groups: Sequence[Group] = ()
    examples: Mapping[str, Sequence[Example]] = field(default_factory=dict)
    equal: str = ""


@dataclass(frozen=True)
class AttentionExample:
    """Sentences and who looks at whom in them: the maps of encoder, masked and cross attention."""

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
    starts: Sequence[Launch]
    tested: Sequence[TestResult]
    looked: Sequence[AttentionExample]
    doctor: Sequence[str]


def write_page(path: Path, seen: ReportData) -> None:
    """Writes the page, whole or not at all."""
    loader = jinja2.FileSystemLoader(FOLDER)
    environment = jinja2.Environment(
        loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["marked"] = lambda example: list(differences(*example[-2:]))
    page = environment.get_template("report.html").render(
        seen=seen,
        curves=curves(seen.metrics),
        costs=list(costs(seen)),
        config=to_json(seen.config),
        maps=as_json([_as_values(one) for one in seen.looked]),
        **{name: (FOLDER / f"{name}.{kind}").read_text() for name, kind in INLINED.items()},
    )
    write_text(path, page)


def examined(
    config: Config,
    tokenizers: Tokenizers,
    test_set: TestSet,
    record: dict,
    translations: list | None,
) -> TestResult:
    """What a report shows of a test set."""
    if translations is None:
        return TestResult(record)
    references = References.of(config.data, test_set.pairs, test_set.more_references)
    lengths = [len(ids) for ids in tokenizers.source.encode(references.sources)]
    return TestResult(
        record,
        list(groups_by_length(lengths, translations, references)),
        worst_and_best(translations, references, EXAMPLES),
        word_for_word(translations, references),
    )


def check_sentences(tokenizers: Tokenizers, sentences: Sequence[str]) -> None:
    """Raises UserError for sentences whose maps would make a page that no browser opens."""
    if len(sentences) > MOST_SENTENCES:
        raise UserError(f"--sentences: {len(sentences)} are too many, {MOST_SENTENCES} at most")
    for text, ids in zip(sentences, tokenizers.source.encode(list(sentences))):
        if not 0 < len(ids) <= LONGEST_SHOWN:
            raise UserError(
                f"--sentences: {text[:40]!r} has {len(ids):,} tokens: 1 to {LONGEST_SHOWN} fit"
            )


def chosen_sentences(
    config: Config,
    params: Params,
    tokenizers: Tokenizers,
    result: tuple[TestSet, dict, list | None],
    wanted: Sequence[str],
) -> list[AttentionExample]:
    """The sentences that are wanted, or some of the test set, translated, and their maps."""
    test_set, _, translations = result
    pairs = test_set.pairs
    typical = [] if wanted else _typical(tokenizers, pairs)
    if translations is None:
        texts = wanted or [source or target for source, target in (pairs[n] for n in typical)]
        both = [(text, text) for text in texts]
    elif wanted:
        both = [*zip(wanted, translate(make_translator(config, params, tokenizers), wanted))]
    else:
        both = [(pairs[number][0], translations[number]) for number in typical]
    return [
        AttentionExample(*one, attention_maps(config.model, params, tokenizers, *one))
        for one in both
    ]


def _typical(tokenizers: Tokenizers, pairs: Pairs) -> list[int]:
    """The numbers of some sentences, none of them empty or long."""
    rows = tokenizers.source.encode([source or target for source, target in pairs])
    fitting = [number for number, ids in enumerate(rows) if 0 < len(ids) <= LONGEST_SHOWN]
    order = sorted(fitting, key=lambda number: len(rows[number]))
    return [*dict.fromkeys(order[len(order) * part // 8] for part in (2, 3, 4))] if order else []


def as_json(value: Any) -> str:
    """JSON that may stand in a script element: nothing in it ends that."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def _as_values(looked: AttentionExample) -> dict[str, Any]:
    maps = [one._asdict() | {"weights": one.weights.round(3).tolist()} for one in looked.maps]
    return {"source": looked.source, "target": looked.target, "maps": maps}


def differences(reference: str, output: str) -> Iterator[tuple[str, str]]:
    """The output, word by word, with what the reference has instead: runs of words that are
    "same", "missing" (in the output) or "added" (by it)."""
    wanted, written = reference.split(), output.split()
    matcher = difflib.SequenceMatcher(None, wanted, written, autojunk=False)
    for kind, first, last, begin, end in matcher.get_opcodes():
        if kind == "equal":
            yield "same", " ".join(written[begin:end])
            continue
        if first < last:
            yield "missing", " ".join(wanted[first:last])
        if begin < end:
            yield "added", " ".join(written[begin:end])


def costs(seen: ReportData) -> Iterator[tuple[str, str]]:
    """What training took, by name; estimates say what they assume."""
    lines = next(iter(seen.metrics.values()), [])
    yield "parameters", f"{seen.parameters:,}"
    if not lines:
        return
    steps, seconds = lines[-1]["step"], lines[-1]["seconds"]
    yield "updates", f"{steps:,} in {seconds / 60:,.1f} minutes, validations not counted"
    tokens = _tokens(lines)
    yield "tokens predicted in training", f"about {tokens:,.0f}"
    if tokens:
        length = 20
        each = 3 * pair_operations(seen.config.model, length, length) / length
        yield (
            "operations of training",
            f"about {each * tokens:.2g}, {each:.2g} for each token predicted (matrix products of "
            f"forward and backward pass, for texts of {length} tokens)",
        )
        yield "speed", f"{tokens / max(seconds, 1e-9):,.0f} tokens/s, compiling included"
    hours = unit_hours(seen.starts, seconds)
    for unit, spent in hours.items():
        names = sorted({start.name for start in seen.starts if start.unit == unit})
        yield f"{unit}-hours", f"{spent:.3g} ({', '.join(names)})"
    if hours:
        assumed = " and ".join(f"{WATTS[unit]} W for a {unit}" for unit in hours)
        yield "energy", f"{kilowatt_hours(hours):.2g} kWh, assuming {assumed}; not measured"


def _tokens(lines: Sequence[dict]) -> float:
    """Those predicted: speed times duration of each report."""
    total, before = 0.0, 0.0
    for line in lines:
        if "tokens_per_second" in line:
            total += line["tokens_per_second"] * max(line["seconds"] - before, 0)
            before = line["seconds"]
    return total
