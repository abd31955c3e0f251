"""Our weights as a CTranslate2 model, which serves translators without JAX.

https://opennmt.net/CTranslate2; the layout is that of its ctranslate2.specs.transformer_spec.
"""

import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

try:
    from ctranslate2 import Translator
except ModuleNotFoundError:
    Translator = None  # `require` says so

from transformer.config import ModelConfig
from transformer.data.piece_tokenizer import PieceTokenizer
from transformer.data.tags import known_tags
from transformer.data.tokenizer import Tokenizer
from transformer.errors import UserError
from transformer.interchange.model import longest_sequence
from transformer.interchange.standalone import FINAL_SIGMA, standalone_model, tag_piece
from transformer.interchange.supported import ANY, SHAPE, TRAINING, check_held, not_held
from transformer.model.batch import BOS, EOS, PAD, UNK
from transformer.model.layers import sinusoids
from transformer.model.params import Attention, Layer, Norm, Params, tables, unstack
from transformer.runs.load import Run

if TYPE_CHECKING:
    from ctranslate2.specs.common_spec import LayerNormSpec, LinearSpec
    from ctranslate2.specs.transformer_spec import (
        TransformerDecoderLayerSpec,
        TransformerEncoderLayerSpec,
    )

ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "gelu_tanh": "GELUTanh", "swish": "SWISH"}
HELD: dict[str, Collection | None] = {
    **SHAPE,
    **TRAINING,
    "norm": ("pre", "post"),
    "norm_epsilon": ANY,
    "activation": ACTIVATIONS,
    "positions": ("sinusoidal", "learned"),
}
"""Settings of `model` that a CTranslate2 model has a place for, and their values."""
HELD_OF_SEARCH = {"forbidden", "max_source_length", "batch_sentences", "dtype"}
"""Settings of `decode` that are part of the model, or change no translation."""
OUT_OF_REACH = -1e4
"""The logit's bias of what is never chosen; 16 bits can hold it."""


def require() -> None:
    """Raises UserError where CTranslate2 is not installed."""
    if Translator is None:
        raise UserError("CTranslate2 is not installed: pip install ctranslate2")


def save_model(
    config: ModelConfig,
    params: Params,
    folder: Path,
    names: tuple[Sequence[str], Sequence[str]],
    max_length: int,
    quantization: str = "none",
    forbidden: Sequence[int] = (),
) -> None:
    """Writes the CTranslate2 model folder; positions for sentences of at most `max_length`.

    `names`: for each id of source and target a name of its own. PAD, BOS and what else is forbidden
    are never chosen; their probability goes to the other tokens. Raises UserError for settings
    that CTranslate2 does not have.
    """
    from ctranslate2.specs import common_spec, transformer_spec  # with torch: not for contestants

    check_held(config, HELD, "a CTranslate2 model")
    params = jax.tree.map(np.array, params)  # copies, since quantization writes into them
    spec = transformer_spec.TransformerSpec.from_config(
        (config.encoder_layers, config.decoder_layers),
        config.num_heads,
        pre_norm=config.norm == "pre",
        activation=getattr(common_spec.Activation, ACTIVATIONS[config.activation]),
    )
    stacks = [
        (spec.encoder, params.encoder, params.embedding.source_positions),
        (spec.decoder, params.decoder, params.embedding.target_positions),
    ]
    for stack_spec, stack, learned in stacks:
        stack_spec.scale_embeddings = config.embedding_scale
        # Its own table has all sines before all cosines; ours must travel with the weights.
        encoding = sinusoids(jnp.arange(max_length), config.d_model) if learned is None else learned
        stack_spec.position_encodings.encodings = np.asarray(encoding)
        if stack.norm is not None:
            set_norm(stack_spec.layer_norm, stack.norm)
        for layer_spec, layer in zip(stack_spec.layer, unstack(stack)):
            set_layer(layer_spec, layer)
    source, target, output = tables(params.embedding)
    spec.encoder.embeddings[0].weight = source
    spec.decoder.embeddings.weight = target
    bias = params.embedding.output_bias
    bias = np.zeros(len(output), np.float32) if bias is None else np.array(bias)
    bias[[PAD, BOS, *forbidden]] = OUT_OF_REACH
    fuse(spec.decoder.projection, (output, bias))

    source_names, target_names = names
    spec.register_source_vocabulary(list(source_names))
    spec.register_target_vocabulary(list(target_names))
    spec.config.bos_token = spec.config.decoder_start_token = target_names[BOS]
    spec.config.eos_token, spec.config.unk_token = target_names[EOS], target_names[UNK]
    spec.config.add_source_bos, spec.config.add_source_eos = False, True
    spec.config.layer_norm_epsilon = config.norm_epsilon
    spec.validate()
    spec.optimize(quantization=None if quantization == "none" else quantization)
    folder.mkdir(parents=True, exist_ok=True)
    spec.save(str(folder))


