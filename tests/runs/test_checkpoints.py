"""Checkpoints: what is saved is restored, kept, chosen, averaged, and survives damage."""

import dataclasses
import os
import random
import shutil
import tempfile
import warnings
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import transformer.runs.checkpoints as checkpoints_module
from transformer.config import OptimizerConfig
from transformer.errors import UserError
from transformer.runs.checkpoints import (
    Checkpoints,
    Progress,
    average,
    load_params,
    restore,
    save_params,
)
from transformer.runs.folder import create_run, kept_settings
from transformer.training import sharding
from transformer.training.step import init_state

FLIPS = int(os.environ.get("FLIPS", "12"))
"""How many bits are flipped, one at a time."""


@pytest.fixture(autouse=True)
def a_short_moment(monkeypatch):
    """Nobody saves here meanwhile."""
    monkeypatch.setattr("transformer.runs.checkpoint_files.A_MOMENT", 0.01)


@pytest.fixture(scope="module")
def config(small_config):
    return small_config(model={"encoder_layers": 1, "decoder_layers": 1, "d_ff": 8}, average_last=2)


@pytest.fixture(scope="module")
def state(config, random_batch, compiled_update):
    """A state after one update, so that Adam has something to remember."""
    first = jax.jit(partial(init_state, config))(jax.random.key(config.train.seed))
    return compiled_update(config)(first, random_batch())[0]


def at(state, step):
    """The state as if it were at `step`, with parameters that tell the step."""
    params = jax.tree.map(lambda leaf: leaf + step, state.params)
    return state.replace(step=jnp.int32(step), params=params)


def scores_of(bleu):
    """Those of a validation; None for none. A loss that falls as BLEU rises would say the same."""
    return {} if bleu is None else {"bleu": bleu, "loss": 1 + bleu}


def save(folder, config, *saves):
    """Saves states, each with a validation BLEU or None."""
    checkpoints = Checkpoints(folder, config)
    try:
        for state, bleu in saves:
            step = int(state.step)
            checkpoints.save(
                state, Progress(epoch=1, batch=step, seconds=2.5, scores=scores_of(bleu))
            )
    finally:
        checkpoints.close()


