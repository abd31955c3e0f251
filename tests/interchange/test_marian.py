"""MarianMTModels in and out, against transformers."""

import json
import os
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from marian_models import ODD, SHAPES

torch = pytest.importorskip("torch", reason="torch is in the extra `oracles`")
transformers = pytest.importorskip("transformers", reason="it is in the extra `oracles`")

from transformer.config import Config, DataConfig, DecodeConfig
from transformer.data.tokenizer import train_tokenizer
from transformer.data.vocabularies import Tokenizers, load_tokenizers, save_tokenizers
from transformer.decoding.translator import hypotheses, make_translator
from transformer.interchange.marian import read_marian, write_marian
from transformer.interchange.weights import open_weights
from transformer.model.batch import BOS, EOS, Batch
from transformer.model.encoder_decoder import predict
from transformer.model.params import init_params
from transformer.runs.load import Run

pytestmark = pytest.mark.slow  # needs an extra

SENTENCES = int(os.environ.get("SENTENCES", "40"))
"""How many are translated for each shape."""


def tokenizer_of(folder):
    return transformers.MarianTokenizer.from_pretrained(folder)


def our_ids(tokenizer, rows):
    """Their ids as ours; PAD of the encoder stays PAD."""
    pieces = tokenizer.vocabulary
    table = {theirs: ours for ours, theirs in enumerate(pieces.order)} | {pieces.pad: 0}
    return jnp.asarray([[table[token] for token in row] for row in rows])


@pytest.mark.parametrize("name", SHAPES)
def test_logits_are_those_of_transformers(marian_folder, pairs, name):
    folder, theirs = marian_folder(name)
    ours = read_marian(folder)
    encoded = tokenizer_of(folder)([s for s, _ in pairs[:8]], return_tensors="pt", padding=True)
    pieces = ours.tokenizers.target.vocabulary
    generator = torch.Generator().manual_seed(0)
    words = torch.randint(2, len(pieces.names) - 4, (8, 9), generator=generator)
    target = torch.cat([torch.full((8, 1), pieces.start), words], 1)
    with torch.no_grad():
        expected = theirs(**encoded, decoder_input_ids=target).logits.numpy()
    table = {number: ours for ours, number in enumerate(pieces.order)}
    target_in = jnp.asarray([[table[token] for token in row] for row in target.tolist()])
    assert (target_in[:, 0] == BOS).all()
    source = our_ids(ours.tokenizers.source, encoded["input_ids"].tolist())
    batch = Batch(source, target_in, target_in)
    found = jax.jit(predict, static_argnums=0)(ours.config.model, ours.params, batch)
    order = np.array(pieces.order)
    difference = np.abs(np.asarray(found)[..., order >= 0] - expected[..., order[order >= 0]])
    assert difference.max() < 1e-4


GENERATIONS = {
    "greedy": {"num_beams": 1},
    "beam 4": {},
    "beam 3, no length penalty, full": {
        "num_beams": 3, "length_penalty": 0.0, "early_stopping": True,
    },
    "renormalised, short words forbidden": {
        "renormalize_logits": True, "length_penalty": 0.6, "bad_words_ids": "some",
    },
    "repetitions": {"no_repeat_ngram_size": 2},
    "repetitions, greedy": {"num_beams": 1, "no_repeat_ngram_size": 3, "min_length": 12},
    "repetition penalty": {"repetition_penalty": 1.7, "length_penalty": 0.8},
    "without a forced end": {"forced_eos_token_id": None, "max_length": 40},
}  # fmt: skip
SEARCHES = [(name, "beam 4") for name in SHAPES if name != "as OPUS-MT"]
SEARCHES += [("as OPUS-MT", how) for how in GENERATIONS]


