"""One device, four devices, and a literal jax.pmap: the same gradients."""

import functools
from dataclasses import replace
from functools import partial
from unittest import mock

import jax
import numpy as np
import pytest
from jax.sharding import AxisType

from benchmarks.hlo import executed, parse
from transformer.config import Config, OptimizerConfig
from transformer.model.batch import PAD
from transformer.training import programs, sharding
from transformer.training.optimizer import GRADIENT_SCALE, learning_rate
from transformer.training.step import gradients, init_state, state_shapes

ROWS = 8


state_of = jax.jit(init_state, static_argnums=0)


def first_state(config):
    return state_of(config, jax.random.key(config.train.seed))


def one_device():
    return jax.make_mesh((1,), ("data",), (AxisType.Auto,), devices=jax.devices()[:1])


@pytest.fixture
def uneven_batch(random_batch):
    """Sentences of which those on the first device are longest: token counts differ by device."""
    batch = jax.tree.map(np.asarray, random_batch(rows=ROWS, source_length=9, target_length=9))
    order = np.argsort(-(batch.target_out != PAD).sum(1))
    batch = jax.tree.map(lambda ids: ids[order], batch)
    tokens = (batch.target_out != PAD).reshape(4, -1).sum(1)
    assert tokens[0] > 1.5 * tokens[-1]
    return batch


def mean(grads_and_sums):
    grads, sums = grads_and_sums
    return jax.tree.map(lambda gradient: np.asarray(gradient / sums.tokens), grads)


def assert_close(a, b, atol):
    jax.tree.map(partial(np.testing.assert_allclose, atol=atol, rtol=1e-5), a, b)


def test_the_mesh_spans_all_devices():
    assert jax.device_count() == 4
    assert sharding.make_mesh().size == 4


def test_gradients_on_four_devices_equal_those_on_one_and_those_of_a_literal_pmap(
    small_config, random_params, uneven_batch
):
    config = small_config()
    params = random_params(config.model)
    compute = partial(gradients, config)

    def on(mesh):
        shardings = sharding.replicated(mesh), sharding.split_over(mesh)
        compiled = jax.jit(compute, in_shardings=shardings, out_shardings=shardings[0])
        return compiled(params, sharding.shard_batch(mesh, uneven_batch))

    @partial(jax.pmap, axis_name="data", in_axes=(None, 0))
    def pmapped(params, batch):
        return jax.lax.psum(compute(params, batch), "data")

    split = jax.tree.map(lambda ids: ids.reshape(4, -1, ids.shape[-1]), uneven_batch)
    by_pmap = jax.tree.map(lambda leaf: leaf[0], pmapped(params, split))
    four, one = on(sharding.make_mesh()), on(one_device())
    assert len(four[0].embedding.source.devices()) == 4
    assert_close(mean(four), mean(one), atol=1e-6)
    assert_close(mean(four), mean(by_pmap), atol=1e-6)
    assert_close(four[1], by_pmap[1], atol=1e-6)


jit_update = functools.cache(programs.jit_update)
"""So that tests share what they compile."""


def updated(mesh, config, batch, updates=2):
    state = programs.new_state(mesh, config)
    step = jit_update(mesh, config)
    for number in range(1, updates + 1):
        rows = sharding.shard_batch(mesh, batch, config.train.micro_batches)
        state, metrics = step(state, rows, learning_rate(config, number))
    return jax.device_get((state, metrics))


def trained(mesh, config, batch):
    state, metrics = updated(mesh, config, batch)
    return state.params, metrics


def with_dropout(small_config, micro_batches):
    config = small_config(model={"dropout": 0.3}, micro_batches=micro_batches)
    optimizer = OptimizerConfig(warmup_steps=10, epsilon=1e-6)  # 1e-9 amplifies rounding
    return Config(config.model, config.data, optimizer, config.train)


@pytest.mark.slow
@pytest.mark.parametrize("micro_batches", [1, 2])
def test_updates_with_dropout_on_four_devices_equal_those_on_one(
    small_config, uneven_batch, micro_batches
):
    config = with_dropout(small_config, micro_batches)
    four = trained(sharding.make_mesh(), config, uneven_batch)
    one = trained(one_device(), config, uneven_batch)
    assert_close(four, one, atol=1e-5)


