"""The JSON files of a Hugging Face MarianMTModel as our settings, and the other way.

Each field is used, or has no effect on translations, or must have the one value that changes
nothing; any other is refused by its name.
https://github.com/huggingface/transformers/blob/main/src/transformers/models/marian/configuration_marian.py
"""

import warnings
from collections.abc import Collection
from typing import Any

from transformer.config import DecodeConfig, ModelConfig
from transformer.errors import UserError
from transformer.interchange.supported import ANY, SHAPE, TRAINING, check_held, not_held
from transformer.model.batch import BOS, EOS, PAD

ACTIVATIONS = {
    "swish": "swish", "silu": "swish", "relu": "relu", "gelu": "gelu",
    "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh",
}  # fmt: skip
EPSILON = 1e-5
"""Of their layer normalisation; it is no field."""
HELD: dict[str, Collection | None] = {
    **SHAPE,
    **TRAINING,
    "norm": ("post",),
    "norm_epsilon": ANY,  # `refuse` limits it
    "activation": {*ACTIVATIONS.values()},
    "positions": ("sinusoidal", "learned"),
}
"""Settings of `model` that theirs has a place for, and their values."""
HELD_OF_SEARCH = {
    "beam_size", "alpha", "normalisation", "stop", "max_length", "forced_end", "forbidden",
    "max_extra_length", "renormalise", "min_length", "no_repeat_ngram", "repetition_penalty",
    "max_source_length", "batch_sentences", "dtype", "length_ratio", "longest_target",
}  # fmt: skip
"""Settings of `decode` that generation_config.json has, or that change no translation."""

WITHOUT_EFFECT = {
    "_name_or_path", "_num_labels", "architectures", "dtype", "torch_dtype", "transformers_version",
    "model_type", "use_cache", "init_std", "id2label", "label2id", "num_labels", "problem_type",
    "classif_dropout", "classifier_dropout", "gradient_checkpointing", "is_encoder_decoder",
    "output_attentions", "output_hidden_states", "output_scores", "return_dict",
    "return_dict_in_generate", "bos_token_id", "sep_token_id", "task_specific_params",
    "tokenizer_class", "prefix", "chunk_size_feed_forward", "torchscript", "use_bfloat16",
    "finetuning_task", "tf_legacy_loss", "attn_implementation", "_attn_implementation",
    "_from_model_config", "output_logits", "temperature", "top_k", "top_p", "typical_p",
    "epsilon_cutoff", "eta_cutoff", "extra_pos_embeddings", "output_past", "low_memory",
    "language", "xla_device", "_attn_implementation_autoset", "static_position_embeddings",
}  # fmt: skip
"""Labels, provenance, what the weights say, and what is for training, sampling or other models."""
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "do_sample": (False,), "num_return_sequences": (1,), "num_beam_groups": (1,),
    "encoder_repetition_penalty": (1.0,), "encoder_no_repeat_ngram_size": (0,),
    "diversity_penalty": (0.0,), "remove_invalid_values": (False,), "encoder_layerdrop": (0.0,),
    "decoder_layerdrop": (0.0,), "forced_bos_token_id": (),
}  # fmt: skip
"""Values that change nothing; None never does."""
OFF = (False, 0, 0.0, "", [], {})
"""Values of other fields that mean that something is not done."""
SETTINGS = {
    "d_model": "d_model", "encoder_layers": "encoder_layers", "decoder_layers": "decoder_layers",
    "num_hidden_layers": "encoder_layers", "encoder_attention_heads": "num_heads",
    "decoder_attention_heads": "num_heads", "encoder_ffn_dim": "d_ff", "decoder_ffn_dim": "d_ff",
    "activation_function": "activation", "dropout": "dropout",
    "attention_dropout": "attention_dropout", "activation_dropout": "activation_dropout",
    "scale_embedding": "embedding_scale",
}  # fmt: skip
"""Fields and our setting for each; fields for the same setting must have the same value."""
DEFAULTS = {
    "dropout": 0.1, "attention_dropout": 0.0, "activation_dropout": 0.0, "embedding_scale": False,
}  # fmt: skip
"""Values of these settings where the field is missing; others must be there."""
SIZES = (
    "d_model", "encoder_layers", "decoder_layers", "encoder_attention_heads",
    "decoder_attention_heads", "encoder_ffn_dim", "decoder_ffn_dim", "max_position_embeddings",
)  # fmt: skip
RANGES = dict.fromkeys(SIZES, (1, 2**31 - 1)) | {
    "num_beams": (1, 1000), "length_penalty": (0, 10), "max_length": (2, 100_000),
    "max_new_tokens": (1, 100_000), "min_length": (0, 100_000),
    "no_repeat_ngram_size": (0, 100), "repetition_penalty": (0.01, 100),
}  # fmt: skip
"""The least and the largest value."""
STOPS = {False: "heuristic", True: "full", "never": "bound"}
KINDS = {
    int: (
        (*SIZES, "vocab_size", "decoder_vocab_size", "num_hidden_layers", "decoder_start_token_id",
         "pad_token_id", "num_beams", "max_length", "max_new_tokens", "min_length",
         "no_repeat_ngram_size"),
        "an integer",
    ),
    (int, float): (
        ("dropout", "attention_dropout", "activation_dropout", "length_penalty",
         "repetition_penalty"),
        "a number",
    ),
    (int, list): (("eos_token_id", "forced_eos_token_id"), "the id of a token"),
    bool: (
        ("scale_embedding", "share_encoder_decoder_embeddings", "tie_word_embeddings",
         "renormalize_logits"),
        "true or false",
    ),
    (bool, str): (("early_stopping",), "true, false or 'never'"),
    str: (("activation_function", "model_type"), "a name"),
    list: (("bad_words_ids", "suppress_tokens"), "a list"),
}  # fmt: skip
"""The fields that are used: their types, and what an error message calls these."""