@pytest.mark.parametrize("name, how", SEARCHES)
def test_translations_and_their_scores_are_those_of_transformers(marian_folder, pairs, name, how):
    changes = dict(GENERATIONS[how])
    if changes.get("bad_words_ids") == "some":
        vocabulary = json.loads((marian_folder(name)[0] / "vocab.json").read_text())
        changes["bad_words_ids"] = [[vocabulary["<pad>"]], [20], [30], [40]]
    folder, theirs = marian_folder(name, generation=changes)
    model, tokenizer = read_marian(folder), tokenizer_of(folder)
    sentences = [source for source, _ in pairs[:SENTENCES]]
    beam = model.config.decode.beam_size
    translator = make_translator(model.config, model.params, model.tokenizers)
    ours = hypotheses(translator, sentences, beam)
    encoded = tokenizer(sentences, return_tensors="pt", padding=True)
    with torch.no_grad():
        out = theirs.generate(
            **encoded, num_return_sequences=beam, return_dict_in_generate=True, output_scores=True
        )
    texts = tokenizer.batch_decode(out.sequences, skip_special_tokens=True)
    lengths = {len(hypothesis.tokens) for found in ours for hypothesis in found}
    assert len(lengths) > 1 or beam == 1, "they should not all end at once"
    for number, found in enumerate(ours):
        rows = slice(number * beam, (number + 1) * beam)
        assert [hypothesis.text for hypothesis in found] == texts[rows]
        if beam > 1:
            scores = out.sequences_scores[rows].numpy()
            np.testing.assert_allclose([h.score for h in found], scores, atol=1e-4)


@pytest.mark.parametrize("name", SHAPES)
def test_out_and_in_again_are_the_same_arrays_bit_for_bit(marian_folder, tmp_path, name):
    folder, theirs = marian_folder(name)
    model = read_marian(folder)
    again = tmp_path / "again"
    again.mkdir()
    write_marian(again, model, "a card")
    first, second = (open_weights(place / "model.safetensors") for place in (folder, again))
    for array in second.shapes:
        if array in first.shapes:
            np.testing.assert_array_equal(first.read(array), second.read(array), array)
    assert len(set(first.shapes) - set(second.shapes)) <= 2  # a table under its other names
    back = read_marian(again)
    jax.tree.map(np.testing.assert_array_equal, back.params, model.params)
    assert back.tokenizers == model.tokenizers
    assert back.config.model == model.config.model
    loaded = transformers.MarianMTModel.from_pretrained(again)
    with torch.no_grad():
        before, after = theirs.state_dict(), loaded.state_dict()
        for array in before.keys() & after.keys():
            assert torch.equal(before[array], after[array]), array


@pytest.mark.parametrize("name", ["as OPUS-MT", "two vocabularies"])
def test_ids_and_texts_are_those_of_their_tokenizer(marian_folder, pairs, name):
    folder, _ = marian_folder(name)
    ours, theirs = read_marian(folder).tokenizers, tokenizer_of(folder)
    sources, targets = [source for source, _ in pairs] + ODD, [target for _, target in pairs] + ODD
    order = ours.source.vocabulary.order
    assert [[order[i] for i in row] for row in ours.source.rows(sources)] == theirs(sources)[
        "input_ids"
    ]
    rows = ours.target.rows(targets)
    order = ours.target.vocabulary.order
    assert [[order[i] for i in row] for row in rows] == theirs(text_target=targets)["input_ids"]
    in_theirs = [[order[i] for i in row] for row in rows]
    expected = theirs.batch_decode(in_theirs, skip_special_tokens=True)
    assert ours.target.decode(rows) == expected


@pytest.mark.parametrize("cleans_up", [True, False])
def test_blanks_before_punctuation_stay_unless_the_folder_says_otherwise(
    marian_folder, tmp_path, cleans_up
):
    folder, _ = marian_folder()
    path = folder / "tokenizer_config.json"
    fields = json.loads(path.read_text()) | {"clean_up_tokenization_spaces": cleans_up}
    path.write_text(json.dumps(fields))
    model, theirs = read_marian(folder), tokenizer_of(folder)
    texts = ["it 's a dog , they 've n't ' s ' !", "a . b ? c ! d ' m 're ,", "le chat ?!"]
    rows = model.tokenizers.target.rows(texts)
    order = model.tokenizers.target.vocabulary.order
    expected = theirs.batch_decode(
        [[order[i] for i in row] for row in rows], skip_special_tokens=True
    )
    found = model.tokenizers.target.decode(rows)
    assert found == expected and any(" ," in text for text in found) != cleans_up
    save_tokenizers(model.tokenizers, tmp_path / "run")
    assert load_tokenizers(tmp_path / "run", model.config.data) == model.tokenizers
    write_marian(tmp_path, model, "")
    assert read_marian(tmp_path).tokenizers == model.tokenizers


