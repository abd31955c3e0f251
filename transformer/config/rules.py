"""Which settings are allowed, by the limits of each (settings.py) and the rules between them, and
which of these would waste a run."""

import dataclasses
import math
import re
import typing
from collections.abc import Iterator
from typing import Annotated, Literal

from transformer.config import Config
from transformer.config.resuming import falls_from
from transformer.config.settings import Limit
from transformer.errors import UserError

SPECIAL_TOKEN = re.compile(r"</?s>|<unk>|<pad>|<0x[0-9A-F]{2}>|\u2581+")

EOS = 2
"""As in transformer.model.batch, which is not imported here: it needs jax."""


def check(config: Config) -> None:
    """Refuse settings that are out of range or do not fit together (UserError, one sentence)."""
    for section in dataclasses.fields(config):
        check_limits(getattr(config, section.name), f"{section.name}.")
    for subject, allowed, rule in _rules(config):
        if not allowed:
            raise UserError(f"{subject} {rule}")


def doubts(config: Config) -> Iterator[str]:
    """What is allowed and would waste a run: a sentence for each."""
    optimizer, train = config.optimizer, config.train
    rising = min(train.steps, falls_from(config) - 1)
    if optimizer.warmup_steps > rising:
        end = " before its cooldown" * (rising < train.steps)
        yield (
            f"optimizer.warmup_steps ({optimizer.warmup_steps:,}) is more than the {rising:,} "
            f"updates of training{end}: the learning rate rises to "
            f"{rising / optimizer.warmup_steps:.0%} of what it is meant to reach"
        )
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


def check_limits(settings: object, prefix: str = "") -> None:
    """Refuse fields of a dataclass that are not what they are annotated with (UserError)."""
    for name, hint in typing.get_type_hints(type(settings), include_extras=True).items():
        value = getattr(settings, name)
        refusal = _refusal(value, hint)
        if refusal:
            raise UserError(f"{prefix}{name} ({value!r}) {refusal}")


def _refusal(value: object, hint: object) -> str | None:
    """Why `value` is not a value of the annotation `hint`, or None."""
    kind, *marks = typing.get_args(hint) if typing.get_origin(hint) is Annotated else (hint,)
    if typing.get_origin(kind) is Literal:
        choices = typing.get_args(kind)
        return None if value in choices else f"must be one of: {', '.join(filter(None, choices))}"
    if typing.get_origin(kind) is tuple and isinstance(value, tuple):
        inner = typing.get_args(kind)
        inner = inner[:1] * len(value) if inner[-1] is Ellipsis else inner
        if len(value) != len(inner):
            return f"must be {len(inner)} values"
        return next(filter(None, map(_refusal, value, inner)), None)
    kind = typing.get_origin(kind) or kind
    accepted = (int, float) if kind is float else kind
    if not isinstance(value, accepted) or (isinstance(value, bool) and kind is not bool):
        return f"must be of type {kind.__name__}"
    limits = (mark for mark in marks if isinstance(mark, Limit))
    return next(filter(None, (limit.refusal(value) for limit in limits)), None)


