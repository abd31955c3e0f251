"""Our weights as a CTranslate2 model, which runs without JAX, and as a package of Argos Translate.

https://opennmt.net/CTranslate2; the layout is that of its ctranslate2.specs.transformer_spec.
"""

import json
import zipfile
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

try:
    from ctranslate2 import Translator
except ModuleNotFoundError:
    Translator = None  # `require` says so

from transformer.config import ModelConfig
from transformer.data.languages import base_of, name_of, read_code, script_code
from transformer.data.piece_tokenizer import PieceTokenizer
from transformer.data.tag_names import code_of
from transformer.data.tags import known_tags
from transformer.data.tokenizer import Tokenizer
from transformer.decoding.batches import longest_text, search_length
from transformer.decoding.shortlist import FREQUENT, Lexicon
from transformer.errors import UserError
from transformer.interchange.model import longest_sequence, new_output
from transformer.interchange.standalone import FINAL_SIGMA, standalone_model, tag_piece
from transformer.interchange.supported import ANY, SHAPE, TRAINING, check_held, not_held
from transformer.machine.files import atomic_file, write_text
from transformer.model.batch import BOS, EOS, PAD, UNK
from transformer.model.layers import sinusoids
from transformer.model.params import Attention, Layer, Norm, Params, tables, unstack
from transformer.runs.load import Run

if TYPE_CHECKING:
    from ctranslate2.specs.common_spec import LayerNormSpec
    from ctranslate2.specs.transformer_spec import (
        TransformerDecoderLayerSpec,
        TransformerEncoderLayerSpec,
        TransformerSpec,
    )

    LayerSpec = TransformerEncoderLayerSpec | TransformerDecoderLayerSpec

ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "gelu_tanh": "GELUTanh", "swish": "SWISH"}
HELD: dict[str, Collection | None] = {
    **SHAPE,
    **TRAINING,
    "norm": ("pre", "post"),
    "norm_epsilon": ANY,
    "activation": ACTIVATIONS,
    "positions": ("sinusoidal", "learned", "rotary"),
}
"""Settings of `model` that a CTranslate2 model can hold, and their values."""
HELD_OF_SEARCH = {"forbidden", "max_source_length", "batch_sentences", "dtype"}
"""Settings of `decode` that are part of the model, or change no translation."""
OUT_OF_REACH = -1e4
"""The logit's bias of what is never chosen; 16 bits can hold it."""


def require() -> None:
    """Raises UserError where CTranslate2 is not installed."""
    if Translator is None:
        raise UserError("CTranslate2 is not installed: pip install ctranslate2")


def model_spec(
    config: ModelConfig,
    params: Params,
    names: tuple[Sequence[str], Sequence[str]],
    max_length: int,
    forbidden: Sequence[int] = (),
) -> "TransformerSpec":
    """The CTranslate2 model; positions for sentences of at most `max_length`.

    `names`: for each id of source and target a name of its own. PAD, BOS and forbidden ids are
    never chosen; their probability goes to the other tokens. Raises UserError for settings that
    CTranslate2 does not have.
    """
    check_held(config, HELD, "a CTranslate2 model")
    params = jax.tree.map(np.array, params)  # copies, since quantization writes into them
    spec = empty_spec(config)
    stacks = [
        (spec.encoder, params.encoder, params.embedding.source_positions),
        (spec.decoder, params.decoder, params.embedding.target_positions),
    ]
    for stack_spec, stack, learned in stacks:
        stack_spec.scale_embeddings = config.embedding_scale
        if config.positions != "rotary":
            # Its own table has all sines before all cosines; ours must be saved with the weights.
            own = sinusoids(jnp.arange(max_length), config.d_model) if learned is None else learned
            table: Any = stack_spec.position_encodings  # its class declares text
            table.encodings = np.asarray(own)
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
    return spec


def empty_spec(config: ModelConfig) -> "TransformerSpec":
    """A CTranslate2 model of this shape, without weights."""
    from ctranslate2.specs import common_spec, transformer_spec  # with torch: not for contestants

    shape: dict[str, Any] = {
        "num_heads": config.num_heads,
        "pre_norm": config.norm == "pre",
        "activation": getattr(common_spec.Activation, ACTIVATIONS[config.activation]),
        "rotary_dim": 0 if config.positions == "rotary" else None,  # 0: all features of a head
    }
    return transformer_spec.TransformerSpec(
        transformer_spec.TransformerEncoderSpec(config.encoder_layers, **shape),
        transformer_spec.TransformerDecoderSpec(config.decoder_layers, **shape),
    )


