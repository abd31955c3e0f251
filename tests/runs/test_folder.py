"""The run folder: made once, taken up again by the same config, and by no other."""

import dataclasses
import json

import numpy as np
import pytest

from transformer.config.files import from_json, to_json
from transformer.errors import UserError
from transformer.runs.folder import (
    Launch,
    check_folder,
    check_same_run,
    check_settings,
    create_run,
    held,
    kept_settings,
    load_run_config,
    read_launches,
    record_launch,
    still_there,
    take_up_run,
    with_former_defaults,
)
from transformer.training.optimizer import learning_rate


@pytest.fixture
def config(small_config):
    return small_config()


def test_a_new_run_holds_its_config(tmp_path, config):
    folder = tmp_path / "runs" / "new"
    check_folder(folder)
    create_run(folder, config)
    check_folder(folder)
    assert load_run_config(folder) == config


def test_a_run_whose_making_was_interrupted_is_made_again(tmp_path, config):
    create_run(tmp_path, config)
    (tmp_path / "config.json").rename(tmp_path / "config.json.tmp")
    check_folder(tmp_path)
    create_run(tmp_path, config)
    check_folder(tmp_path)


def test_a_folder_with_something_else_and_a_file_are_refused(tmp_path, config):
    (tmp_path / "thesis.tex").write_text("precious")
    for path in (tmp_path, tmp_path / "thesis.tex"):
        with pytest.raises(UserError, match="is not a run: choose another folder with --run"):
            check_folder(path)
    with pytest.raises(UserError, match="cannot write to .*choose another folder with --run"):
        create_run(tmp_path / "thesis.tex" / "run", config)


def changed(config, **settings):
    """A config with other settings, each named as in model__d_model."""
    for name, value in settings.items():
        section, _, field = name.partition("__")
        values = dataclasses.replace(getattr(config, section), **{field: value})
        config = dataclasses.replace(config, **{section: values})
    return config


def test_another_config_for_the_same_run_is_refused_with_what_differs(tmp_path, config):
    create_run(tmp_path, config)
    check_same_run(tmp_path, config)
    other = changed(config, model__d_model=32, data__lowercase=True, data__dataset="")
    with pytest.raises(
        UserError, match="model.d_model is 16 in the run, 32 in this command; data.dat"
    ) as refusal:
        check_same_run(tmp_path, other)
    flags = "--model.d-model 16 --data.dataset phrasebook/en_de --data.no-lowercase"
    assert f"resume it with {flags}, or choose another folder with --run" in str(refusal.value)
    assert load_run_config(tmp_path) == config


def test_a_run_from_before_a_default_changed_goes_on_as_it_began(tmp_path, config):
    """best_by was bleu by default, and is auto."""
    before = dataclasses.replace(config, train=dataclasses.replace(config.train, best_by="bleu"))
    (tmp_path / "checkpoints" / "5").mkdir(parents=True)
    (tmp_path / "tokenizer").mkdir()
    create_run(tmp_path, before)
    assert with_former_defaults(tmp_path, config) == before
    assert take_up_run(tmp_path, with_former_defaults(tmp_path, config), 5, set()) == ""
    saved = json.loads(to_json(before))
    del saved["train"]["best_by"]
    assert from_json(json.dumps(saved)) == before
    create_run(tmp_path, config)
    assert with_former_defaults(tmp_path, config) == config


MAY_CHANGE = {
    "decode__beam_size": 9, "data__manual_dir": "/elsewhere", "data__test_files": ("a", "b"),
    "data__validation_files": ("moved.en", "moved.de"), "train__keep_last": 9,
    "train__log_every": 7, "train__validate_every": 7, "train__patience": 3, "train__steps": 50,
    "train__best_by": "loss", "data__bleu_tokenizer": "char", "train__average_last": 2,
    "train__shard_state": True,
}  # fmt: skip


