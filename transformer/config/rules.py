"""Which settings are allowed, by the limits of each and the rules between them, and which would
waste a run."""

import dataclasses
import math
import re
import typing
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from transformer.config import Config, DataConfig, DecodeConfig
from transformer.config.resuming import falls_from
from transformer.config.settings import Limit
from transformer.errors import UserError

SPECIAL_TOKEN = re.compile(r"</?s>|<unk>|<pad>|<0x[0-9A-F]{2}>|\u2581+")

LANGUAGE = re.compile(r"[\w@-]+")

DROPOUTS = ("dropout", "attention_dropout", "activation_dropout", "word_dropout")
"""Settings of a model that make two passes differ."""

EOS = 2
"""As in transformer.model.batch, which is not imported here: it needs jax."""


def check(config: Config) -> None:
    """Refuse settings that are out of range or do not fit together (UserError, one sentence)."""
    for section in dataclasses.fields(config):
        check_limits(getattr(config, section.name), f"{section.name}.")
    for problem in _problems(config):
        raise UserError(problem)


def doubts(config: Config) -> Iterator[str]:
    """A sentence for each combination of settings that is allowed and would waste the run."""
    optimizer, train = config.optimizer, config.train
    rising = min(train.steps, falls_from(config) - 1)
    if optimizer.warmup_steps > rising:
        end = " before its cooldown" * (rising < train.steps)
        yield (
            f"optimizer.warmup_steps ({optimizer.warmup_steps:,}) is more than the {rising:,} "
            f"updates of training{end}: the learning rate rises to "
            f"{rising / optimizer.warmup_steps:.0%} of its intended maximum"
        )
    own = config.data.source_tokenizer or config.data.target_tokenizer
    for name in ("split_digits", "byte_fallback"):
        if getattr(config.data, name) and own:
            yield f"data.{name} has no effect with a vocabulary of your own, {own}"
    validations = math.ceil(train.steps / train.validate_every)
    if train.validate_every > train.steps:
        yield (
            f"train.validate_every ({train.validate_every:,}) is more than train.steps "
            f"({train.steps:,}): the only validation and the only checkpoint come at the end"
        )
    elif 0 < train.patience >= validations - 1:
        yield (
            f"train.patience ({train.patience:,}) cannot end training early: train.steps "
            f"({train.steps:,}) and train.validate_every ({train.validate_every:,}) allow for "
            f"{validations:,} validations"
        )
    if train.r_drop and not any(getattr(config.model, name) for name in DROPOUTS):
        yield (
            f"train.r_drop ({train.r_drop:g}) doubles the time of an update and has no effect: "
            "without dropout, both passes are the same"
        )


def check_limits(settings: object, prefix: str = "") -> None:
    """Refuse fields of a dataclass that are not what they are annotated with (UserError)."""
    for name, hint in typing.get_type_hints(type(settings), include_extras=True).items():
        value = getattr(settings, name)
        refusal = _refusal(value, hint)
        if refusal:
            raise UserError(f"{prefix}{name} ({value!r}) {refusal}")


def _refusal(value: object, hint: Any) -> str | None:
    """Why `value` is not a value of the annotation `hint`, or None."""
    kind, *marks = typing.get_args(hint) if typing.get_origin(hint) is Annotated else (hint,)
    if typing.get_origin(kind) is Literal:
        choices = typing.get_args(kind)
        return None if value in choices else f"must be one of: {', '.join(filter(None, choices))}"
    if typing.get_origin(kind) is tuple and isinstance(value, tuple):
        inner = typing.get_args(kind)
        inner = inner[:1] * len(value) if inner[-1] is Ellipsis else inner
        if len(value) != len(inner):
            return f"must have {len(inner)} values"
        return next(filter(None, map(_refusal, value, inner)), None)
    kind = typing.get_origin(kind) or kind
    accepted = (int, float) if kind is float else kind
    if not isinstance(value, accepted) or (isinstance(value, bool) and kind is not bool):
        return f"must be of type {kind.__name__}"
    limits = (mark for mark in marks if isinstance(mark, Limit))
    return next(filter(None, (limit.refusal(value) for limit in limits)), None)