def save_model(spec: "TransformerSpec", folder: Path, quantization: str = "none") -> None:
    """Writes the model's folder."""
    spec.validate()
    spec.optimize(quantization=None if quantization == "none" else quantization)
    folder.mkdir(parents=True, exist_ok=True)
    spec.save(str(folder))


def save_translator(model: Run, folder: Path, quantization: str, tag: str = "") -> None:
    """A translator's weights, and the SentencePiece models that cut and join its text.

    With a target tag it is a model of this one language: CTranslate2 puts the tag before all text.
    """
    config, (source, target) = model.config, model.tokenizers
    names, length = tuple(map(token_names, model.tokenizers)), longest_sequence(config)
    spec = model_spec(config.model, model.params, names, length, config.decode.forbidden)
    save_model(spec, folder, quantization)
    (folder / "source.spm").write_bytes(standalone_model(source, keeps_tags=not tag))
    (folder / "target.spm").write_bytes(standalone_model(target))
    if tag:
        path = folder / "config.json"
        fields = json.loads(path.read_text(encoding="utf-8"))
        fields |= {"add_source_bos": True, "bos_token": tag_piece(tag)}
        path.write_text(json.dumps(fields, indent=2) + "\n", encoding="utf-8")


def save_vocabulary_map(
    model: Run, lexicon: Lexicon, count: int, common: int, folder: Path, tag: str = ""
) -> None:
    """Writes vmap.txt, from which CTranslate2 makes the shortlist of a batch (use_vmap): for each
    source token the `count` likeliest target tokens, for all sentences the `common` most frequent
    ones, or if that is 0 as many as `decode.shortlist` has, and those of EOS and the target tag,
    which CTranslate2 adds after it has looked up the tokens of the text."""
    source, target = map(token_names, model.tokenizers)
    likely = [row[row != PAD][:count] for row in lexicon.likely]
    added = [EOS, *([source.index(tag_piece(tag))] if tag else [])]
    frequent = lexicon.frequent[: common or count * search_length(1) // FREQUENT]
    always = np.concatenate([frequent, *(likely[token] for token in added)])
    rows = [("", dict.fromkeys(always.tolist())), *zip(source, likely)]
    lines = [f"{name}\t{' '.join(target[token] for token in row)}" for name, row in rows]
    write_text(folder / "vmap.txt", "".join(f"{line}\n" for line in lines))


def argos_code(code: str) -> str:
    """Argos Translate's code of a language: that of ISO 639, except for traditional Chinese."""
    return "zt" if (base_of(code), script_code(code)) == ("zh", "Hant") else base_of(code)


def save_package(model: Run, file: Path, quantization: str, tag: str = "") -> None:
    """Writes a package of Argos Translate, which LibreTranslate installs too: a zip archive of one
    folder with a CTranslate2 model, the SentencePiece model of the source, and metadata
    (https://github.com/argosopentech/argos-translate, argostranslate/package.py).

    It has one language pair: of a model with target tags, `tag` is that of its language. Raises
    UserError for what Argos Translate could not use.
    """
    data = model.config.data
    if file.suffix != ".argosmodel":
        raise UserError(f"{file}: Argos Translate needs a name that ends in .argosmodel")
    if (tags := model.tokenizers.source.tags) and not tag:
        raise UserError(
            "a package of Argos Translate has one target language, and this model has several: "
            f"choose one with --target ({known_tags(tags)})"
        )
    languages = {"source": data.source, "target": code_of(tag) if tag else data.target}
    for side in data.sides:
        if read_code(code := languages[side]) is None:
            raise UserError(f"data.{side} ({code!r}) must be a language's code, such as en")
    source, target = map(argos_code, languages.values())
    metadata = {
        "package_version": "1.0",
        "argos_version": "1.9",
        "from_code": source,
        "from_name": name_of(data.source),
        "to_code": target,
        "to_name": name_of(languages["target"]),
    }
    with (
        new_output(file, atomic_file) as archive,
        TemporaryDirectory(prefix=f".{file.name}-", dir=file.parent) as temporary,
    ):
        root = Path(temporary) / f"translate-{source}_{target}-1_0"
        save_translator(_without_bytes(model), root / "model", quantization, tag)
        (root / "sentencepiece.model").write_bytes(standalone_model(model.tokenizers.source))
        text = json.dumps(metadata, indent=2) + "\n"
        (root / "metadata.json").write_text(text, encoding="utf-8")
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as package:
            for path in sorted(root.rglob("*")):
                package.write(path, path.relative_to(temporary))


def _without_bytes(model: Run) -> Run:
    """The model that chooses no piece of data.byte_fallback, such as <0xE6>: Argos Translate writes
    its name as text."""
    decode = model.config.decode
    forbidden = {*decode.forbidden, *model.tokenizers.target.byte_ids}
    decode = replace(decode, forbidden=tuple(sorted(forbidden)))
    return replace(model, config=replace(model.config, decode=decode))


def not_carried(model: Run, tag: str = "") -> list[str]:
    """What an exported translator loses, or leaves to the program that uses it: a sentence each."""
    source, target = model.tokenizers
    decode = model.config.decode
    search = [f"decode.{name} {getattr(decode, name)}" for name in ("beam_size", "alpha")]
    search += [one for one in not_held(decode, HELD_OF_SEARCH) if one not in search]
    found = [f"the program that loads it sets the search, not {', '.join(search)}"]
    if model.config.model.positions != "rotary":
        most = longest_text([model.config.model], decode)
        found.append(f"a text may have at most {most:,} tokens: split longer ones")
    if source.tags and not tag:
        example, known = f"{source.tags[0]} A text.", known_tags(source.tags)
        found.append(f"each text must begin with a target tag and a space: {example} ({known})")
    if source.lowercase and any(FINAL_SIGMA in name for name in token_names(source)):
        found.append(f"a capital sigma at the end of a word becomes \u03c3, not {FINAL_SIGMA}")
    if isinstance(target, PieceTokenizer) and target.vocabulary.cleans_up:
        found.append("spaces before punctuation are kept (clean_up_tokenization_spaces)")
    return found


def token_names(tokenizer: Tokenizer) -> list[str]:
    """The piece of each id; one without a name, or with another's, is named by its id. Target tags
    have the names that source.spm gives them."""
    names, taken, tags = [], set(), {*tokenizer.tags}
    for number, piece in enumerate(tokenizer.pieces(range(tokenizer.vocab_size))):
        name = tag_piece(piece) if piece in tags else piece
        names.append(name if name and name not in taken else f"<{number}>")
        taken.add(names[-1])
    return names


def open_translator(
    folder: Path, compute_type: str, threads: int, workers: int = 1, device: str = "cpu"
) -> Translator:
    """The model on the CPU, or on the GPU ("cuda"): `workers` batches at a time, on a CPU each on
    `threads`."""
    open_model: Any = Translator
    return open_model(
        str(folder),
        device=device,
        compute_type=compute_type,
        inter_threads=workers,
        intra_threads=threads,
    )


@dataclass(frozen=True)
class Search:
    """How CTranslate2 searches: without length penalty, for at most `limit` tokens, EOS included;
    with `use_vmap`, among the tokens of vmap.txt."""

    beam_size: int
    limit: int
    batch_type: str = "examples"
    batch_size: int = 32
    use_vmap: bool = False


def search(
    translator: Translator, rows: Sequence[Sequence[str]], settings: Search
) -> list[list[str]]:
    """The pieces of the best translation of each row of pieces, without EOS on either side."""
    results = translator.translate_batch(
        rows,
        batch_type=settings.batch_type,
        max_batch_size=settings.batch_size,
        beam_size=settings.beam_size,
        length_penalty=0,
        max_input_length=0,
        min_decoding_length=0,
        max_decoding_length=settings.limit,
        use_vmap=settings.use_vmap,
    )
    return [result.hypotheses[0] for result in results]


def set_layer(spec: "LayerSpec", layer: Layer) -> None:
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


Linear = tuple[Any, Any]
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


def fuse(spec: Any, *parts: Linear) -> None:
    """Sets a linear layer to several with the same input, one below the other."""
    spec.weight = np.ascontiguousarray(np.concatenate([weight for weight, _ in parts]))
    if parts[0][1] is not None:
        spec.bias = np.concatenate([bias for _, bias in parts])


def set_norm(spec: "LayerNormSpec", norm: Norm) -> None:
    """Sets a layer normalisation to the scale and bias of ours."""
    spec.gamma, spec.beta = norm.scale, norm.bias