def check_fields(fields: dict[str, Any], file: str) -> None:
    """Raises UserError naming a field of another type or size, or one that is not known and whose
    value may change translations."""
    known = WITHOUT_EFFECT.copy()
    for kind, (names, called) in KINDS.items():
        known.update(names)
        for name in names:
            value = fields.get(name)
            is_flag = isinstance(value, bool) and kind not in (bool, (bool, str))
            if value is not None and (not isinstance(value, kind) or is_flag):
                raise UserError(f"{file}: {name} is {value!r}: it must be {called}")
    for name, (least, most) in RANGES.items():
        if (value := fields.get(name)) is not None and not least <= value <= most:
            raise UserError(f"{file}: {name} is {value!r:.60}: it must be {least} to {most:,}")
    for name, value in fields.items():
        if name not in known and value is not None and value not in NEUTRAL.get(name, OFF):
            only = " or ".join(map(repr, NEUTRAL.get(name, ())))
            only = f" (supported: {only})" if only else ""
            raise UserError(f"{file}: {name} is {value!r:.60}, which is not supported{only}")


def check_config(fields: dict[str, Any]) -> None:
    """Raises UserError when config.json is not one that `model_config` can follow."""
    if (kind := fields.get("model_type")) != "marian":
        raise UserError(
            f"config.json: model_type is {kind!r:.60}, but only 'marian', a MarianMTModel of "
            "transformers, can be converted"
        )
    check_fields(fields, "config.json")
    for name in (*SIZES, "activation_function"):
        if fields.get(name) is None:
            raise UserError(f"config.json lacks {name}")
    first: dict[str, str] = {}
    for theirs, ours in SETTINGS.items():
        other = first.setdefault(ours, theirs)
        if theirs in fields and fields[theirs] != fields[other]:
            raise UserError(
                f"config.json: {other} is {fields[other]} and {theirs} is {fields[theirs]}: they "
                "must be the same"
            )
    if (activation := fields["activation_function"]) not in ACTIVATIONS:
        raise UserError(
            f"config.json: activation_function is {activation!r}, not {' or '.join(ACTIVATIONS)}"
        )


def _value(fields: dict[str, Any], name: str, default: Any) -> Any:
    """The field, or what transformers takes where there is none."""
    value = fields.get(name)
    return default if value is None else value


def model_config(fields: dict[str, Any], rows: tuple[int, int], positions: str) -> ModelConfig:
    """The shape of the model, of fields that are checked; `rows`: the sizes of our tables."""
    shares = _value(fields, "share_encoder_decoder_embeddings", True)
    ties = _value(fields, "tie_word_embeddings", True)
    settings = DEFAULTS | {
        ours: fields[theirs] for theirs, ours in SETTINGS.items() if fields.get(theirs) is not None
    }
    settings["activation"] = ACTIVATIONS[settings["activation"]]
    return ModelConfig(
        source_vocab_size=rows[0],
        target_vocab_size=rows[1],
        norm="post",
        norm_epsilon=EPSILON,
        attention_bias=True,
        output_bias=True,
        tying="none" if not ties else "all" if shares else "target",
        positions=positions,
        max_positions=fields["max_position_embeddings"],
        **settings,
    )