def test_lower_casing_goes_along(marian_folder, pairs, tmp_path):
    model = read_marian(marian_folder()[0])
    texts = [source for source, _ in pairs[:200]]
    tokenizer = train_tokenizer(texts, "unigram", 150, DataConfig(lowercase=True))
    size = tokenizer.vocab_size
    config = replace(model.config.model, source_vocab_size=size, target_vocab_size=size)
    params = init_params(config, jax.random.key(0))
    config = replace(model.config, model=config)
    write_marian(tmp_path, Run(config, params, Tokenizers(tokenizer, tokenizer)), "")
    texts = ["THE DOG", "The Straße", "E\u0301cole", *texts[:20]]
    assert tokenizer_of(tmp_path)(texts)["input_ids"] == tokenizer.rows(texts)


@pytest.mark.parametrize("side", ["source", "target"])
def test_pieces_without_ids_are_counted(marian_folder, side):
    folder, _ = marian_folder("two vocabularies")
    name = "vocab.json" if side == "source" else "target_vocab.json"
    ids = json.loads((folder / name).read_text())
    lost = next(piece for piece in ids if len(piece) > 3 and piece.startswith("\u2581"))
    (folder / name).write_text(json.dumps({p: n for p, n in ids.items() if p != lost}))
    with pytest.warns(UserWarning, match=rf"{side}\.spm: 1 of 148 pieces have no id in {name}"):
        read_marian(folder)


def test_every_row_ends_and_a_tag_is_one_token(marian_folder):
    tokenizer = read_marian(marian_folder()[0]).tokenizers.source
    plain, tagged = tokenizer.rows(["the dog", ">>fra<<the dog"])
    assert plain[-1] == EOS and tagged[1:] == plain
    assert tokenizer.pieces(tagged[:1]) == [">>fra<<"]


def test_half_precision_and_other_names_of_shared_tables_are_read(marian_folder):
    folder, theirs = marian_folder()
    expected = read_marian(folder)
    state = {name: tensor.half() for name, tensor in theirs.state_dict().items()}
    del state["model.shared.weight"], state["lm_head.weight"]
    (folder / "model.safetensors").unlink()
    torch.save(state, folder / "pytorch_model.bin")
    found = read_marian(folder)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=2e-3), found.params, expected.params
    )
    assert all(leaf.dtype == np.float32 for leaf in jax.tree.leaves(found.params))


OLD_CONFIG = {
    "_name_or_path": "/tmp/Helsinki-NLP/opus-mt-en-de", "_num_labels": 3,
    "activation_dropout": 0.0, "add_bias_logits": False, "add_final_layer_norm": False,
    "architectures": ["MarianMTModel"], "classif_dropout": 0.0, "classifier_dropout": 0.0,
    "do_blenderbot_90_layernorm": False, "encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0,
    "force_bos_token_to_be_generated": False, "gradient_checkpointing": False,
    "id2label": {"0": "LABEL_0"}, "is_encoder_decoder": True, "label2id": {"LABEL_0": 0},
    "normalize_before": False, "normalize_embedding": False, "static_position_embeddings": True,
    "use_cache": True, "bos_token_id": 0, "num_beams": 6, "max_length": 16,
    "transformers_version": "4.12.0.dev0",
}  # fmt: skip
"""What folders of OPUS-MT hold besides the sizes, from the time before generation_config.json."""