def _problems(config: Config) -> Iterator[str]:
    """A sentence for each rule across settings that the config breaks."""
    model, data, optimizer, train = config.model, config.data, config.optimizer, config.train
    decode, one_side = config.decode, len(data.sides) == 1
    if not model.encoder_layers and not model.decoder_layers:
        yield "model.encoder_layers and model.decoder_layers must not both be 0"
    for side, stack in (("source", "encoder"), ("target", "decoder")):
        language, layers = getattr(data, side), getattr(model, f"{stack}_layers")
        if bool(language) != (layers > 0):
            yield (
                f"data.{side} ({language!r}) must be {'a language' if layers else 'empty'} with "
                f"model.{stack}_layers {layers}: the {stack} reads the {side} side"
            )
    d_model, heads = f"model.d_model ({model.d_model})", f"model.num_heads ({model.num_heads})"
    if model.d_model % model.num_heads:
        yield f"{d_model} must be a multiple of {heads}"
    if model.positions == "sinusoidal" and model.d_model % 2:
        yield (
            f"{d_model} must be even with model.positions sinusoidal: each frequency has a sine "
            "and a cosine"
        )
    if model.positions == "rotary" and model.d_model // model.num_heads % 2:
        yield (
            f"{d_model} / {heads} must be even with model.positions rotary, which rotates pairs of "
            "features"
        )
    if model.positions == "learned" and model.max_positions < data.max_length:
        yield (
            f"model.max_positions ({model.max_positions}) must be at least data.max_length "
            f"({data.max_length}) with model.positions learned"
        )
    if one_side and not data.shared_vocabulary:
        yield "data.shared_vocabulary must be on for an encoder or a decoder alone"
    for name in ("source_vocab_size", "target_vocab_size"):
        if getattr(data, name) and data.shared_vocabulary:
            yield (
                f"data.{name} ({getattr(data, name)}) has no effect with a shared "
                "vocabulary: set data.vocab_size instead, or turn data.shared_vocabulary off"
            )
    if 0 < data.character_coverage < 0.98:
        yield (
            f"data.character_coverage ({data.character_coverage}) must be 0 or at least 0.98, "
            "which SentencePiece requires"
        )
    symbols = data.user_symbols
    if len(set(symbols)) < len(symbols) or not all(map(_is_user_symbol, symbols)):
        yield (
            f"data.user_symbols ({', '.join(map(repr, symbols))}) must not have duplicates, spaces "
            "or names of special tokens, such as <s>"
        )
    if model.tying == "all" and not data.shared_vocabulary:
        yield (
            "model.tying (all) needs data.shared_vocabulary; with two vocabularies set model.tying "
            "to target or none"
        )
    if model.tying == "target" and one_side:
        yield (
            "model.tying (target) needs an encoder and a decoder; with one of them set model.tying "
            "to all or none"
        )
    if data.windows and not one_side:
        yield (
            "data.windows needs an encoder or a decoder alone: set model.encoder_layers or "
            "model.decoder_layers to 0"
        )
    if data.targets:
        yield from _problems_of_targets(data)
    yield from _problems_of_augmentation(data)
    for name in ("sampling", "train_weights", "corpus_temperature"):
        if getattr(data, name) and one_side:
            yield f"data.{name} has an effect only on pairs of sentences: remove it"
    own_tokenizer = data.source_tokenizer or data.target_tokenizer
    if data.sampling and not own_tokenizer and data.tokenizer not in ("unigram", "bpe"):
        yield (
            f"data.sampling ({data.sampling}) needs another tokenizer than {data.tokenizer}: set "
            "data.tokenizer to unigram or bpe"
        )
    if data.sampling >= 1 and not own_tokenizer and data.tokenizer == "bpe":
        yield (
            f"data.sampling ({data.sampling}) must be below 1 with data.tokenizer bpe: it is a "
            "probability"
        )
    if data.corpus_temperature and data.train_weights:
        yield (
            f"data.corpus_temperature ({data.corpus_temperature:g}) and data.train_weights both "
            "weight the corpora: remove one of them"
        )
    if 0 < data.corpus_temperature < 1:
        yield f"data.corpus_temperature ({data.corpus_temperature:g}) must be 0 or at least 1"
    if data.corpus_temperature and not data.train_files:
        yield "data.corpus_temperature needs several corpora as data.train_files: remove it"
    if data.train_weights and not any(data.train_weights):
        yield "data.train_weights must not all be 0"
    if data.label_column and data.target:
        yield (
            f"data.label_column ({data.label_column}) needs text of the source side alone: set "
            "data.source, and data.target to ''"
        )
    if data.label_column and data.windows:
        yield (
            f"data.label_column ({data.label_column}) needs an encoder alone that reads line by "
            "line: set data.windows off"
        )
    if len(data.sides) == 2 and data.tsv_columns[0] == data.tsv_columns[1]:
        yield (
            f"data.tsv_columns ({data.tsv_columns[0]} {data.tsv_columns[1]}) must be two columns"
        )
    if data.label_column and data.label_column == data.tsv_columns[0]:
        yield (
            f"data.label_column ({data.label_column}) is the column of the text too: the first of "
            "data.tsv_columns must be another"
        )
    if data.label_column and not data.train_files:
        yield f"data.label_column ({data.label_column}) needs tables as data.train_files"
    if model.classes and not data.label_column:
        yield (
            "data.label_column (0) must be the number of the column of classes, since the model of "
            "--from is a classifier"
        )
    if data.swap_files and one_side:
        yield "data.swap_files needs pairs: choose the column of a table with data.tsv_columns"
    if data.swap_files and data.dataset:
        yield "data.swap_files needs files: of a dataset, exchange data.source and data.target"
    if train.best_by not in ("auto", "loss", "accuracy") and one_side:
        yield (
            f"train.best_by ({train.best_by}) needs a translator: set train.best_by to auto, loss "
            "or accuracy"
        )
    vocabulary = model.target_vocab_size or math.inf
    if any(token == EOS or token >= vocabulary for token in decode.forbidden):
        yield (
            f"decode.forbidden ({', '.join(map(str, decode.forbidden))}) must be ids of tokens in "
            f"the vocabulary other than EOS ({EOS})"
        )
    of_all_tokens = ("repetition_penalty", "no_repeat_ngram", "min_length")
    changed = [n for n in of_all_tokens if getattr(decode, n) != getattr(DecodeConfig, n)]
    among = [name for name in ("shortlist", "frequent") if getattr(decode, name)]
    if among and (others := [*among[1:], *changed]):
        yield f"decode.{among[0]} does not allow decode.{others[0]}: remove one of them"
    if 0 < decode.max_length <= decode.min_length:
        yield (
            f"decode.min_length ({decode.min_length}) must be below decode.max_length "
            f"({decode.max_length})"
        )
    if bool(data.dataset) == bool(data.train_files):
        yield (
            f"data.dataset ({data.dataset!r}) must name a dataset, or be empty if "
            "data.train_files is set"
        )
    if data.train_files and not data.validation_files:
        yield (
            "data.validation_files must be set if data.train_files is set: they select the best "
            "checkpoint"
        )
    if not data.shared_vocabulary and bool(data.source_tokenizer) != bool(data.target_tokenizer):
        yield (
            "data.source_tokenizer and data.target_tokenizer must be set together when "
            "data.shared_vocabulary is off"
        )
    if data.batch_tokens < data.max_length:
        yield (
            f"data.batch_tokens ({data.batch_tokens}) must be at least data.max_length "
            f"({data.max_length}): one pair must fit in a batch"
        )
    if optimizer.weight_decay and optimizer.name == "adam":
        yield (
            f"optimizer.weight_decay ({optimizer.weight_decay}) must be 0 with optimizer.name "
            "adam: for weight decay, set optimizer.name to adamw"
        )
    if 0 < optimizer.spike_threshold <= 1:
        yield (
            f"optimizer.spike_threshold ({optimizer.spike_threshold:g}) must be 0 or above 1, the "
            "average norm"
        )
    if optimizer.beta_1 == 0 and optimizer.name == "schedule_free":
        yield "optimizer.beta_1 (0) must be above 0 with optimizer.name schedule_free"
    if train.ema_decay and optimizer.name == "schedule_free":
        yield (
            f"train.ema_decay ({train.ema_decay}) must be 0 with optimizer.name schedule_free, "
            "which has its own average of the weights"
        )
    if optimizer.cooldown_steps > train.steps:
        yield (
            f"optimizer.cooldown_steps ({optimizer.cooldown_steps}) must not exceed train.steps "
            f"({train.steps})"
        )
    if train.average_last > train.keep_last:
        yield (
            f"train.average_last ({train.average_last}) must not exceed train.keep_last "
            f"({train.keep_last})"
        )


