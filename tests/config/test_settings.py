"""Settings: saved and loaded, compared, and refused when they cannot be meant."""

import dataclasses
import json

import pytest

from transformer.config import (
    Config,
    DataConfig,
    DecodeConfig,
    ModelConfig,
    OptimizerConfig,
    TrainConfig,
    rules,
)
from transformer.config.files import from_json, load_config, to_json
from transformer.config.resuming import setting_flag
from transformer.config.rules import check
from transformer.config.settings import FORMER_NAMES, annotations, differing_fields, is_derived
from transformer.errors import UserError
from transformer.model.batch import EOS


def changed(section, **settings):
    config = Config()
    return dataclasses.replace(
        config, **{section: dataclasses.replace(getattr(config, section), **settings)}
    )


def test_a_saved_config_is_the_same_config_when_loaded():
    config = Config(
        model=ModelConfig(d_model=64, norm="pre", dropout=0.25),
        data=DataConfig(dataset="", train_files=("a.en", "a.de"), validation_files=("b.tsv",)),
        optimizer=OptimizerConfig(epsilon=1e-8),
        train=TrainConfig(seed=7),
        decode=DecodeConfig(alpha=1.5),
    )
    assert from_json(to_json(config)) == config
    assert hash(from_json(to_json(config))) == hash(config)


def test_a_setting_that_is_missing_from_a_saved_config_has_its_default():
    assert from_json('{"model": {"d_model": 64}}') == changed("model", d_model=64)


def test_an_unknown_setting_in_a_saved_config_is_named():
    saved = json.loads(to_json(Config()))
    saved["train"]["stepz"] = 3
    with pytest.raises(UserError, match="train.stepz"):
        from_json(json.dumps(saved))


def test_an_unknown_section_in_a_saved_config_is_named():
    with pytest.raises(UserError, match="unknown section modle"):
        from_json('{"modle": {"d_model": 64}}')


def config_file(path, text):
    path.write_text(f"from transformer.config import *\nconfig = Config({text})\n")
    return path


def test_former_names_of_settings_are_understood_in_config_files_and_saved_configs(tmp_path):
    current = changed("optimizer", spike_threshold=10.0)
    saved = to_json(current).replace("spike_threshold", "skip_spikes")
    assert "skip_spikes" in saved and from_json(saved) == current
    path = config_file(tmp_path / "old.py", "optimizer=OptimizerConfig(skip_spikes=10.0)")
    assert load_config(path) == current
    assert dataclasses.replace(current.optimizer, skip_spikes=0.0) == OptimizerConfig()
    with pytest.raises(TypeError, match="skip_spike'"):
        OptimizerConfig(skip_spike=1)
    fields = {name.rpartition(".")[2] for name in annotations()}
    assert {*FORMER_NAMES.values()} <= fields and not {*FORMER_NAMES} & fields


def test_derived_fields_have_no_flag_and_a_config_file_sets_vocabulary_sizes_alone(tmp_path):
    derived = [name for name, hint in annotations().items() if is_derived(hint)]
    assert derived == [
        "model.source_vocab_size", "model.target_vocab_size", "model.classes", "model.accelerator",
        "data.vocabulary", "train.origin",
        "decode.length_ratio", "decode.longest_target", "decode.copy_without_letters",
        "decode.restore_case",
    ]  # fmt: skip
    assert not any(setting_flag(name, 1) for name in derived)
    sizes = "source_vocab_size=9, target_vocab_size=9"
    preset = load_config(config_file(tmp_path / "preset.py", f"model=ModelConfig({sizes})"))
    assert preset.model.source_vocab_size == 9
    for text, name in (
        ("data=DataConfig(vocabulary='a')", "data.vocabulary"),
        ("decode=DecodeConfig(length_ratio=2.0)", "decode.length_ratio"),
    ):
        with pytest.raises(
            UserError, match=f"sets {name}, which train.py determines itself: remove it"
        ):
            load_config(config_file(tmp_path / "derived.py", text))


def test_settings_cannot_be_changed_in_place():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Config().model.d_model = 3