def save_translator(model: Run, folder: Path, quantization: str, tag: str = "") -> None:
    """A translator's weights, and the SentencePiece models that cut and join its text.

    With a target tag it is a model of this one language: CTranslate2 puts the tag before all text.
    """
    config, (source, target) = model.config, model.tokenizers
    save_model(
        config.model,
        model.params,
        folder,
        tuple(map(token_names, model.tokenizers)),
        max_length=longest_sequence(config),
        quantization=quantization,
        forbidden=config.decode.forbidden,
    )
    (folder / "source.spm").write_bytes(standalone_model(source, keeps_tags=not tag))
    (folder / "target.spm").write_bytes(standalone_model(target))
    if tag:
        path = folder / "config.json"
        fields = json.loads(path.read_text(encoding="utf-8"))
        fields |= {"add_source_bos": True, "bos_token": tag_piece(tag)}
        path.write_text(json.dumps(fields, indent=2) + "\n", encoding="utf-8")


def not_carried(model: Run, tag: str = "") -> list[str]:
    """What a translator's export leaves to those who use it, or loses: a sentence for each."""
    source, target = model.tokenizers
    decode = model.config.decode
    search = [f"decode.{name} {getattr(decode, name)}" for name in ("beam_size", "alpha")]
    search += [one for one in not_held(decode, HELD_OF_SEARCH) if one not in search]
    found = [f"the search is that of the program that loads it, not {', '.join(search)}"]
    if source.tags and not tag:
        example, known = f"{source.tags[0]} A text.", known_tags(source.tags)
        found.append(f"each text begins with a target tag and a blank: {example} ({known})")
    if source.lowercase and any(FINAL_SIGMA in name for name in token_names(source)):
        found.append(f"a capital sigma at the end of a word becomes \u03c3, not {FINAL_SIGMA}")
    if isinstance(target, PieceTokenizer) and target.vocabulary.cleans_up:
        found.append("blanks before punctuation stay (clean_up_tokenization_spaces)")
    return found


def token_names(tokenizer: Tokenizer) -> list[str]:
    """The piece behind each id; one that has no name, or another's, is called by its id. Target
    tags are called as source.spm cuts them."""
    names, taken, tags = [], set(), {*tokenizer.tags}
    for number, piece in enumerate(tokenizer.pieces(range(tokenizer.vocab_size))):
        name = tag_piece(piece) if piece in tags else piece
        names.append(name if name and name not in taken else f"<{number}>")
        taken.add(names[-1])
    return names


def open_translator(folder: Path, compute_type: str, threads: int, workers: int = 1) -> Translator:
    """The model on the CPU: `workers` batches at a time, each on `threads`."""
    return Translator(
        str(folder),
        device="cpu",
        compute_type=compute_type,
        inter_threads=workers,
        intra_threads=threads,
    )


def search(
    translator: Translator,
    names: tuple[Sequence[str], Sequence[str]],
    rows: Sequence[Sequence[int]],
    beam_size: int,
    limit: int,
    batch_type: str = "examples",
    batch_size: int = 32,
) -> list[list[int]]:
    """The ids of the best translation of each row of source ids, without EOS on either side.

    No length penalty; at most `limit` tokens, EOS included; `names` as in `save_model`.
    """
    source_names, target_names = names
    ids = {name: number for number, name in enumerate(target_names)}
    pieces = [[source_names[token] for token in row] for row in rows]
    found = search_pieces(translator, pieces, beam_size, limit, batch_type, batch_size)
    return [[ids[name] for name in row] for row in found]


def search_pieces(
    translator: Translator,
    rows: Sequence[Sequence[str]],
    beam_size: int,
    limit: int,
    batch_type: str = "examples",
    batch_size: int = 32,
) -> list[list[str]]:
    """`search` from pieces to pieces."""
    results = translator.translate_batch(
        rows,
        batch_type=batch_type,
        max_batch_size=batch_size,
        beam_size=beam_size,
        length_penalty=0,
        max_input_length=0,
        min_decoding_length=0,
        max_decoding_length=limit,
    )
    return [result.hypotheses[0] for result in results]


def set_layer(
    spec: "TransformerEncoderLayerSpec | TransformerDecoderLayerSpec",
    layer: Layer,
) -> None:
    """Sets a layer of CTranslate2's to the weights of ours, sublayer by sublayer."""
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
    """Sets a layer normalisation to the scale and bias of ours."""
    spec.gamma, spec.beta = norm.scale, norm.bias