@pytest.mark.parametrize("name", MAY_CHANGE)
def test_what_changes_no_update_may_change_and_the_run_learns_it(tmp_path, config, name):
    create_run(tmp_path, changed(config, train__steps=40))
    other = changed(config, **{"train__steps": 40, name: MAY_CHANGE[name]})
    check_same_run(tmp_path, other)
    told = take_up_run(tmp_path, other, 40, set())
    assert told.startswith(name.replace("__", "."))
    assert load_run_config(tmp_path) == other
    assert kept_settings(other) == kept_settings(config)  # what earlier checkpoints have kept
    assert take_up_run(tmp_path, other, 40, set()) == ""


def test_a_checkpoint_may_have_kept_a_setting_by_its_former_name(tmp_path, config):
    config = changed(config, optimizer__spike_threshold=10.0)
    create_run(tmp_path / "run", config)
    kept = kept_settings(config)
    kept["optimizer.skip_spikes"] = kept.pop("optimizer.spike_threshold")
    check_settings(tmp_path / "run", 3, kept)
    with pytest.raises(UserError, match="set optimizer.spike_threshold back from 10.0 to 9.0"):
        check_settings(tmp_path / "run", 3, kept | {"optimizer.skip_spikes": 9.0})


def test_steps_are_not_fewer_than_are_done(tmp_path, config):
    create_run(tmp_path, changed(config, train__steps=40))
    assert take_up_run(tmp_path, changed(config, train__steps=30), 30, set())
    with pytest.raises(
        UserError, match=r"train.steps is 30 in the run, 29 in this command\), and 30 updates"
    ):
        take_up_run(tmp_path, changed(config, train__steps=29), 30, set())
    assert load_run_config(tmp_path).train.steps == 30
    create_run(tmp_path / "edited", changed(config, train__steps=20))  # config.json, by hand
    other = changed(config, train__steps=20, optimizer__cooldown_steps=5)
    with pytest.raises(UserError, match=r"cooldown_steps is 0 in the run.*30 updates are done"):
        take_up_run(tmp_path / "edited", other, 30, set())


@pytest.mark.parametrize(
    "steps, cooldown, done, allowed",
    [
        (60, 10, 31, True),
        (60, 10, 32, False),  # its rate was lowered already
        (40, 0, 31, True),
        (40, 5, 32, False),
        (36, 5, 31, True),
        (35, 5, 32, False),
        (35, 6, 31, False),  # its rate would have been lowered
    ],
)
def test_the_schedule_may_change_before_the_learning_rate_falls(
    tmp_path, config, steps, cooldown, done, allowed
):
    before = changed(config, train__steps=40, optimizer__cooldown_steps=10)
    now = changed(config, train__steps=steps, optimizer__cooldown_steps=cooldown)
    create_run(tmp_path, before)
    check_same_run(tmp_path, now)
    rates = [learning_rate(one, np.arange(1, done + 1)) for one in (before, now)]
    assert (rates[0] == rates[1]).all() == allowed
    if allowed:
        take_up_run(tmp_path, now, done, set())
        return
    for step in (20, 30, done):
        (tmp_path / "checkpoints" / str(step)).mkdir(parents=True)
    has = "has" if done == 32 else "would have"
    with pytest.raises(
        UserError, match=f"{has} been falling since update .*move the checkpoints after 30"
    ):
        take_up_run(tmp_path, now, done, set())
    assert load_run_config(tmp_path) == before


@pytest.mark.parametrize("name", ["train_files", "source_tokenizer", "target_tokenizer"])
def test_files_may_lie_elsewhere_where_they_hold_the_same(tmp_path, config, name):
    create_run(tmp_path, config)
    value = ("a.en", "a.de") if name == "train_files" else "moved.model"
    moved = changed(config, **{f"data__{name}": value})
    check_same_run(tmp_path, moved)
    with pytest.raises(UserError, match=f"data.{name} is .* and the files have other contents"):
        take_up_run(tmp_path, moved, 5, {"data.another"})
    assert load_run_config(tmp_path) == config
    take_up_run(tmp_path, moved, 5, {f"data.{name}"})
    assert load_run_config(tmp_path) == moved


