"""A run remembers where and with what it was trained."""

from transformer.runs.launches import Launch, read_launches, record_launch


def test_starts_come_back_in_order_and_what_is_none_is_passed_over(tmp_path):
    assert read_launches(tmp_path) == []
    starts = [
        Launch(0, 0.0, "core", 2, "a processor", "nothing odd"),
        Launch(7, 3.5, "device", 4, "b"),
    ]
    record_launch(tmp_path, starts[0], "1.2.3")
    with (tmp_path / "starts.jsonl").open("a") as file:
        file.write('7\n[[\n{"step": 1}\n{"versions": {}}\n\xff\n{"step": 2, "secon\n')
        for wrong in ('"seconds": "a"', '"unit": ["core"]', '"count": null', '"count": 0'):
            good = '"step": 1, "seconds": 1, "unit": "core", "count": 2, "name": "a"'
            file.write(f'{{{good}, {wrong}, "versions": {{}}}}\n')
    record_launch(tmp_path, starts[1], "1.2.3")
    assert read_launches(tmp_path) == starts
    assert '"program": "1.2.3"' in (tmp_path / "starts.jsonl").read_text()
