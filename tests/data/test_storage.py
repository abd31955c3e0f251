"""Plans, batches and summaries are the same in slices from disk as from memory."""

import itertools

import numpy as np
import pytest
from pairs import token_pairs

from transformer.config import DataConfig
from transformer.data import storage
from transformer.data.batching import Position, batches
from transformer.data.buckets import make_plan
from transformer.data.summary import data_summary
from transformer.errors import UserError


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "transformer"


def on_disk(patch) -> None:
    patch.setattr(storage, "SLICE", 7)
    patch.setattr(storage, "IN_MEMORY", 5)
    patch.setattr(storage, "PARTITION", 50)


def test_plan_batches_and_summary_are_the_same_from_disk(cache):
    generator = np.random.default_rng(0)
    lengths = np.maximum(0, generator.integers(-2, 30, (2, 300)))
    pairs, data = token_pairs(*lengths), DataConfig(batch_tokens=200, num_buckets=3, max_length=25)

    def found():
        plan = make_plan(pairs, data)
        stream = batches(pairs, plan, 1, Position())
        read = [batch for batch, _ in itertools.islice(stream, 2 * plan.batches_per_epoch)]
        return plan, read, data_summary(data, pairs, pairs)

    whole, read, look = found()
    with pytest.MonkeyPatch.context() as patch:
        on_disk(patch)
        plan, read_from_disk, look_at_parts = found()
    assert any(isinstance(members.base, np.memmap) for members in plan.members)
    assert (plan.digest, plan.left_out, plan.tokens) == (whole.digest, whole.left_out, whole.tokens)
    assert plan.target_tokens == whole.target_tokens
    for ours, theirs in zip(read, read_from_disk, strict=True):
        for name, ids in vars(ours).items():
            np.testing.assert_array_equal(ids, getattr(theirs, name))
    assert look == look_at_parts
    assert list(cache.iterdir()) == []  # its files have no names


def test_partitions_are_all_of_it(monkeypatch):
    numbers = np.random.default_rng(0).integers(2**64, size=200_000, dtype=np.uint64)
    monkeypatch.setattr(storage, "PARTITION", 70_000)
    cut = [numbers[part] for part in storage.slices(len(numbers))]
    found = list(storage.hash_partitions(cut, np.uint64, len(numbers)))
    assert [np.all(share % 3 == which) for which, share in enumerate(found)] == [True] * 3
    np.testing.assert_array_equal(np.sort(np.concatenate(found)), np.sort(numbers))


def test_nothing_is_nothing():
    assert storage.memory_mapped([], np.uint32, 0).shape == (0,) and storage.slices(0) == []


def test_where_there_is_no_space_it_says_so(tmp_path, monkeypatch):
    on_disk(monkeypatch)
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(UserError, match=r"cannot store the order .*file.* XDG_CACHE_HOME"):
        storage.memory_mapped([np.arange(10)], np.uint32, 10)