def assert_same(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


def plain(state):
    """The state with its random key as numbers."""
    return state.replace(key=jax.random.key_data(state.key))


def steps_in(folder):
    return sorted(int(path.name) for path in (folder / "checkpoints").iterdir())


@pytest.fixture(scope="module")
def saved_once(tmp_path_factory, config, state):
    folder = tmp_path_factory.mktemp("saved")
    save(folder, config, (at(state, 3), 5.0), (at(state, 6), 6.0))
    return folder


@pytest.fixture
def two_saved(saved_once, tmp_path):
    """The test's own folder with the checkpoints of steps 3 and 6, saved once for all tests."""
    shutil.copytree(saved_once, tmp_path, dirs_exist_ok=True)


# ---------------------------------------------------------------- saving and restoring


def test_what_was_saved_on_one_device_is_restored_on_four(tmp_path, config, state):
    save(tmp_path, config, (at(state, 7), 12.5))
    restored, progress = restore(tmp_path, config)
    restored = sharding.shard(sharding.make_mesh(), config, restored)
    assert_same(plain(restored), plain(at(state, 7)))
    assert jax.random.uniform(restored.key) == jax.random.uniform(state.key)
    saved = Progress(epoch=1, batch=7, seconds=2.5, scores=scores_of(12.5))
    assert progress == dataclasses.replace(saved, settings=kept_settings(config))
    assert all(len(leaf.devices()) == 4 for leaf in jax.tree.leaves(restored))


@pytest.mark.parametrize(
    "name",
    [
        "adam",
        *(pytest.param(one, marks=pytest.mark.slow) for one in ("adamw", "muon", "schedule_free")),
    ],
)
def test_training_goes_on_from_a_restored_state_as_if_nothing_had_happened(
    tmp_path, config, random_batch, compiled_update, name
):
    config = dataclasses.replace(config, optimizer=OptimizerConfig(name=name, clip_norm=1.0))
    step = compiled_update(config)
    first = jax.jit(partial(init_state, config))(jax.random.key(config.train.seed))
    state, _ = step(first, random_batch())
    save(tmp_path, config, (state, None))
    restored, _ = restore(tmp_path, config)
    alone = jax.device_put(restored, jax.devices()[0])
    assert_same(plain(step(alone, random_batch())[0]), plain(step(state, random_batch())[0]))


@pytest.mark.parametrize("keep_last, keep_best, kept", [(2, 1, [2, 5, 6]), (1, 2, [2, 3, 6])])
def test_the_newest_and_the_best_are_kept(tmp_path, config, state, keep_last, keep_best, kept):
    train = dataclasses.replace(config.train, keep_last=keep_last, keep_best=keep_best)
    config = dataclasses.replace(config, train=train)
    scores = {1: 10.0, 2: 30.0, 3: 20.0, 4: 5.0, 5: 15.0, 6: 16.0}
    save(tmp_path, config, *((at(state, step), bleu) for step, bleu in scores.items()))
    assert steps_in(tmp_path) == kept


def test_a_checkpoint_without_a_validation_is_kept_while_it_is_the_newest(tmp_path, config, state):
    # It is there to go on from, and takes no place from those that were validated.
    train = dataclasses.replace(config.train, keep_last=2, keep_best=1)
    config = dataclasses.replace(config, train=train)
    save(tmp_path, config, (at(state, 1), 3.0), (at(state, 2), 2.0), (at(state, 3), None))
    assert steps_in(tmp_path) == [1, 2, 3]
    save(tmp_path, config, (at(state, 4), 1.0))
    assert steps_in(tmp_path) == [1, 2, 4]


@pytest.mark.parametrize("part", ["params", "opt_state"])
def test_a_state_with_something_that_is_not_a_number_is_not_saved(tmp_path, config, state, part):
    leaves, tree = jax.tree.flatten(getattr(state, part))
    spoilt = [*leaves[:-1], leaves[-1].at[(0,) * leaves[-1].ndim].set(jnp.nan)]
    bad = state.replace(step=5, **{part: jax.tree.unflatten(tree, spoilt)})
    with pytest.raises(UserError, match="after update 5 .*from the last checkpoint"):
        save(tmp_path, config, (at(state, 3), 1.0), (bad, 1.0))
    assert steps_in(tmp_path) == [3]


def test_the_usual_norm_of_gradients_goes_along(tmp_path, config, state):
    config = dataclasses.replace(config, optimizer=OptimizerConfig(spike_threshold=10))
    save(tmp_path, config, (at(state, 3).replace(norm_average=jnp.float32(1.25)), None))
    restored, _ = restore(tmp_path, config)
    assert restored.norm_average == 1.25


def test_saving_behind_a_later_checkpoint_is_an_error(tmp_path, config, state):
    save(tmp_path, config, (at(state, 9), None))
    with pytest.raises(UserError, match="after update 3"):
        save(tmp_path, config, (at(state, 3), None))


# ---------------------------------------------------------------- damage


def truncate(checkpoint):
    """Half of every file of the parameters, as after a full disk."""
    for path in (checkpoint / "params").rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(checkpoint):
    shutil.rmtree(checkpoint)
    checkpoint.mkdir()


def lose_the_optimizer(checkpoint):
    shutil.rmtree(checkpoint / "optimizer")


@pytest.mark.parametrize("damage", [truncate, empty, lose_the_optimizer])
@pytest.mark.usefixtures("two_saved")
def test_a_damaged_checkpoint_is_moved_aside_and_the_one_before_it_used(
    tmp_path, config, state, damage, capsys
):
    damage(tmp_path / "checkpoints" / "6")
    restored, progress = restore(tmp_path, config)
    assert_same(restored.params, at(state, 3).params)
    assert progress.batch == 3
    assert "checkpoint 6 is damaged" in capsys.readouterr().out
    assert steps_in(tmp_path) == [3]
    save(tmp_path, config, (at(state, 4), None))
    assert steps_in(tmp_path) == [3, 4]


@pytest.mark.usefixtures("two_saved")
def test_when_every_checkpoint_is_damaged_none_is_touched(tmp_path, config):
    for step in ("3", "6"):
        truncate(tmp_path / "checkpoints" / step)
    with pytest.raises(UserError, match="no checkpoint of .* can be read"):
        restore(tmp_path, config)
    assert steps_in(tmp_path) == [3, 6]


@pytest.mark.usefixtures("two_saved")
def test_reading_a_damaged_checkpoint_is_a_sentence(tmp_path, config):
    truncate(tmp_path / "checkpoints" / "6")
    with pytest.raises(UserError, match="checkpoint 6 is damaged .*another checkpoint") as refusal:
        load_params(tmp_path, config, "6")
    assert "\n" not in str(refusal.value)
    assert load_params(tmp_path, config, "3")[1] == "3: step 3"


@pytest.mark.parametrize("checkpoint, label", [("best", "step 3"), ("last", "step 3"),
                                               ("average", "average of steps [1, 3]")])  # fmt: skip
def test_a_damaged_checkpoint_is_left_out_and_named(tmp_path, config, state, checkpoint, label):
    save(tmp_path, config, (at(state, 1), 1.0), (at(state, 3), 5.0), (at(state, 6), 6.0))
    truncate(tmp_path / "checkpoints" / "6")
    with pytest.warns(UserWarning, match="checkpoint 6 is damaged .*: it is not used"):
        params, found = load_params(tmp_path, config, checkpoint)
    assert found == f"{checkpoint}: {label}"
    if checkpoint != "average":
        assert_same(params, at(state, 3).params)


@pytest.mark.usefixtures("two_saved")
def test_when_all_are_damaged_each_is_named(tmp_path, config):
    for step in ("3", "6"):
        truncate(tmp_path / "checkpoints" / step)
    for checkpoint in ("best", "last", "average"):
        with pytest.raises(UserError, match="checkpoint 6 is damaged") as refusal:
            load_params(tmp_path, config, checkpoint)
        assert "checkpoint 3 is damaged" in str(refusal.value)


@pytest.mark.parametrize("seed", range(FLIPS))
@pytest.mark.usefixtures("two_saved")
def test_one_bit_flipped_anywhere_is_seen_or_changes_no_number(tmp_path, config, state, seed):
    chosen = random.Random(seed)
    files = [path for path in (tmp_path / "checkpoints" / "6").rglob("*") if path.is_file()]
    values = [path for path in files if path.parent.name == "d"]  # most bytes, and the worst
    path = chosen.choice(values if seed % 2 else files)
    content = bytearray(path.read_bytes())
    content[chosen.randrange(len(content))] ^= 1 << chosen.randrange(8)
    path.write_bytes(content)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            params, label = load_params(tmp_path, config, "last")
        except UserError as error:  # a description, which the sentence says to delete
            message = str(error)
            assert path.name in message
            return
    step = int(label.split()[-1])
    assert_same(params, at(state, step).params)
    restored, progress = restore(tmp_path, config)
    assert_same(plain(restored), plain(at(state, int(restored.step))))
    assert progress.batch == int(restored.step)


@pytest.mark.parametrize("item", ["params", "optimizer", "progress"])
@pytest.mark.usefixtures("two_saved")
def test_what_is_mixed_from_two_checkpoints_is_damaged(tmp_path, config, state, item):
    folder = tmp_path / "checkpoints"
    shutil.rmtree(folder / "6" / item)
    shutil.copytree(folder / "3" / item, folder / "6" / item)
    assert int(restore(tmp_path, config)[0].step) == 3


def test_a_config_that_has_changed_since_is_named_with_what_it_was(tmp_path, config, state):
    create_run(tmp_path, config)
    save(tmp_path, config, (at(state, 3), 5.0))
    path = tmp_path / "config.json"
    text = path.read_text()
    for before, after in (
        (f'"dropout": {config.model.dropout}', '"dropout": 0.25'),
        ('"manual_dir": ""', '"manual_dir": "elsewhere"'),
        ('"alpha": 0.6', '"alpha": 1.0'),
    ):
        assert text.count(before) == 1
        path.write_text(text.replace(before, after))
        for load in (restore, partial(load_params, checkpoint="last")):
            if "dropout" in before:
                refusal = r"checkpoint 3 .*: set model.dropout back from 0.25 to 0.\d+"
                with pytest.raises(UserError, match=refusal):
                    load(tmp_path, config)
            else:
                load(tmp_path, config)


@pytest.mark.usefixtures("two_saved")
def test_a_checkpoint_under_another_name_is_damaged(tmp_path, config):
    folder = tmp_path / "checkpoints"
    shutil.rmtree(folder / "6")
    (folder / "3").rename(folder / "6")
    with pytest.raises(UserError, match="checkpoint 6 is damaged .*has changed since it was saved"):
        restore(tmp_path, config)


@pytest.mark.usefixtures("two_saved")
def test_a_checkpoint_whose_digests_are_gone_is_damaged(tmp_path, config):
    shutil.rmtree(tmp_path / "checkpoints" / "6" / "digests")
    assert int(restore(tmp_path, config)[0].step) == 3


def test_checkpoints_without_digests_are_read_and_told_of(tmp_path, config, state):
    save(tmp_path, config, (at(state, 3), 5.0))
    shutil.rmtree(tmp_path / "checkpoints" / "3" / "digests")
    for load in (partial(load_params, checkpoint="last"), restore):
        with pytest.warns(
            UserWarning, match=f"{tmp_path} are of an early version and have no digests"
        ):
            load(tmp_path, config=config)
    assert_same(plain(restore(tmp_path, config)[0]), plain(at(state, 3)))


DAMAGES = [
    *[("metrics/metrics", content) for content in (b"", b"\x80", b"{", b"3", b"null", b"[1]")],
    *[("_CHECKPOINT_METADATA", content) for content in (b"", b"\x80", b"{", b"3", b"null", b"[1]")],
    *[
        ("metrics/metrics", b'{"bleu": %s}' % bleu)
        for bleu in (b'"12"', b"NaN", b"true", b"9" * 500)
    ],
    ("metrics/metrics", b"[" * 100_000),
]


@pytest.mark.parametrize("name, content", DAMAGES, ids=range(len(DAMAGES)))
@pytest.mark.parametrize("load", [partial(load_params, checkpoint="last"), restore])
@pytest.mark.usefixtures("two_saved")
def test_a_damaged_description_is_named_and_can_be_deleted(tmp_path, config, load, name, content):
    path = tmp_path / "checkpoints" / "3" / name
    path.write_bytes(content)
    with pytest.raises(UserError, match=f"{path} is damaged .*: delete this file"):
        load(tmp_path, config=config)
    path.unlink()
    load(tmp_path, config=config)


@pytest.mark.parametrize(
    "content",
    [b'{"foo": 1}', b"[1]", b'{"epoch": "a"}', b'{"epoch": -1}', b'{"seconds": "long"}', b"\x80"],
)
@pytest.mark.usefixtures("two_saved")
def test_damaged_progress_is_a_damaged_checkpoint(tmp_path, config, content):
    (tmp_path / "checkpoints" / "6" / "progress" / "metadata").write_bytes(content)
    assert int(restore(tmp_path, config)[0].step) == 3
    assert steps_in(tmp_path) == [3]


@pytest.mark.usefixtures("two_saved")
def test_a_checkpoint_deleted_while_it_is_chosen_is_not_called_damaged(
    tmp_path, config, monkeypatch
):
    choose = checkpoints_module._choose_steps

    def choose_and_lose(*arguments):
        steps = choose(*arguments)
        if 6 in steps:
            shutil.rmtree(tmp_path / "checkpoints" / "6")
        return steps

    monkeypatch.setattr(checkpoints_module, "_choose_steps", choose_and_lose)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load_params(tmp_path, config, "last")[1] == "last: step 3"


def test_a_file_in_place_of_the_checkpoints_is_named(tmp_path, config):
    (tmp_path / "checkpoints").write_text("")
    for load in (partial(load_params, checkpoint="last"), restore):
        with pytest.raises(UserError, match="checkpoints is not a folder"):
            load(tmp_path, config=config)


@pytest.mark.usefixtures("two_saved")
def test_a_description_that_only_orbax_finds_damaged_gets_a_sentence(tmp_path, config):
    path = tmp_path / "checkpoints" / "3" / "_CHECKPOINT_METADATA"
    path.write_text('{"init_timestamp_nsecs": "yesterday"}')
    with pytest.raises(UserError, match="a checkpoint in .* is damaged .*: move checkpoints away"):
        load_params(tmp_path, config, "last")


@pytest.fixture(scope="module")
def whole(tmp_path_factory, config, state):
    """A folder with one checkpoint, and its files."""
    folder = tmp_path_factory.mktemp("whole")
    save(folder, config, (at(state, 3), 5.0))
    return folder, sorted(p.relative_to(folder) for p in folder.rglob("*") if p.is_file())


@settings(max_examples=15, deadline=None)
@given(number=st.integers(0), content=st.binary(max_size=200))
def test_random_bytes_in_any_of_its_files_give_parameters_or_a_sentence(
    whole, config, number, content
):
    folder, files = whole
    with tempfile.TemporaryDirectory() as copy:
        shutil.copytree(folder, copy, dirs_exist_ok=True)
        (Path(copy) / files[number % len(files)]).write_bytes(content)
        for load in (partial(load_params, checkpoint="last"), restore):
            try:
                load(Path(copy), config=config)
            except UserError as error:
                message = str(error)
                assert "\n" not in message


# ---------------------------------------------------------------- choosing and averaging


def test_best_last_average_and_a_step_are_found(tmp_path, config, state):
    save(tmp_path, config, (at(state, 2), 30.0), (at(state, 4), 20.0), (at(state, 7), 10.0))

    def loaded(checkpoint):
        params, label = load_params(tmp_path, config, checkpoint)
        return params, label

    for checkpoint, step in (("best", 2), ("last", 7), ("4", 4)):
        params, label = loaded(checkpoint)
        assert_same(params, at(state, step).params)
        assert label == f"{checkpoint}: step {step}"
    params, label = loaded("average")  # of the last two
    jax.tree.map(
        partial(np.testing.assert_allclose, rtol=1e-5),
        *(params, jax.tree.map(lambda leaf: leaf + 5.5, state.params)),
    )
    assert "[4, 7]" in label


def test_the_best_few_are_averaged(tmp_path, config, state):
    train = dataclasses.replace(config.train, keep_best=2)
    config = dataclasses.replace(config, train=train)
    scored = [(at(state, step), bleu) for step, bleu in ((2, 30.0), (4, 20.0), (7, 25.0))]
    save(tmp_path, config, *scored)
    params, label = load_params(tmp_path, config, "average-best")
    assert label == "average-best: average of steps [2, 7]"
    expected = average([at(state, 2).params, at(state, 7).params])
    assert_same(params, expected)


@pytest.mark.parametrize(
    "scores, kept, best", [((), [2, 4, 5], 2), ((1.0, 3.0, 2.0), [6, 7], 6), ((1.0,), [4, 5], 5)]
)
def test_scores_of_another_validation_set_are_not_compared(
    tmp_path, config, state, scores, kept, best
):
    train = dataclasses.replace(config.train, keep_last=2, keep_best=1, average_last=1)
    config = dataclasses.replace(config, train=train)
    save(tmp_path, config, (at(state, 2), 30.0), (at(state, 4), 20.0))
    checkpoints = Checkpoints(tmp_path, config, since=4)
    for step, bleu in enumerate(scores or [None], start=5):
        progress = Progress(batch=step, scores=scores_of(bleu), since=4)
        checkpoints.save(at(state, step), progress)
    checkpoints.close()
    assert steps_in(tmp_path) == kept
    assert load_params(tmp_path, config, "best")[1] == f"best: step {best}"


def test_without_a_score_the_best_is_the_last(tmp_path, config, state):
    save(tmp_path, config, (at(state, 4), None))
    assert load_params(tmp_path, config, "best")[1] == "best: step 4"


def test_an_unvalidated_checkpoint_is_the_last_but_not_in_the_average(tmp_path, config, state):
    saves = (at(state, 2), 3.0), (at(state, 4), 5.0), (at(state, 6), 4.0), (at(state, 7), None)
    save(tmp_path, config, *saves)
    assert load_params(tmp_path, config, "last")[1] == "last: step 7"
    assert load_params(tmp_path, config, "average")[1] == "average: average of steps [4, 6]"
    train = dataclasses.replace(config.train, best_by="chrf")  # of which nothing has a score yet
    other = dataclasses.replace(config, train=train)
    assert load_params(tmp_path, other, "average")[1] == "average: average of steps [4, 6]"
    with pytest.warns(UserWarning, match=r"no checkpoint has a score by chrf .* the last one"):
        assert load_params(tmp_path, other, "best")[1] == "best: step 7"


def test_a_run_with_weights_alone_is_not_called_damaged(tmp_path, config, state):
    save_params(tmp_path, config, state.params)
    with pytest.raises(UserError, match="has weights alone, .* a new run with --from"):
        restore(tmp_path, config)


def test_the_average_is_the_mean(state):
    first = state.params
    trees = [first, jax.tree.map(lambda leaf: 2 * leaf, first), jax.tree.map(jnp.sin, first)]
    expected = jax.tree.map(lambda leaf: leaf + (np.sin(leaf) / 3), first)
    jax.tree.map(partial(np.testing.assert_allclose, atol=1e-6), average(iter(trees)), expected)
    assert_same(average([first]), first)


@pytest.mark.parametrize("checkpoint", ["5", "newest", "-1", "²", ""])
def test_a_checkpoint_that_is_not_there_is_a_sentence_with_those_that_are(
    tmp_path, config, state, checkpoint
):
    save(tmp_path, config, (at(state, 2), 1.0), (at(state, 4), 2.0))
    with pytest.raises(UserError, match="last, average, average-best or a step of 2, 4"):
        load_params(tmp_path, config, checkpoint)


def test_a_run_without_a_checkpoint_is_a_sentence(tmp_path, config):
    with pytest.raises(UserError, match="has no checkpoint yet"):
        load_params(tmp_path, config, "best")
    (tmp_path / "checkpoints").mkdir()
    with pytest.raises(UserError, match="has no checkpoint yet"):
        load_params(tmp_path, config, "best")
