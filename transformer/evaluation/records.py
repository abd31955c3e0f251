"""The results of eval.py, kept in RUN/eval, and all of them as a table."""

import json
from collections.abc import Iterator
from pathlib import Path

from transformer.config import DecodeConfig
from transformer.machine.files import write_text

HEAD = "| test set | search | score | 95 % interval | signature |\n| --- | --- | --- | --- | --- |"
NAMES = {
    "beam_size": "beam{}",
    "alpha": "alpha{}",
    "normalisation": "per-{}",
    "stop": "stop-{}",
    "max_extra_length": "extra{}",
    "max_length": "most{}",
    "forced_end": "forced-end",
    "forbidden": "without{}",
    "renormalise": "renormalised",
    "min_length": "least{}",
    "no_repeat_ngram": "no-repeat{}",
    "repetition_penalty": "penalty{}",
    "max_source_length": "source{}",
    "term_bonus": "bonus{}",
    "shortlist": "shortlist{}",
    "frequent": "frequent{}",
    "dtype": "{}",
}
"""How file names give the settings of `decode` that can change a translation."""


def records(run: Path) -> Iterator[tuple[str, dict]]:
    """The records of a run, each with the name of its file; other files are skipped."""
    for path in sorted((run / "eval").glob("*.json")):
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            if isinstance(record, dict) and "test_set" in record:
                yield path.stem, record
        except (OSError, ValueError, RecursionError):
            continue


def table(run: Path) -> str | None:
    """All scores as a table in Markdown; None if there are none."""
    rows = [row for name, record in records(run) for row in _rows(name, record)]
    return "\n".join([HEAD, *rows]) if rows else None


def _rows(name: str, record: dict) -> list[str]:
    try:
        decode, test_set = record["decode"], f"{name} ({record['sentences']:,} sentences)"
        search = f"beam {decode['beam_size']}, alpha {decode['alpha']}"
        rows = []
        for score in record.get("scores", []):
            low, high = score["low"], score["high"]
            signature = score["signature"].replace("|", "\\|")
            interval = "-" if low is None else f"{low:.1f} to {high:.1f}"
            rows.append(
                f"| {test_set} | {search} | {score['name']} {score['value']:.1f} | {interval} "
                f"| {signature} |"
            )
        for loss in record["losses"]:
            interval = "{:.4g} to {:.4g}".format(*loss["interval"]) if loss["interval"] else "-"
            rows.append(f"| {test_set} | - | {loss['name']} {loss['value']:.4g} | {interval} | - |")
    except (KeyError, TypeError, ValueError, AttributeError):
        return []  # not a record of eval.py
    return rows


def side_by_side(results: list[tuple[str, dict]]) -> list[str]:
    """The scores of some test sets, by name, as lines of a table: those of a translator, of other
    models the losses."""
    rows = []
    for name, record in results:
        form = "{:.1f}" if "scores" in record else "{:.4g}"
        found = record.get("scores") or record["losses"]
        rows = rows or [["", *(one["name"] for one in found)]]
        rows.append([name, *(form.format(one["value"]) for one in found)])
    widths = [max(map(len, column)) for column in zip(*rows)]
    return [
        "  ".join([name.ljust(widths[0]), *map(str.rjust, values, widths[1:])])
        for name, *values in rows
    ]


def write_record(
    path: Path, record: dict, translations: list[str] | None, language: str
) -> list[str]:
    """Writes PATH.json, and PATH.LANGUAGE if there are translations; returns their names."""
    path.parent.mkdir(exist_ok=True)
    texts = {"json": json.dumps(record, indent=2)}
    if translations is not None:
        texts = {language: "\n".join(translations)} | texts
    for ending, text in texts.items():
        write_text(path.with_name(f"{path.name}.{ending}"), text + "\n")
    return [f"{path}.{ending}" for ending in texts]


def own_path(path: Path, test_set: str) -> Path:
    """The path, or one with a number if results of another test set are kept there."""
    kept = {name: record["test_set"] for name, record in records(path.parents[1])}
    names = [path.name, *(f"{path.name}-{number}" for number in range(2, len(kept) + 3))]
    return path.with_name(next(n for n in names if kept.get(n, test_set) == test_set))


def search_name(settings: DecodeConfig) -> str:
    """Beam, alpha and all settings that are not the default, such as "beam4-alpha0.6-bfloat16"."""
    default = vars(DecodeConfig()) | {"beam_size": None, "alpha": None}
    return "-".join(
        form.format(str(getattr(settings, name)).strip("(,)").replace(", ", "+"))
        for name, form in NAMES.items()
        if getattr(settings, name) != default[name]
    )
