"""Updates compiled beforehand: the same numbers, each shape once, nothing that cannot fit."""

from functools import partial

import jax
import numpy as np
import pytest

from transformer.errors import UserError
from transformer.training import programs, sharding
from transformer.training.optimizer import learning_rate
from transformer.training.programs import (
    Updates,
    compile_update,
    jit_update,
    new_state,
    operations,
)

COMPILED = "/jax/core/compile/backend_compile_duration"


@pytest.fixture
def compilations():
    """Grows by one whenever XLA compiles something."""
    seen = []

    def note(name, seconds, **_):
        if name == COMPILED:
            seen.append(seconds)

    jax.monitoring.register_event_duration_secs_listener(note)
    yield seen
    jax.monitoring.unregister_event_duration_listener(note)


@pytest.fixture
def two_batches(random_batch):
    """The smaller one first."""
    small = random_batch(rows=4, source_length=5, target_length=5)
    large = random_batch(rows=8, source_length=9, target_length=9)
    return [jax.tree.map(np.asarray, batch) for batch in (small, large)]


def test_updates_are_those_of_jit_and_each_shape_is_compiled_once(
    small_config, two_batches, compilations
):
    config, mesh = small_config(), sharding.make_mesh()
    plain = jit_update(mesh, config)
    expected, state = (new_state(mesh, config) for _ in range(2))
    updates = Updates(mesh, config, two_batches, free=lambda: 10**9)
    assert "1 smaller ones follow" in updates.summary
    for batch in two_batches:  # all is compiled, and the rest that JAX needs for one update
        expected, _ = plain(expected, sharding.shard_batch(mesh, batch), learning_rate(config, 1))
        state, _ = updates(state, batch, 1)
    before = len(compilations)
    for batch in two_batches * 2:
        rows = sharding.shard_batch(mesh, batch)
        expected, report = plain(expected, rows, learning_rate(config, 2))
        state, metrics = updates(state, batch, 2)
        assert float(metrics.sums.loss) == float(report.sums.loss)
    updates.close()
    assert len(compilations) == before
    jax.tree.map(np.testing.assert_array_equal, state.params, expected.params)


def test_what_cannot_fit_is_refused_with_what_would_help_and_no_more_is_compiled(
    small_config, two_batches, monkeypatch
):
    seen = []

    def compiled(mesh, config, batch):
        seen.append(len(batch.target_out))
        return compile_update(mesh, config, batch)

    monkeypatch.setattr(programs, "compile_update", compiled)
    refusal = r"beside the state, but a device has 0.00 GB left: lower data.batch_tokens"
    with pytest.raises(UserError, match=refusal):
        Updates(sharding.make_mesh(), small_config(), two_batches, free=lambda: 1000)
    assert seen in ([8], [8, 4])  # the second may have begun


@pytest.mark.parametrize(
    "times, is_tight", [(1.1, True), pytest.param(3.1, False, marks=pytest.mark.slow)]
)
def test_memory_is_tight_where_a_few_times_what_is_in_between_does_not_fit(
    small_config, two_batches, times, is_tight
):
    config, mesh = small_config(), sharding.make_mesh()
    largest = max(two_batches, key=lambda batch: len(batch.target_out))
    free = int(times * compile_update(mesh, config, largest).additional / programs.USABLE)
    updates = Updates(mesh, config, two_batches, lambda: free)
    updates.close()
    assert updates.is_tight == is_tight


def test_what_goes_wrong_in_the_background_is_said_when_it_is_needed(
    small_config, two_batches, monkeypatch
):
    def compiled(mesh, config, batch):
        if len(batch.target_out) == 4:
            raise MemoryError("of XLA")
        return compile_update(mesh, config, batch)

    monkeypatch.setattr(programs, "compile_update", compiled)
    config, mesh = small_config(), sharding.make_mesh()
    updates = Updates(mesh, config, two_batches, free=lambda: None)
    state, _ = updates(new_state(mesh, config), two_batches[1], 1)
    with pytest.raises(MemoryError, match="of XLA"):
        updates(state, two_batches[0], 2)
    updates.close()


def test_a_program_needs_what_its_state_and_batch_hold(small_config, two_batches):
    config, mesh = small_config(), sharding.make_mesh()
    program = compile_update(mesh, config, two_batches[1])
    state = new_state(mesh, config)
    state = state.replace(key=jax.random.key_data(state.key))
    held = sum(leaf.nbytes for leaf in jax.tree.leaves(state))
    assert held < program.arguments < held + 5000
    assert program.memory == program.arguments + program.results + program.temporaries
    assert program.results < 1000  # of a report; the new state takes the place of the old
    assert program.temporaries > 0


@pytest.mark.parametrize("r_drop", [pytest.param(0, marks=pytest.mark.slow), 1.0])
def test_operations_are_nearly_those_that_xla_counts(small_config, random_batch, r_drop):
    # One layer a stack: XLA counts the body of a loop once. Wide ones: products are nearly all.
    wide = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 128, "d_ff": 256, "num_heads": 2}
    config = small_config(model=wide | {"dropout": 0.1}, r_drop=r_drop)
    batch = random_batch(rows=8, source_length=16, target_length=16)
    state = jax.eval_shape(partial(new_state, sharding.make_mesh(), config))
    mesh = jax.make_mesh((1,), ("data",), devices=jax.devices()[:1])
    lowered = jit_update(mesh, config).lower(state, batch, np.float32(0))
    counted = lowered.compile().cost_analysis()["flops"]
    assert operations(config, batch) == pytest.approx(counted, rel=0.15)
