"""What the JSON files of a Hugging Face MarianMTModel say, as our settings, and the other way.

Each field is used, or has no effect on translations, or must have the one value that changes
nothing; whatever else is found is refused by its name.
https://github.com/huggingface/transformers/blob/main/src/transformers/models/marian/configuration_marian.py
"""

from typing import Any

from transformer.config import DecodeConfig, ModelConfig
from transformer.errors import UserError

ACTIVATIONS = {
    "swish": "swish", "silu": "swish", "relu": "relu", "gelu": "gelu",
    "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh",
}  # fmt: skip
EPSILON = 1e-5
"""Of their layer normalisation, always."""

USED = {
    "vocab_size", "decoder_vocab_size", "max_position_embeddings", "encoder_layers",
    "encoder_ffn_dim", "encoder_attention_heads", "decoder_layers", "decoder_ffn_dim",
    "decoder_attention_heads", "activation_function", "d_model", "dropout", "attention_dropout",
    "activation_dropout", "decoder_start_token_id", "scale_embedding", "pad_token_id",
    "eos_token_id", "share_encoder_decoder_embeddings", "tie_word_embeddings", "num_hidden_layers",
    "static_position_embeddings",
}  # fmt: skip
SIZES = (
    "d_model", "encoder_layers", "decoder_layers", "encoder_attention_heads",
    "decoder_attention_heads", "encoder_ffn_dim", "decoder_ffn_dim", "max_position_embeddings",
)  # fmt: skip
WITHOUT_EFFECT = {
    "_name_or_path", "_num_labels", "architectures", "dtype", "torch_dtype", "transformers_version",
    "model_type", "use_cache", "init_std", "id2label", "label2id", "num_labels", "problem_type",
    "classif_dropout", "classifier_dropout", "gradient_checkpointing", "is_encoder_decoder",
    "output_attentions", "output_hidden_states", "output_scores", "return_dict",
    "return_dict_in_generate", "bos_token_id", "sep_token_id", "task_specific_params",
    "tokenizer_class", "prefix", "chunk_size_feed_forward", "torchscript", "use_bfloat16",
    "finetuning_task", "tf_legacy_loss", "attn_implementation", "_attn_implementation",
    "_from_model_config", "output_logits", "temperature", "top_k", "top_p", "typical_p",
    "epsilon_cutoff", "eta_cutoff",
}  # fmt: skip
"""Labels, provenance, and what is for training, for drawing or for other kinds of models."""
GENERATION = {
    "num_beams", "length_penalty", "early_stopping", "max_length", "max_new_tokens",
    "bad_words_ids", "suppress_tokens", "forced_eos_token_id", "renormalize_logits",
    "decoder_start_token_id", "pad_token_id", "eos_token_id",
}  # fmt: skip
"""Used, from generation_config.json or, where there is none, from config.json."""
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "do_sample": (False,), "num_return_sequences": (1,), "num_beam_groups": (1,),
    "repetition_penalty": (1.0,), "encoder_repetition_penalty": (1.0,),
    "no_repeat_ngram_size": (0,), "encoder_no_repeat_ngram_size": (0,), "min_length": (0,),
    "diversity_penalty": (0.0,), "remove_invalid_values": (False,), "encoder_layerdrop": (0.0,),
    "decoder_layerdrop": (0.0,), "normalize_before": (False,), "normalize_embedding": (False,),
    "add_final_layer_norm": (False,), "add_bias_logits": (False,), "add_cross_attention": (False,),
    "is_decoder": (False,), "tie_encoder_decoder": (False,), "extra_pos_embeddings": (0, 2),
    "force_bos_token_to_be_generated": (False,), "output_past": (False, True),
}  # fmt: skip
"""Values that change nothing; None never does."""


def check_fields(fields: dict[str, Any], file: str, used: set[str]) -> None:
    """Raises UserError naming a field whose value matters and is not what we can do."""
    for name, value in fields.items():
        known = name in used | WITHOUT_EFFECT or value is None
        if not known and value not in NEUTRAL.get(name, (False, 0, 0.0, "", [], {})):
            raise UserError(
                f"{file}: {name} is {value!r}, which this program cannot do"
                + (f" (only {NEUTRAL[name][0]!r})" if NEUTRAL.get(name) else "")
            )


def check_numbers(fields: dict[str, Any]) -> None:
    """Raises UserError naming a size that is none, before anything is made of that size."""
    for name in SIZES:
        value = fields.get(name, 1)
        if type(value) is not int or not 0 < value < 2**31:
            raise UserError(f"config.json: {name} is {value!r}: it must be a number from 1")


