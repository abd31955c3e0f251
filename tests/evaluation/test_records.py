"""The table of what has been kept of a run."""

import json

from transformer.evaluation.records import records, table

RECORD = {
    "test_set": "news", "sentences": 1200, "decode": {"beam_size": 4, "alpha": 0.6},
    "scores": [
        {"name": "BLEU", "value": 31.25, "low": 30.0, "high": 32.5, "signature": "a:1|b:2"},
        {"name": "chrF2", "value": 0.0, "low": None, "high": None, "signature": "c"},
    ],
    "losses": [{"name": "perplexity", "value": 5.25, "interval": [5.0, 5.5]}],
}  # fmt: skip


def test_every_score_is_a_row_and_what_is_no_record_is_passed_over(tmp_path):
    folder = tmp_path / "eval"
    folder.mkdir()
    assert table(tmp_path) is None
    (folder / "news-best.json").write_text(json.dumps(RECORD))
    for name, text in {
        "cut": "{", "list": "[]", "other": "{}", "old": '{"test_set": "x", "scores": 3}',
        "deep": "[" * 100_000,
    }.items():  # fmt: skip
        (folder / f"{name}.json").write_text(text)
    name = "news-best (1,200 sentences)"
    rows = table(tmp_path).splitlines()[2:]
    assert rows == [
        f"| {name} | beam 4, alpha 0.6 | BLEU 31.2 | 30.0 to 32.5 | a:1\\|b:2 |",
        f"| {name} | beam 4, alpha 0.6 | chrF2 0.0 | - | c |",
        f"| {name} | - | perplexity 5.25 | 5 to 5.5 | - |",
    ]
    assert [name for name, _ in records(tmp_path)] == ["news-best", "old"]
