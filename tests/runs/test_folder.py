"""The run folder: made once, taken up again by the same config, and by no other."""

import dataclasses
import json

import pytest

from transformer.config.files import from_json, to_json
from transformer.errors import UserError
from transformer.runs.folder import (
    as_begun,
    check_folder,
    check_settings,
    check_still_there,
    create_run,
    held,
    kept_settings,
    load_run_config,
    take_up_run,
)


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
    with pytest.raises(UserError, match="cannot write to .*choose --run"):
        create_run(tmp_path / "thesis.tex" / "run", config)


def test_another_config_for_the_same_run_is_refused_with_what_differs(tmp_path, config):
    create_run(tmp_path, config)
    take_up_run(tmp_path, config)
    other = dataclasses.replace(config, model=dataclasses.replace(config.model, d_model=32))
    with pytest.raises(UserError, match="model.d_model is 16 there, 32 here"):
        take_up_run(tmp_path, other)


def test_a_run_from_before_a_default_changed_goes_on_as_it_began(tmp_path, config):
    """best_by was bleu by default, and is auto."""
    before = dataclasses.replace(config, train=dataclasses.replace(config.train, best_by="bleu"))
    (tmp_path / "checkpoints" / "5").mkdir(parents=True)
    (tmp_path / "tokenizer").mkdir()
    create_run(tmp_path, before)
    assert as_begun(tmp_path, config) == before
    take_up_run(tmp_path, as_begun(tmp_path, config))
    check_settings(tmp_path, 5, kept_settings(before) | {"train.seed": before.train.seed})
    assert "train.best_by" not in kept_settings(before)  # as such a checkpoint kept it
    saved = json.loads(to_json(before))
    del saved["train"]["best_by"]
    assert from_json(json.dumps(saved)) == before
    create_run(tmp_path, config)
    assert as_begun(tmp_path, config) == config
    with pytest.raises(UserError, match=r"train\.best_by was 'bleu' and is 'auto'"):
        check_settings(tmp_path, 5, kept_settings(before) | {"train.steps": config.train.steps})


def test_decoding_and_where_files_lie_may_change_and_the_run_learns_it(tmp_path, config):
    create_run(tmp_path, config)
    changed = dataclasses.replace(
        config,
        decode=dataclasses.replace(config.decode, beam_size=9),
        data=dataclasses.replace(config.data, manual_dir="/elsewhere"),
    )
    take_up_run(tmp_path, changed)
    assert load_run_config(tmp_path).decode.beam_size == 9


def test_one_train_command_at_a_time_works_in_a_run(tmp_path, config):
    with held(tmp_path / "run"):
        create_run(tmp_path / "run", config)
        with pytest.raises(UserError, match="another train.py is at work"), held(tmp_path / "run"):
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
    check_still_there(tmp_path / "run")
    (tmp_path / "run" / "config.json").unlink()
    with pytest.raises(UserError, match="run has been deleted while train.py was at work"):
        check_still_there(tmp_path / "run")