def model_config(fields: dict[str, Any], rows: tuple[int, int], positions: str) -> ModelConfig:
    """The shape of the model; `rows` are those of its tables in our numbering."""
    check_fields(fields, "config.json", USED | GENERATION)
    if fields.get("model_type") != "marian":
        kind = fields.get("model_type")
        raise UserError(f"config.json: model_type is {kind!r}: only 'marian' can be converted")

    def one(a: str, b: str) -> int:
        if fields[a] != fields[b]:
            raise UserError(
                f"config.json: {a} is {fields[a]} and {b} is {fields[b]}: they must be the same"
            )
        return fields[a]

    activation = fields.get("activation_function", "gelu")
    if activation not in ACTIVATIONS:
        raise UserError(
            f"config.json: activation_function is {activation!r}: only {', '.join(ACTIVATIONS)}"
        )
    try:
        if "num_hidden_layers" in fields:
            one("num_hidden_layers", "encoder_layers")
        shares = fields.get("share_encoder_decoder_embeddings", True)
        ties = fields.get("tie_word_embeddings", True)
        return ModelConfig(
            source_vocab_size=rows[0],
            target_vocab_size=rows[1],
            encoder_layers=fields["encoder_layers"],
            decoder_layers=fields["decoder_layers"],
            d_model=fields["d_model"],
            num_heads=one("encoder_attention_heads", "decoder_attention_heads"),
            d_ff=one("encoder_ffn_dim", "decoder_ffn_dim"),
            dropout=fields.get("dropout", 0.1),
            attention_dropout=fields.get("attention_dropout", 0.0),
            activation_dropout=fields.get("activation_dropout", 0.0),
            norm="post",
            norm_epsilon=EPSILON,
            activation=ACTIVATIONS[activation],
            attention_bias=True,
            output_bias=True,
            tying="none" if not ties else "all" if shares else "target",
            embedding_scale=fields.get("scale_embedding", False),
            positions=positions,
            max_positions=fields["max_position_embeddings"],
        )
    except KeyError as error:
        raise UserError(f"config.json lacks {error.args[0]}") from None


def decode_config(fields: dict[str, Any], file: str, ours: dict[int, int]) -> DecodeConfig:
    """How it translates; `ours` is our id for each of theirs."""
    check_fields(fields, file, GENERATION | (USED if file == "config.json" else set()))
    longest = fields.get("max_new_tokens") or fields.get("max_length") or 20
    if not fields.get("max_new_tokens"):
        longest -= 1  # the token that it begins with counts
    end = fields.get("forced_eos_token_id")
    if end is not None and end not in (fields.get("eos_token_id"), [fields.get("eos_token_id")]):
        raise UserError(f"{file}: forced_eos_token_id is {end!r}, which is not eos_token_id")
    stop = fields.get("early_stopping", False)
    if stop not in (False, True, "never", None):
        raise UserError(f"{file}: early_stopping is {stop!r}: only false, true or 'never'")
    forbidden = [
        *(fields.get("bad_words_ids") or []),
        *([t] for t in fields.get("suppress_tokens") or []),
    ]
    if not all(isinstance(words, list) and len(words) == 1 for words in forbidden):
        raise UserError(f"{file}: bad_words_ids holds words of several tokens: only single ones")
    try:
        numbers = {ours[token] for (token,) in forbidden}
    except (KeyError, TypeError):
        raise UserError(f"{file}: bad_words_ids names a token that there is not") from None
    return DecodeConfig(
        beam_size=fields.get("num_beams") or 1,
        alpha=1.0 if fields.get("length_penalty") is None else fields["length_penalty"],
        normalisation="length",
        stop={False: "heuristic", None: "heuristic", True: "full", "never": "bound"}[stop],
        max_extra_length=longest,
        max_length=longest,
        forced_end=end is not None,
        forbidden=tuple(sorted(number for number in numbers if number > 1)),  # not PAD and BOS
        renormalise=bool(fields.get("renormalize_logits")),
    )


def their_config(model: ModelConfig, decode: DecodeConfig, tokens: dict[str, int]) -> dict:
    """config.json: the inverse of `model_config`. Raises UserError for what they cannot have."""
    refuse(model, decode)
    activations = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}
    return {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "is_encoder_decoder": True,
        "vocab_size": tokens["source_size"],
        "decoder_vocab_size": tokens["target_size"],
        "d_model": model.d_model,
        "encoder_layers": model.encoder_layers,
        "decoder_layers": model.decoder_layers,
        "num_hidden_layers": model.encoder_layers,
        "encoder_attention_heads": model.num_heads,
        "decoder_attention_heads": model.num_heads,
        "encoder_ffn_dim": model.d_ff,
        "decoder_ffn_dim": model.d_ff,
        "activation_function": activations[model.activation],
        "dropout": model.dropout,
        "attention_dropout": model.attention_dropout,
        "activation_dropout": model.activation_dropout,
        "scale_embedding": model.embedding_scale,
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
        "early_stopping": {"heuristic": False, "full": True, "bound": "never"}[decode.stop],
        "max_length": min(decode.max_length or tokens["positions"], tokens["positions"] - 1) + 1,
        "bad_words_ids": [[number] for number in sorted(forbidden)],
        "forced_eos_token_id": tokens["end"] if decode.forced_end else None,
        "renormalize_logits": decode.renormalise,
        "decoder_start_token_id": tokens["start"],
        "pad_token_id": tokens["pad"],
        "eos_token_id": tokens["end"],
    }


def refuse(model: ModelConfig, decode: DecodeConfig) -> None:
    """Raises UserError for what a MarianMTModel cannot hold, and says what to use instead."""
    elsewhere = "to-ctranslate2 can"
    reasons = [
        (model.norm != "post", f"model.norm pre: a MarianMTModel cannot hold it, {elsewhere}"),
        (
            model.positions == "relative",
            "model.positions relative: a MarianMTModel cannot hold it; to-safetensors can",
        ),
        (
            model.norm_epsilon > EPSILON,
            f"model.norm_epsilon {model.norm_epsilon}: a MarianMTModel has {EPSILON}",
        ),
        (
            decode.normalisation != "length" and decode.alpha > 0,
            "decode.normalisation gnmt is nothing that transformers knows: give "
            "--decode.normalisation length, and the --decode.alpha that goes with it",
        ),
    ]
    for is_so, reason in reasons:
        if is_so:
            raise UserError(reason)
