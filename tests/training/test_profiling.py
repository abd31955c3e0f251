import gzip
import itertools
import json

import jax
import jax.numpy as jnp
import pytest
from jax._src.profiler import _profile_state

from transformer.training.profiling import BEFORE, PROFILED, profiled


def work(number):
    with jax.profiler.TraceAnnotation(f"update {number}"):
        jax.block_until_ready(jnp.eye(8) @ jnp.eye(8))


def test_the_stream_is_the_same_and_only_the_chosen_updates_are_in_the_profile(tmp_path, capsys):
    count = BEFORE + PROFILED + 5
    seen = []
    for item in profiled(iter(range(count)), tmp_path, count):
        work(item)
        seen.append(item)
    assert seen == list(range(count))
    assert updates(tmp_path) == [*range(BEFORE, BEFORE + PROFILED)]
    assert f"profile of {PROFILED} updates: {tmp_path}" in capsys.readouterr().out


def test_training_that_ends_within_leaves_what_there_is(tmp_path):
    stream = profiled(itertools.count(), tmp_path, 100)
    for _ in range(BEFORE + 3):
        work(next(stream))
    stream.close()
    assert updates(tmp_path) == [*range(BEFORE, BEFORE + 3)]


def test_what_fails_in_the_stream_is_not_the_profilers(tmp_path):
    def stream():
        yield from range(BEFORE + 2)
        raise OSError("the corpus is gone")

    with pytest.raises(OSError, match="the corpus is gone"):
        list(map(work, profiled(stream(), tmp_path, 100)))
    assert updates(tmp_path) == [BEFORE, BEFORE + 1]


def test_a_place_that_cannot_be_written_to_ends_no_training(tmp_path):
    (tmp_path / "profile").write_text("not a folder")
    with pytest.warns(UserWarning, match=f"no profile in {tmp_path / 'profile'}: "):
        seen = [
            item for item in profiled(iter(range(70)), tmp_path / "profile", 70) if work(item) or 1
        ]
    assert seen == list(range(70))
    _profile_state.reset()  # JAX itself does not, where it could not write


def test_no_profile_of_too_few_updates_is_announced(tmp_path, capsys):
    with pytest.warns(UserWarning, match=f"after {BEFORE} updates, and {BEFORE} are left: raise"):
        assert [*profiled(iter(range(BEFORE)), tmp_path, BEFORE)] == [*range(BEFORE)]
    assert capsys.readouterr().out == ""


def updates(folder) -> list[int]:
    """The numbers of those that the profile saw."""
    [path] = folder.glob("plugins/profile/*/perfetto_trace.json.gz")
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    names = [event.get("name", "") for event in events]
    return sorted(int(name.removeprefix("update ")) for name in names if name.startswith("update "))