@pytest.mark.parametrize("rows, parts, filled", [(7, 1, 8), (8, 1, 8), (3, 2, 8), (1, 3, 12)])
def test_batches_are_filled_up_to_what_the_devices_need(uneven_batch, rows, parts, filled):
    few = jax.tree.map(lambda ids: ids[:rows], uneven_batch)
    spread = sharding.shard_batch(sharding.make_mesh(), few, parts)
    for ids, original in zip(jax.tree.leaves(spread), jax.tree.leaves(few)):
        assert ids.shape[0] == filled
        np.testing.assert_array_equal(ids[:rows], original)
        assert (np.asarray(ids[rows:]) == PAD).all()


def test_rows_that_are_filled_up_change_no_update(small_config, uneven_batch):
    config = with_dropout(small_config, 2)
    five = jax.tree.map(lambda ids: ids[:5], uneven_batch)
    (four, metrics), (one, metrics_of_one) = (
        updated(mesh, config, five, updates=1) for mesh in (sharding.make_mesh(), one_device())
    )
    assert_close(metrics, metrics_of_one, atol=1e-5)
    assert_close(four.opt_state, one.opt_state, atol=1e-7)


def test_each_device_holds_its_own_rows(uneven_batch):
    sharded = sharding.shard_batch(sharding.make_mesh(), uneven_batch)
    for number, shard in enumerate(sharded.source.addressable_shards):
        np.testing.assert_array_equal(shard.data, uneven_batch.source[2 * number : 2 * number + 2])


def test_update_gives_up_its_old_state_and_no_other(small_config, uneven_batch):
    mesh, config = sharding.make_mesh(), with_dropout(small_config, 2)
    original = first_state(config)
    params = sharding.shard(mesh, config, original.params)
    state = programs.new_state(mesh, config).replace(params=params)
    step = jit_update(mesh, config)
    new, _ = step(state, sharding.shard_batch(mesh, uneven_batch, 2), learning_rate(config, 1))
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(state.params))
    assert not any(leaf.is_deleted() for leaf in jax.tree.leaves((original, new)))


def test_a_local_copy_is_the_same_parameters_on_one_device(small_config):
    params = first_state(small_config()).params
    spread = jax.device_put(params, sharding.replicated(sharding.make_mesh()))
    local = sharding.local_copy(spread)
    assert_close(local, params, atol=0)
    assert all(len(leaf.devices()) == 1 for leaf in jax.tree.leaves(local))


def test_a_new_state_is_the_one_that_the_seed_gives(small_config):
    mesh, config = sharding.make_mesh(), small_config()
    state = programs.new_state(mesh, config)
    assert_close(state.params, first_state(config).params, atol=1e-6)
    assert all(len(leaf.devices()) == 4 for leaf in jax.tree.leaves(state))


def test_one_process_agrees_with_itself_at_once():
    stopping = [False]
    should_stop = sharding.in_any_process(lambda: stopping[0])
    assert not should_stop()
    stopping[0] = True
    assert should_stop()


@pytest.mark.parametrize(
    "platform, capability, recompute, accelerator",
    [
        ("cpu", None, False, ""),
        ("tpu", None, True, "tpu"),
        ("gpu", "9.0", False, "gpu"),
        ("gpu", "7.5", False, ""),
        ("gpu", "gfx942", False, ""),
    ],
)
def test_a_model_is_computed_as_its_device_likes_it(
    small_model, platform, capability, recompute, accelerator
):
    device = mock.Mock(spec=jax.Device, platform=platform)
    if capability is not None:
        device.compute_capability = capability
    model = sharding.for_device(small_model(), device)
    assert (model.recompute, model.accelerator) == (recompute, accelerator)
    assert sharding.for_device(small_model(recompute=True), device).recompute


# ---------------------------------------------------------------- a state that is split


def split_config(small_config, **settings):
    """With arrays that are worth splitting, and no rate at which Adam makes much of rounding: a
    gradient of nearly nothing would move a weight as far as any other."""
    model = {"d_model": 128, "d_ff": 512, "source_vocab_size": 512, "target_vocab_size": 512}
    config = small_config(model={"dropout": 0.3, **model}, shard_state=True, **settings)
    optimizer = OptimizerConfig(warmup_steps=10, scale=0.1, epsilon=1e-6, spike_threshold=5)
    return Config(config.model, config.data, optimizer, config.train)


def copied(config):
    return replace(config, train=replace(config.train, shard_state=False))


def program(config, batch):
    """An update on all devices, compiled."""
    mesh = sharding.make_mesh()
    shapes = jax.tree.map(lambda ids: jax.ShapeDtypeStruct(ids.shape, ids.dtype), batch)
    return jit_update(mesh, config).lower(state_shapes(config), shapes, np.float32(0)).compile()