def _rules(config: Config) -> list[tuple[str, bool, str]]:
    """Rules across settings: (setting and value, whether it keeps the rule, the rule)."""
    model, data, optimizer, train = config.model, config.data, config.optimizer, config.train
    own_tokenizers = bool(data.source_tokenizer), bool(data.target_tokenizer)
    one_side = len(data.sides) == 1
    return [
        (
            "model.encoder_layers and model.decoder_layers",
            model.encoder_layers > 0 or model.decoder_layers > 0,
            "must not both be 0",
        ),
        *(
            (
                f"data.{side} ({getattr(data, side)!r})",
                bool(getattr(data, side)) == (layers > 0),
                f"must be {'a language' if layers else 'empty'} with model.{stack}_layers "
                f"{layers}: the {stack} reads the {side} side",
            )
            for side, stack, layers in (
                ("source", "encoder", model.encoder_layers),
                ("target", "decoder", model.decoder_layers),
            )
        ),
        (
            f"model.d_model ({model.d_model})",
            model.d_model % model.num_heads == 0,
            f"must be a multiple of model.num_heads ({model.num_heads})",
        ),
        (
            f"model.d_model ({model.d_model})",
            model.positions != "sinusoidal" or model.d_model % 2 == 0,
            "must be even with model.positions sinusoidal: each frequency has a sine and a cosine",
        ),
        (
            f"model.d_model ({model.d_model})",
            model.positions != "rotary" or model.d_model // model.num_heads % 2 == 0,
            f"must give each of model.num_heads ({model.num_heads}) an even width with "
            "model.positions rotary: numbers are turned in pairs",
        ),
        (
            f"model.max_positions ({model.max_positions})",
            model.positions != "learned" or model.max_positions >= data.max_length,
            f"must be at least data.max_length ({data.max_length}) with model.positions learned",
        ),
        (
            "data.shared_vocabulary",
            data.shared_vocabulary or not one_side,
            "must be on with one side: there is one vocabulary",
        ),
        *(
            (
                f"data.{side}_vocab_size ({getattr(data, f'{side}_vocab_size')})",
                not (getattr(data, f"{side}_vocab_size") and data.shared_vocabulary),
                "is for two vocabularies: set data.vocab_size, or data.shared_vocabulary off",
            )
            for side in ("source", "target")
        ),
        (
            f"data.character_coverage ({data.character_coverage})",
            data.character_coverage == 0 or data.character_coverage >= 0.98,
            "must be 0 or at least 0.98, which SentencePiece asks for",
        ),
        (
            f"data.user_symbols ({', '.join(map(repr, data.user_symbols))})",
            len(set(data.user_symbols)) == len(data.user_symbols)
            and not any(
                symbol.split() != [symbol] or SPECIAL_TOKEN.fullmatch(symbol)
                for symbol in data.user_symbols
            ),
            "must differ, have no blanks, and not be named as a special token, such as <s>",
        ),
        (
            "model.tying (all)",
            model.tying != "all" or data.shared_vocabulary,
            "needs data.shared_vocabulary; with two vocabularies set model.tying to target or none",
        ),
        (
            "model.tying (target)",
            model.tying != "target" or not one_side,
            "needs an encoder and a decoder; with one of them set model.tying to all or none",
        ),
        (
            "data.windows",
            not data.windows or one_side,
            "is for text of one side: set model.encoder_layers or model.decoder_layers to 0",
        ),
        *(
            (f"data.{name}", not getattr(data, name) or not one_side, "is for pairs of sentences")
            for name in ("sampling", "train_weights")
        ),
        (
            f"data.sampling ({data.sampling})",
            not data.sampling or data.tokenizer in ("unigram", "bpe"),
            "cuts words into other pieces: set data.tokenizer to unigram or bpe",
        ),
        (
            f"data.sampling ({data.sampling})",
            data.tokenizer != "bpe" or data.sampling < 1,
            "must be below 1 with data.tokenizer bpe: it is a probability",
        ),
        (
            "data.train_weights",
            not data.train_weights or any(data.train_weights),
            "must not all be 0",
        ),
        (
            f"data.label_column ({data.label_column})",
            not data.label_column or (model.decoder_layers == 0 and not data.windows),
            "is for an encoder alone that reads line by line: set model.decoder_layers to 0 and "
            "data.windows off",
        ),
        (
            f"data.label_column ({data.label_column})",
            not data.label_column or bool(data.train_files),
            "needs data.train_files, tables",
        ),
        (
            "data.label_column (0)",
            not model.classes or bool(data.label_column),
            "must name the column of the classes: the model to begin with is a classifier",
        ),
        (
            "data.swap_files",
            not data.swap_files or not one_side,
            "is for pairs: of tables data.tsv_columns names the column to read",
        ),
        (
            f"train.best_by ({train.best_by})",
            train.best_by in ("auto", "loss", "accuracy") or not one_side,
            "needs a translator: set train.best_by to auto, loss or accuracy",
        ),
        (
            f"decode.forbidden ({', '.join(map(str, config.decode.forbidden))})",
            EOS not in config.decode.forbidden
            and all(n < (model.target_vocab_size or n + 1) for n in config.decode.forbidden),
            f"must be tokens of the vocabulary, and not the one that ends a translation ({EOS})",
        ),
        (
            f"decode.min_length ({config.decode.min_length})",
            not config.decode.max_length or config.decode.min_length < config.decode.max_length,
            f"must be below decode.max_length ({config.decode.max_length})",
        ),
        (
            f"data.dataset ({data.dataset!r})",
            bool(data.dataset) != bool(data.train_files),
            "must be a TFDS dataset, or empty beside data.train_files",
        ),
        (
            "data.validation_files",
            not data.train_files or bool(data.validation_files),
            "must be set beside data.train_files: the best checkpoint is chosen on them",
        ),
        (
            "data.source_tokenizer and data.target_tokenizer",
            data.shared_vocabulary or own_tokenizers in [(True, True), (False, False)],
            "must be set together when data.shared_vocabulary is off",
        ),
        (
            f"data.batch_tokens ({data.batch_tokens})",
            data.batch_tokens >= data.max_length,
            f"must be at least data.max_length ({data.max_length}): one pair must fit in a batch",
        ),
        (
            f"optimizer.weight_decay ({optimizer.weight_decay})",
            not optimizer.weight_decay or optimizer.name != "adam",
            "must be 0 with optimizer.name adam: set that to adamw",
        ),
        (
            f"optimizer.beta_1 ({optimizer.beta_1})",
            optimizer.beta_1 > 0 or optimizer.name != "schedule_free",
            "must be above 0 with optimizer.name schedule_free",
        ),
        (
            f"train.ema_decay ({train.ema_decay})",
            not train.ema_decay or optimizer.name != "schedule_free",
            "must be 0 with optimizer.name schedule_free, which averages weights itself",
        ),
        (
            f"optimizer.cooldown_steps ({optimizer.cooldown_steps})",
            optimizer.cooldown_steps <= train.steps,
            f"must not exceed train.steps ({train.steps})",
        ),
        (
            f"train.average_last ({train.average_last})",
            train.average_last <= train.keep_last,
            f"must not exceed train.keep_last ({train.keep_last})",
        ),
    ]
