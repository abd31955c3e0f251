"""metrics.jsonl as a run is interrupted and a disk is full, and curves of TensorBoard and Weights &
Biases, read by their own readers."""

import json
import time

import pytest

from transformer.errors import UserError
from transformer.runs.metrics import Metrics, open_writers, read_metrics


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


def trained(folder, first, last, project=""):
    """A run that reports every 100 updates, from `first` on."""
    writers = open_writers(folder, first, project, {"train": {"steps": 400}})
    metrics = Metrics(folder, first, writers)
    for step in range(first + 100, last + 1, 100):
        metrics.write(line(step))
    metrics.close()


@pytest.mark.slow  # needs an extra
def test_tensorboard_has_each_point_once_after_a_resume(tmp_path):
    pytest.importorskip("tensorboardX")
    from tensorboardX.proto.event_pb2 import Event

    trained(tmp_path, 0, 300)
    time.sleep(1.1)  # files are named by the second
    trained(tmp_path, 200, 400)
    points = {}
    for path in sorted((tmp_path / "tensorboard").glob("events*")):
        for record in records(path.read_bytes()):
            event = Event.FromString(record)
            if event.session_log.status == 1:  # START: what was later is forgotten
                points = {step: v for step, v in points.items() if step < event.step}
            for value in event.summary.value:
                assert value.tag == "loss" and event.step not in points
                points[event.step] = value.simple_value
    assert points == pytest.approx({step: step / 100 for step in (100, 200, 300, 400)})


def records(data):
    """Of a file of TFRecords: length, its checksum, the record, its checksum."""
    while data:
        length = int.from_bytes(data[:8], "little")
        yield data[12 : 12 + length]
        data = data[16 + length :]


def logged(data):
    """Of a log as LevelDB has it, behind 7 bytes: in blocks of 32 KiB pieces of records, each after
    a checksum, a length and a kind (1: whole, 2: first, 3: middle, 4: last)."""
    place, record = 7, b""
    while place + 7 <= len(data):
        left = 2**15 - place % 2**15
        if left < 7:
            place += left
            continue
        length, kind = int.from_bytes(data[place + 4 : place + 6], "little"), data[place + 6]
        record += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):
            yield record
            record = b""


@pytest.mark.slow  # needs an extra
def test_weights_and_biases_has_every_point_in_one_run(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    wandb.teardown()  # it reads its environment once
    from wandb.proto.wandb_internal_pb2 import Record

    monkeypatch.setenv("WANDB_MODE", "offline")
    folder = tmp_path / "first"
    folder.mkdir()
    trained(folder, 0, 300, "translators")
    trained(folder, 200, 400, "translators")
    wandb.teardown()  # and writes from a process of its own
    ids, points = set(), {}
    for path in sorted((folder / "wandb").glob("offline-run-*/*.wandb")):
        for data in logged(path.read_bytes()):
            record = Record.FromString(data)
            if record.WhichOneof("record_type") == "run":
                ids.add(record.run.run_id)
                assert (record.run.project, record.run.display_name) == ("translators", "first")
                settings = {
                    item.key: json.loads(item.value_json) for item in record.run.config.update
                }
                assert settings["train"] == {"steps": 400}
            items = {i.key or i.nested_key[0]: i.value_json for i in record.history.item}
            if "loss" in items:
                points[int(items["step"])] = float(items["loss"])
    assert len(ids) == 1
    assert points == pytest.approx({step: step / 100 for step in (100, 200, 300, 400)})


@pytest.mark.slow  # needs an extra
def test_what_keeps_weights_and_biases_from_beginning_is_told(tmp_path, monkeypatch):
    pytest.importorskip("wandb").teardown()  # it reads its environment once
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setenv("WANDB_API_KEY", "no key")
    with pytest.raises(UserError, match="--wandb translators: .*WANDB_MODE=offline"):
        open_writers(tmp_path, 0, "translators", {})