def size_of(tree):
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def test_nearly_all_of_a_state_is_split_and_none_of_it_along_its_layers(small_config):
    mesh, config = sharding.make_mesh(), split_config(small_config, ema_decay=0.5)
    state = programs.new_state(mesh, config)
    arrays = jax.tree.leaves((state.params, state.opt_state, state.average))
    on_one = sum(leaf.addressable_data(0).nbytes for leaf in arrays)
    assert on_one < 1.05 * size_of(arrays) / mesh.size
    for leaf in jax.tree.leaves(state.params.encoder.layers):
        assert leaf.sharding.shard_shape(leaf.shape)[0] == len(leaf)
    assert_close(jax.device_get(state.params), first_state(config).params, atol=0)


def unscaled(opt_state):
    """Muon's moments, which are of scaled gradients, in the unit of all others."""

    def of_path(path, leaf):
        return leaf / GRADIENT_SCALE if "'muon'" in jax.tree_util.keystr(path) else leaf

    return jax.tree_util.tree_map_with_path(of_path, opt_state)


@pytest.mark.parametrize(
    "name, micro_batches",
    [
        ("adam", 2),
        pytest.param("adam", 1, marks=pytest.mark.slow),
        pytest.param("adamw", 2, marks=pytest.mark.slow),
        pytest.param("muon", 2, marks=pytest.mark.slow),
        pytest.param("schedule_free", 2, marks=pytest.mark.slow),
    ],
)
def test_updates_of_a_split_state_equal_those_of_a_copied_one(
    small_config, uneven_batch, name, micro_batches
):
    averaged = {} if name == "schedule_free" else {"ema_decay": 0.5}
    config = split_config(small_config, micro_batches=micro_batches, **averaged)
    decay = 0.3 if name == "adamw" else 0.0
    config = replace(config, optimizer=replace(config.optimizer, name=name, weight_decay=decay))
    mesh = sharding.make_mesh()
    ours, metrics = updated(mesh, config, uneven_batch, updates=3)
    theirs, metrics_there = updated(mesh, copied(config), uneven_batch, updates=3)
    assert_close(metrics, metrics_there, atol=1e-5)
    assert_close(*map(unscaled, (ours.opt_state, theirs.opt_state)), atol=1e-6)
    assert_close((ours.params, ours.average), (theirs.params, theirs.average), atol=1e-4)
    assert ours.norm_average == pytest.approx(theirs.norm_average, rel=1e-5)


@pytest.mark.slow
def test_a_split_state_takes_its_share_of_memory_and_each_weight_travels_twice(
    small_config, uneven_batch
):
    """Each split parameter is gathered once, and its gradient summed once, but for that of a table
    of embeddings: once for each of its three uses, or made of gathered states instead."""
    config = split_config(small_config)
    shapes = state_shapes(config)
    parameters = size_of(shapes.params)
    places = jax.tree.leaves(sharding.shardings(sharding.make_mesh(), config, shapes.params))
    split_ones = [
        leaf
        for leaf, place in zip(jax.tree.leaves(shapes.params), places)
        if not place.is_fully_replicated
    ]
    split, whole = (program(c, uneven_batch) for c in (config, copied(config)))
    share = split.memory_analysis().argument_size_in_bytes
    assert share < 1.1 * whole.memory_analysis().argument_size_in_bytes / jax.device_count()
    most = 1.01 * parameters + 2 * size_of(shapes.params.embedding)
    gathered, summed, others = traffic(split)
    assert gathered == size_of(split_ones) > 0.95 * parameters
    assert summed < most and not others
    gathered, summed, others = traffic(whole)
    assert parameters <= summed < most and not gathered and not others


def traffic(compiled):
    """Bytes of parameters gathered, bytes summed over devices, and what else travels."""
    gathered, summed, others = 0, 0, []
    for _, line, times in executed(parse(compiled.as_text())):
        kind, size = line.opcode.removesuffix("-start"), sum(shape.size for shape in line.shapes)
        if kind == "all-reduce":
            summed += times * size
        elif kind == "all-gather" and "sharding_constraint" in line.scope:
            gathered += times * size
        elif kind in ("all-to-all", "collective-permute", "reduce-scatter"):
            others.append(line)
    return gathered, summed, others


def test_a_whole_copy_of_what_is_split_and_no_copy_of_what_is_whole(small_config):
    mesh, config = sharding.make_mesh(), split_config(small_config)
    params = programs.new_state(mesh, config).params
    whole = sharding.gather(mesh, params)
    assert all(leaf.is_fully_replicated for leaf in jax.tree.leaves(whole))
    assert_close(sharding.local_copy(whole), first_state(config).params, atol=0)
    assert sharding.gather(mesh, whole) is whole