def decode_config(
    fields: dict[str, Any], file: str, config: dict[str, Any], ours: dict[int, int]
) -> DecodeConfig:
    """How it translates; `config`: config.json, `ours`: our id for each of theirs."""
    check_fields(fields, file)
    for name in ("pad_token_id", "eos_token_id", "decoder_start_token_id"):
        if fields.get(name) not in (None, config.get(name), [config.get(name)]):
            raise UserError(
                f"{file}: {name} is {fields[name]!r}, but {config.get(name)!r} in config.json"
            )
    more = _value(fields, "max_new_tokens", 0)
    longest = more or _value(fields, "max_length", 20) - 1  # there the start token counts
    beam, penalty = _value(fields, "num_beams", 1), _value(fields, "repetition_penalty", 1.0)
    if beam == 1 and penalty != 1:
        raise UserError(
            f"{file}: repetition_penalty is {penalty} and num_beams is 1, which is not supported: "
            "transformers multiplies log-probabilities by it only in beam search"
        )
    end = fields.get("forced_eos_token_id")
    if end not in (None, config.get("eos_token_id"), [config.get("eos_token_id")]):
        raise UserError(f"{file}: forced_eos_token_id is {end!r}, but must be eos_token_id")
    stop = _value(fields, "early_stopping", False)
    if stop not in STOPS:
        raise UserError(f"{file}: early_stopping is {stop!r}, not false, true or 'never'")
    suppressed = _forbidden(file, [[t] for t in _value(fields, "suppress_tokens", [])], ours)
    if EOS in suppressed:
        raise UserError(
            f"{file}: suppress_tokens contains eos_token_id, so no translation would end"
        )
    bad = _forbidden(file, _value(fields, "bad_words_ids", []), ours) - {EOS}  # as transformers
    return DecodeConfig(
        beam_size=beam,
        alpha=_value(fields, "length_penalty", 1.0),
        normalisation="length",
        stop=STOPS[stop],
        max_extra_length=longest,
        max_length=longest,
        forced_end=end is not None,
        forbidden=tuple(sorted((bad | suppressed) - {PAD, BOS})),
        renormalise=_value(fields, "renormalize_logits", False),
        min_length=max(_value(fields, "min_length", 0) - 1, 0),
        no_repeat_ngram=_value(fields, "no_repeat_ngram_size", 0),
        repetition_penalty=penalty,
    )


def _forbidden(file: str, words: list, ours: dict[int, int]) -> set[int]:
    """Our ids of the tokens that must not be chosen."""
    if not all(isinstance(tokens, list) and len(tokens) == 1 for tokens in words):
        raise UserError(f"{file}: bad_words_ids has words of several tokens: only one is supported")
    found = [tokens[0] for tokens in words]
    for token in found:
        if type(token) is not int or token < 0 or token not in ours:
            raise UserError(f"{file}: {token!r} is a forbidden token, but is not in the vocabulary")
    return {ours[token] for token in found}


def their_config(model: ModelConfig, decode: DecodeConfig, tokens: dict[str, int]) -> dict:
    """config.json: the inverse of `model_config`. Raises UserError for what they cannot have."""
    refuse(model, decode)
    activations = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}
    settings = {theirs: getattr(model, ours) for theirs, ours in SETTINGS.items()}
    return {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "is_encoder_decoder": True,
        "vocab_size": tokens["source_size"],
        "decoder_vocab_size": tokens["target_size"],
        **settings | {"activation_function": activations[model.activation]},
        "share_encoder_decoder_embeddings": model.tying == "all",
        "tie_word_embeddings": model.tying != "none",
        "max_position_embeddings": tokens["positions"],
        "static_position_embeddings": model.positions == "sinusoidal",
        "pad_token_id": tokens["pad"],
        "eos_token_id": tokens["end"],
        "bos_token_id": None,
        "decoder_start_token_id": tokens["start"],
        "forced_eos_token_id": None,
        "dtype": "float32",
    }


def their_generation_config(decode: DecodeConfig, tokens: dict[str, int], theirs) -> dict:
    """generation_config.json: the inverse of `decode_config`; `theirs` is their id for each of
    ours."""
    forbidden = {tokens["pad"], tokens["start"], *(theirs[number] for number in decode.forbidden)}
    return {
        "num_beams": decode.beam_size,
        "length_penalty": decode.alpha,
        "early_stopping": {ours: theirs for theirs, ours in STOPS.items()}[decode.stop],
        "max_length": min(decode.max_length or tokens["positions"], tokens["positions"] - 1) + 1,
        "bad_words_ids": [[number] for number in sorted(forbidden)],
        "forced_eos_token_id": tokens["end"] if decode.forced_end else None,
        "renormalize_logits": decode.renormalise,
        "min_length": decode.min_length + 1 if decode.min_length else 0,
        "no_repeat_ngram_size": decode.no_repeat_ngram,
        "repetition_penalty": decode.repetition_penalty,
        "decoder_start_token_id": tokens["start"],
        "pad_token_id": tokens["pad"],
        "eos_token_id": tokens["end"],
    }


def refuse(model: ModelConfig, decode: DecodeConfig) -> None:
    """Raises UserError for what a MarianMTModel cannot hold, and says what to use instead."""
    check_held(model, HELD, "a MarianMTModel")
    if lost := not_held(decode, HELD_OF_SEARCH):
        warnings.warn(f"a MarianMTModel has no field for {', '.join(lost)}", stacklevel=4)
    if model.norm_epsilon > EPSILON:
        raise UserError(
            f"model.norm_epsilon ({model.norm_epsilon}) must be at most {EPSILON}, the value of "
            "every MarianMTModel"
        )
    if decode.repetition_penalty != 1 and decode.beam_size == 1:
        raise UserError(
            "decode.repetition_penalty in greedy search works differently in transformers: set "
            "--decode.beam-size above 1"
        )
    if decode.normalisation != "length" and decode.alpha > 0:
        raise UserError(
            "decode.normalisation gnmt does not exist in transformers: set "
            "--decode.normalisation length, and a --decode.alpha that suits it"
        )