def test_a_folder_from_before_generation_configs_is_read(marian_folder, pairs):
    folder, theirs = marian_folder(generation={"num_beams": 6})
    fields = json.loads((folder / "config.json").read_text())
    pad = fields["pad_token_id"]
    more = {"extra_pos_embeddings": pad + 1, "bad_words_ids": [[pad]], "forced_eos_token_id": 0}
    (folder / "config.json").write_text(json.dumps(fields | OLD_CONFIG | more))
    for name in ("generation_config.json", "tokenizer_config.json", "model.safetensors"):
        (folder / name).unlink()
    path = folder / "pytorch_model.bin"
    torch.save(theirs.state_dict(), path, _use_new_zipfile_serialization=False)
    model = read_marian(folder, "en", "de")
    assert model.config.model.positions == "sinusoidal"
    assert (model.config.decode.beam_size, model.config.decode.max_length) == (6, 15)
    sentences = [source for source, _ in pairs[:10]]
    found = hypotheses(make_translator(model.config, model.params, model.tokenizers), sentences)
    tokenizer = tokenizer_of(folder)
    with torch.no_grad():
        out = theirs.generate(**tokenizer(sentences, return_tensors="pt", padding=True))
    expected = tokenizer.batch_decode(out, skip_special_tokens=True)
    assert [best[0].text for best in found] == expected


def test_positions_that_are_no_sinusoids_are_learned_ones(marian_folder):
    folder, theirs = marian_folder()
    state = theirs.state_dict()
    state["model.encoder.embed_positions.weight"] = torch.randn(400, 32)
    (folder / "model.safetensors").unlink()
    torch.save(state, folder / "pytorch_model.bin")
    model = read_marian(folder)
    assert model.config.model.positions == "learned"
    assert model.params.embedding.source_positions.shape == (400, 32)


def test_settings_that_it_cannot_have_are_refused(marian_folder, tmp_path):
    model = read_marian(marian_folder()[0])
    for section, change, word in [
        ("model", {"norm": "pre"}, r"model.norm \(pre\) must be post.*to-safetensors"),
        ("model", {"positions": "relative"}, r"model.positions \(relative\)"),
        ("model", {"classes": 3}, r"model.classes \(3\)"),
        ("model", {"norm_epsilon": 1e-3}, "norm_epsilon"),
        ("decode", {"normalisation": "gnmt"}, "--decode.normalisation length"),
    ]:
        changed = replace(getattr(model.config, section), **change)
        other = replace(model, config=replace(model.config, **{section: changed}))
        with pytest.raises(Exception, match=word):
            write_marian(tmp_path, other, "")
    assert not list(tmp_path.iterdir())


def test_target_tags_of_ours_are_those_of_their_tokenizer(
    pairs, small_model, random_params, tmp_path
):
    data = DataConfig(target="de", targets=("de", "zh_Hant"))
    texts = [f">>{target}<< {text}" for target in data.targets for text, _ in pairs]
    tokenizer = train_tokenizer(texts, "unigram", 200, data)
    size = tokenizer.vocab_size
    model = small_model(source_vocab_size=size, target_vocab_size=size, norm="post")
    decode = DecodeConfig(normalisation="length", alpha=1.0)
    both = Tokenizers(tokenizer, tokenizer)
    run = Run(Config(model, data, decode=decode), random_params(model), both)
    write_marian(tmp_path, run, "a card")
    asked = [*texts[:9], *texts[-9:], ">>de<<the dog"]
    assert tokenizer_of(tmp_path)(asked)["input_ids"] == tokenizer.rows(asked)
    back = read_marian(tmp_path).tokenizers.source
    assert back.tags == tokenizer.tags == (">>de<<", ">>zh_Hant<<")
    ours = [tokenizer.pieces(row) for row in tokenizer.rows(asked)]
    theirs = [back.pieces(row) for row in back.rows(asked)]
    assert [[piece.lstrip("\u2581") for piece in row] for row in ours] == [
        [piece.lstrip("\u2581") for piece in row] for row in theirs
    ]
