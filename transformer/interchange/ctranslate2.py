"""Our weights as a CTranslate2 model, for decoding.py and test_set.py: float32, ids unchanged."""

from pathlib import Path
from typing import TYPE_CHECKING

import jax
import numpy as np

try:
    from ctranslate2 import Translator
except ModuleNotFoundError:
    Translator = None  # `measure.require` says so

from transformer.config import ModelConfig
from transformer.model.batch import BOS, EOS, PAD
from transformer.model.layers import position_encoding
from transformer.model.params import Attention, Layer, Norm, Params, tables, unstack

if TYPE_CHECKING:
    from ctranslate2.specs.common_spec import LayerNormSpec, LinearSpec
    from ctranslate2.specs.transformer_spec import (
        TransformerDecoderLayerSpec,
        TransformerEncoderLayerSpec,
    )

UNKNOWN = 3


def save_model(config: ModelConfig, params: Params, folder: Path, max_length: int) -> None:
    """Writes the CTranslate2 model folder; positions for sentences of at most `max_length`."""
    from ctranslate2.specs import common_spec, transformer_spec  # with torch: not for contestants

    params = jax.tree.map(np.asarray, params)
    spec = transformer_spec.TransformerSpec.from_config(
        (config.encoder_layers, config.decoder_layers),
        config.num_heads,
        pre_norm=config.norm == "pre",
        activation=common_spec.Activation[config.activation.upper()],
    )
    stacks = [
        (spec.encoder, params.encoder, params.embedding.source_positions),
        (spec.decoder, params.decoder, params.embedding.target_positions),
    ]
    for stack_spec, stack, learned in stacks:
        stack_spec.scale_embeddings = True
        # Its own table has all sines before all cosines; ours must travel with the weights.
        positions = position_encoding(config, learned, np.arange(max_length))
        stack_spec.position_encodings.encodings = np.asarray(positions)
        if stack.norm is not None:
            set_norm(stack_spec.layer_norm, stack.norm)
        for layer_spec, layer in zip(stack_spec.layer, unstack(stack)):
            set_layer(layer_spec, layer)
    source, target, output = tables(params.embedding)
    spec.encoder.embeddings[0].weight = source
    spec.decoder.embeddings.weight = target
    fuse(spec.decoder.projection, (output, params.embedding.output_bias))

    names = vocabulary(config.target_vocab_size)
    spec.register_source_vocabulary(vocabulary(config.source_vocab_size))
    spec.register_target_vocabulary(names)
    spec.config.bos_token = spec.config.decoder_start_token = names[BOS]
    spec.config.eos_token, spec.config.unk_token = names[EOS], names[UNKNOWN]
    spec.config.add_source_bos, spec.config.add_source_eos = False, True
    spec.config.layer_norm_epsilon = config.norm_epsilon
    spec.validate()
    spec.optimize()
    folder.mkdir(parents=True, exist_ok=True)
    spec.save(str(folder))


def vocabulary(size: int) -> list[str]:
    """A name for each id."""
    special = {PAD: "<blank>", BOS: "<s>", EOS: "</s>", UNKNOWN: "<unk>"}
    return [special.get(number, f"token{number}") for number in range(size)]


def open_translator(folder: Path, compute_type: str, threads: int, workers: int = 1) -> Translator:
    """The model on the CPU: `workers` batches at a time, each on `threads`."""
    return Translator(
        str(folder),
        device="cpu",
        compute_type=compute_type,
        inter_threads=workers,
        intra_threads=threads,
    )


def set_layer(
    spec: "TransformerEncoderLayerSpec | TransformerDecoderLayerSpec",
    layer: Layer,
) -> None:
    queries, keys, values = inward(layer.self_attention)
    fuse(spec.self_attention.linear[0], queries, keys, values)
    fuse(spec.self_attention.linear[1], outward(layer.self_attention))
    set_norm(spec.self_attention.layer_norm, layer.self_attention_norm)
    if layer.cross_attention is not None:
        queries, keys, values = inward(layer.cross_attention)
        fuse(spec.attention.linear[0], queries)
        fuse(spec.attention.linear[1], keys, values)
        fuse(spec.attention.linear[2], outward(layer.cross_attention))
        set_norm(spec.attention.layer_norm, layer.cross_attention_norm)
    fuse(spec.ffn.linear_0, (layer.feed_forward.w_1.T, layer.feed_forward.b_1))
    fuse(spec.ffn.linear_1, (layer.feed_forward.w_2.T, layer.feed_forward.b_2))
    set_norm(spec.ffn.layer_norm, layer.feed_forward_norm)


Linear = tuple[np.ndarray, np.ndarray | None]
"""A weight as [outputs, inputs], and its bias."""


def inward(attention: Attention) -> list[Linear]:
    """The projections to queries, keys and values."""
    weights = (attention.w_q, attention.w_k, attention.w_v)
    biases = (attention.b_q, attention.b_k, attention.b_v)
    return [
        (weight.reshape(len(weight), -1).T, None if bias is None else bias.reshape(-1))
        for weight, bias in zip(weights, biases)
    ]


def outward(attention: Attention) -> Linear:
    """The projection of the heads' values to the output."""
    return attention.w_o.reshape(-1, attention.w_o.shape[-1]).T, attention.b_o


def fuse(spec: "LinearSpec", *parts: Linear) -> None:
    """Sets a linear layer to several with the same input, one below the other."""
    spec.weight = np.ascontiguousarray(np.concatenate([weight for weight, _ in parts]))
    if parts[0][1] is not None:
        spec.bias = np.concatenate([bias for _, bias in parts])


def set_norm(spec: "LayerNormSpec", norm: Norm) -> None:
    spec.gamma, spec.beta = norm.scale, norm.bias