def _problems_of_augmentation(data: DataConfig) -> Iterator[str]:
    changed = data.changed
    if changed and len(data.sides) == 1 and not data.label_column:
        yield f"data.{next(iter(changed))} needs pairs of sentences or a classifier: remove it"
    for name in ("merged", "cut"):
        if name in changed and data.label_column:
            yield f"data.{name} needs pairs of sentences: remove it"
    for name in ("upper_case", "title_case"):
        if name in changed and data.lowercase:
            yield f"data.{name} has no effect with data.lowercase: remove one of them"
    if sum(changed.values()) > 1:
        listed = " + ".join(f"data.{name} ({share:g})" for name, share in changed.items())
        yield f"{listed} must not exceed 1: they are shares of the training pairs"


def _problems_of_targets(data: DataConfig) -> Iterator[str]:
    listed = " ".join(data.targets)
    if len(set(data.targets)) < len(data.targets) or not all(map(LANGUAGE.fullmatch, data.targets)):
        yield f"data.targets ({listed}) must be different codes of languages, such as de fr"
    if len(data.sides) == 1:
        yield f"data.targets ({listed}) needs an encoder and a decoder: remove it"
    if data.dataset:
        yield f"data.targets ({listed}) needs files: set data.dataset to '' and data.train_files"
    if data.target not in data.targets:
        yield f"data.target ({data.target!r}) must be one of data.targets ({listed})"


def _is_user_symbol(symbol: str) -> bool:
    return symbol.split() == [symbol] and not SPECIAL_TOKEN.fullmatch(symbol)