def test_differing_fields_are_named_with_both_values():
    assert differing_fields(Config(), Config()) == {}
    other = changed("train", steps=5, seed=1)
    assert differing_fields(Config(), other) == {"train.steps": (100_000, 5), "train.seed": (0, 1)}


def test_vocabulary_sizes_are_filled_in():
    model = Config().with_vocabularies(10, 20).model
    assert (model.source_vocab_size, model.target_vocab_size) == (10, 20)
    assert dataclasses.replace(model, source_vocab_size=0, target_vocab_size=0) == ModelConfig()


def test_the_defaults_are_the_papers_base_model_and_are_valid():
    check(Config())
    model, optimizer, decode = ModelConfig(), OptimizerConfig(), DecodeConfig()
    assert (model.encoder_layers, model.decoder_layers, model.d_model, model.d_ff) == (
        *(6, 6, 512, 2048),
    )
    assert (model.num_heads, model.dropout, model.norm, model.tying) == (8, 0.1, "post", "all")
    assert (optimizer.beta_1, optimizer.beta_2, optimizer.epsilon) == (0.9, 0.98, 1e-9)
    assert (optimizer.warmup_steps, TrainConfig().label_smoothing) == (4000, 0.1)
    assert (decode.beam_size, decode.alpha, decode.max_extra_length) == (4, 0.6, 50)


FILES = {"dataset": "", "train_files": ("a", "b"), "validation_files": ("c", "d")}

REFUSED = [
    ("model", {"encoder_layers": 0, "decoder_layers": 0}, "must not both be 0"),
    ("model", {"encoder_layers": 0}, r"data.source \('en'\) must be empty .*encoder_layers 0"),
    ("data", {"source": ""}, r"data.source \(''\) must be a language with model.encoder_layers 6"),
    ("data", {"target": ""}, r"data.target \(''\) must be a language with model.decoder_layers 6"),
    ("data", {"windows": True}, "data.windows needs an encoder or a decoder alone"),
    ("data", {"label_column": 2}, "data.label_column .* source side alone"),
    ("model", {"classes": 3}, r"data.label_column \(0\) must be the number of the column"),
    ("model", {"d_model": 512, "num_heads": 7}, r"model.d_model \(512\) .*model.num_heads \(7\)"),
    ("model", {"d_model": 15, "num_heads": 3}, r"model.d_model \(15\) must be even"),
    ("model", {"positions": "learned", "max_positions": 100}, r"model.max_positions \(100\)"),
    ("model", {"dropout": 1.0}, r"model.dropout \(1.0\) must be below 1"),
    ("model", {"dropout": -0.1}, r"model.dropout \(-0.1\) must be at least 0"),
    ("model", {"norm": "both"}, r"model.norm \('both'\) must be one of: post, pre"),
    ("model", {"norm_epsilon": 0.0}, r"model.norm_epsilon \(0.0\) must be above 0"),
    ("model", {"num_heads": 0}, r"model.num_heads \(0\) must be at least 1"),
    ("model", {"d_model": 64.0}, r"model.d_model \(64.0\) must be of type int"),
    ("model", {"d_model": True}, r"model.d_model \(True\) must be of type int"),
    ("model", {"attention_bias": 1}, r"model.attention_bias \(1\) must be of type bool"),
    ("data", {"shared_vocabulary": False}, r"model.tying \(all\) needs data.shared_vocabulary"),
    (
        "data",
        {"source_vocab_size": 9},
        r"data.source_vocab_size \(9\) has no effect with a shared vocabulary",
    ),
    ("data", {"character_coverage": 0.5}, r"data.character_coverage \(0.5\) must be 0 or at least"),
    (
        "data",
        {"user_symbols": ("<a>", "<a>")},
        r"data.user_symbols \('<a>', '<a>'\) must not have duplicates",
    ),
    ("data", {"user_symbols": ("a b",)}, "data.user_symbols .* spaces"),
    ("data", {"user_symbols": ("</s>",)}, "data.user_symbols .* names of special tokens"),
    ("data", {"dataset": ""}, r"data.dataset \(''\) must name a dataset"),
    ("data", {"train_files": ("a",)}, "data.dataset .* or be empty if data.train_files"),
    ("data", FILES | {"validation_files": ()}, "data.validation_files must be set"),
    ("data", {"batch_tokens": 100}, r"data.batch_tokens \(100\) .*data.max_length \(256\)"),
    ("optimizer", {"cooldown_steps": 200_000}, r"optimizer.cooldown_steps \(200000\) must not"),
    ("optimizer", {"clip_norm": -1.0}, r"optimizer.clip_norm \(-1.0\) must be at least 0"),
    ("train", {"average_last": 9}, r"train.average_last \(9\) must not exceed train.keep_last"),
    ("train", {"steps": "many"}, r"train.steps \('many'\) must be of type int"),
    ("decode", {"beam_size": 0}, r"decode.beam_size \(0\) must be at least 1"),
    ("decode", {"beam_size": 2**31 - 1}, r"decode.beam_size \(2147483647\) must be below 1001"),
    ("decode", {"max_extra_length": 2**31 - 1}, r"\(2147483647\) must be below 100001"),
    ("data", FILES | {"train_files": ("a", 5)}, r"data.train_files \(\('a', 5\)\) .* type str"),
    ("data", FILES | {"train_files": "ab"}, r"data.train_files \('ab'\) must be of type tuple"),
    ("data", {"tsv_columns": (1,)}, r"data.tsv_columns \(\(1,\)\) must have 2 values"),
    ("decode", {"stop": "never"}, r"decode.stop \('never'\) must be one of: bound, full"),
]