def test_the_run_that_the_weights_came_from_may_have_moved(tmp_path, config):
    create_run(tmp_path / "run", changed(config, train__origin=str(tmp_path / "first")))
    check_same_run(tmp_path / "run", changed(config, train__origin=str(tmp_path / "moved")))
    create_run(tmp_path / "first", config)
    check_same_run(tmp_path / "run", changed(config, train__origin=f"{tmp_path}/run/../first"))
    with pytest.raises(UserError, match=f"resume it with --from {tmp_path / 'first'}, or choose"):
        check_same_run(tmp_path / "run", changed(config, train__origin=str(tmp_path / "moved")))


def test_one_train_command_at_a_time_works_in_a_run(tmp_path, config):
    with held(tmp_path / "run"):
        create_run(tmp_path / "run", config)
        with pytest.raises(UserError, match="another train.py is running"), held(tmp_path / "run"):
            pass
    with held(tmp_path / "run"):
        pass
    assert load_run_config(tmp_path / "run") == config


def test_a_folder_into_which_nothing_was_put_is_taken_away_again(tmp_path):
    with held(tmp_path / "new" / "run"):
        assert (tmp_path / "new" / "run").is_dir()
    assert not (tmp_path / "new" / "run").exists()


def test_what_is_not_ours_is_neither_taken_away_nor_hides_what_went_wrong(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    with pytest.raises(UserError, match="the corpus"), held(tmp_path / "link"):
        raise UserError("the corpus is empty")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "empty").is_dir()


def test_a_lock_that_is_a_link_loses_nothing_behind_it(tmp_path):
    (tmp_path / "thesis.tex").write_text("precious")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "lock").symlink_to(tmp_path / "thesis.tex")
    with held(tmp_path / "run"):
        pass
    assert (tmp_path / "thesis.tex").read_text() == "precious"


def test_no_folder_is_held_where_something_else_is(tmp_path):
    (tmp_path / "thesis.tex").write_text("precious")
    for path in (tmp_path, tmp_path / "thesis.tex", tmp_path / "thesis.tex" / "run"):
        with pytest.raises(UserError, match="--run"), held(path):
            pass
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_run_that_is_gone_is_told_of(tmp_path, config):
    create_run(tmp_path / "run", config)
    with pytest.raises(FileNotFoundError, match="x"), still_there(tmp_path / "run"):
        raise FileNotFoundError("x")  # the run is there
    gone = pytest.raises(UserError, match="run was moved or deleted during training")
    with gone, still_there(tmp_path / "run"):
        (tmp_path / "run" / "config.json").unlink()
        raise FileNotFoundError("x")
    with gone, still_there(tmp_path / "run"):
        pytest.fail("the run was gone before")


def test_launches_come_back_in_order_and_damaged_lines_are_skipped(tmp_path):
    assert read_launches(tmp_path) == []
    launches = [
        Launch(0, 0.0, "core", 2, "a processor", "nothing odd"),
        Launch(7, 3.5, "device", 4, "b"),
    ]
    record_launch(tmp_path, launches[0], "1.2.3")
    with (tmp_path / "starts.jsonl").open("a") as file:
        file.write('7\n[[\n{"step": 1}\n{"versions": {}}\n\xff\n{"step": 2, "secon\n')
        for wrong in ('"seconds": "a"', '"unit": ["core"]', '"count": null', '"count": 0'):
            good = '"step": 1, "seconds": 1, "unit": "core", "count": 2, "name": "a"'
            file.write(f'{{{good}, {wrong}, "versions": {{}}}}\n')
    record_launch(tmp_path, launches[1], "1.2.3")
    assert read_launches(tmp_path) == launches
    assert '"program": "1.2.3"' in (tmp_path / "starts.jsonl").read_text()
