"""metrics.jsonl, as a run is interrupted and a disk is full."""

import pytest

from transformer.errors import UserError
from transformer.runs.metrics import Metrics, read_metrics


def line(step):
    return {"step": step, "seconds": 0.5, "loss": step / 100}


def test_resuming_forgets_the_lines_after_the_checkpoint_and_half_a_line(tmp_path):
    first = Metrics(tmp_path, 0)
    for step in (100, 200, 300):
        first.write(line(step))
    first.close()
    path = tmp_path / "metrics.jsonl"
    path.write_text(path.read_text() + '{"step": 150, "lo')
    resumed = Metrics(tmp_path, 200)
    resumed.write(line(250))
    resumed.close()
    assert read_metrics(tmp_path) == [line(100), line(200), line(250)]


def test_what_is_not_there_yet_is_told(tmp_path):
    with pytest.raises(UserError, match=r"metrics.jsonl does not exist: train.py writes it"):
        read_metrics(tmp_path)


def test_a_full_disk_is_named_with_the_metrics_file(tmp_path, monkeypatch):
    metrics = Metrics(tmp_path, 0)

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError) as refusal:
        metrics.write(line(1))
    metrics.close()
    assert refusal.value.filename.endswith("metrics.jsonl")