@pytest.mark.parametrize("section, settings, message", REFUSED, ids=lambda value: str(value)[:40])
def test_what_cannot_be_meant_is_refused_in_one_sentence(section, settings, message):
    with pytest.raises(UserError, match=message) as refusal:
        check(changed(section, **settings))
    assert "\n" not in str(refusal.value)


ONE_STACK = [
    ({"model": {"tying": "target"}}, r"model.tying \(target\) needs an encoder and a decoder"),
    (
        {"data": {"shared_vocabulary": False}, "model": {"tying": "none"}},
        "must be on for an encoder or a decoder alone",
    ),
    ({"data": {"label_column": 2, "windows": True}}, "data.label_column .* data.windows off"),
    (
        {"data": {"label_column": 2, "dataset": "x", "train_files": ()}},
        "needs tables as data.train_files",
    ),
    ({"data": {"swap_files": True}}, "data.swap_files needs pairs"),
    ({"train": {"best_by": "bleu"}}, r"train.best_by \(bleu\) needs a translator"),
]


def one_stack(settings=()):
    """A masked model of plain files, with some settings changed."""
    begun = {"model": {"decoder_layers": 0}, "data": FILES | {"target": ""}}
    begun |= {"train": {"best_by": "loss"}}
    for section, values in dict(settings).items():
        begun[section] = begun[section] | values
    config = Config()
    for section, values in begun.items():
        new = dataclasses.replace(getattr(config, section), **values)
        config = dataclasses.replace(config, **{section: new})
    return config


@pytest.mark.parametrize("settings, message", ONE_STACK, ids=lambda value: str(value)[:40])
def test_what_one_stack_cannot_have_is_refused_in_one_sentence(settings, message):
    check(one_stack())
    with pytest.raises(UserError, match=message) as refusal:
        check(one_stack(settings))
    assert "\n" not in str(refusal.value)


def test_relative_positions_have_no_end_and_any_width():
    check(changed("model", positions="relative", max_positions=1, d_model=15, num_heads=3))


def test_own_tokenizers_come_in_pairs_when_the_vocabulary_is_not_shared():
    config = changed("data", shared_vocabulary=False, source_tokenizer="x.model")
    config = dataclasses.replace(config, model=dataclasses.replace(config.model, tying="none"))
    with pytest.raises(UserError, match="must be set together"):
        check(config)


def test_a_whole_number_is_a_number_and_plain_files_are_valid():
    check(changed("decode", alpha=1))
    check(changed("data", **FILES))


def test_the_rules_know_the_token_that_ends_a_translation():
    assert rules.EOS == EOS
