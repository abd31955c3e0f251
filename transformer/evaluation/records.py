"""What eval.py has found of a run, kept in RUN/eval, as a table."""

import json
from collections.abc import Iterator
from pathlib import Path

HEAD = "| test set | search | score | 95 % interval | signature |\n| --- | --- | --- | --- | --- |"


def records(run: Path) -> Iterator[tuple[str, dict]]:
    """The records of a run, each with the name of its file; what is none is passed over."""
    for path in sorted((run / "eval").glob("*.json")):
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            if isinstance(record, dict) and "test_set" in record:
                yield path.stem, record
        except (OSError, ValueError, RecursionError):
            continue


def table(run: Path) -> str | None:
    """All scores of translations, in Markdown; None where there are none."""
    rows = [row for name, record in records(run) for row in _rows(name, record)]
    return "\n".join([HEAD, *rows]) if rows else None


def _rows(name: str, record: dict) -> list[str]:
    try:
        decode = record["decode"]
        search = f"beam {decode['beam_size']}, alpha {decode['alpha']}"
        rows = []
        for score in record.get("scores", []):
            low, high = score["low"], score["high"]
            signature = score["signature"].replace("|", "\\|")
            interval = "-" if low is None else f"{low:.1f} to {high:.1f}"
            rows.append(
                f"| {name} ({record['sentences']:,} sentences) | {search} "
                f"| {score['name']} {score['value']:.1f} | {interval} | {signature} |"
            )
    except (KeyError, TypeError, ValueError, AttributeError):
        return []  # not a record of eval.py
    return rows
