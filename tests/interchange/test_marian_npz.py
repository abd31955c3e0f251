"""Models of the Marian toolkit: the logits of its formulas, its vocabularies and options, and what
is refused by name."""

import json
import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from marian_toolkit import OPTIONS, SHAPES, Toolkit, as_yaml, make_arrays, write_model

from transformer.config import DecodeConfig
from transformer.decoding.translator import make_translator, translate
from transformer.errors import UserError
from transformer.interchange.marian_npz import is_npz, read_npz
from transformer.model.batch import BOS, EOS, UNK, Batch
from transformer.model.encoder_decoder import predict

pytest.importorskip("yaml", reason="PyYAML is in the extra `convert`")

DECODER = """relative-paths: true
models:
  - model.npz
vocabs:
  - {0}
  - {1}
beam-size: 6
normalize: 0.7
word-penalty: 0
mini-batch: 16
maxi-batch: 100
maxi-batch-sort: src
"""


@pytest.fixture
def toolkit(tmp_path, spm):
    """A function from the name of a shape, and changes of options, to a folder and its model."""

    def build(name="as OPUS-MT", vocabulary="vocab.yml", **changes):
        options = OPTIONS | SHAPES[name] | {n.replace("_", "-"): v for n, v in changes.items()}
        rows = write_vocabularies(tmp_path, spm, vocabulary, separate="two" in name)
        options["dim-vocabs"] = list(rows)
        arrays = make_arrays(options, rows)
        write_model(tmp_path / "model.npz", options, arrays)
        return tmp_path, Toolkit(options, arrays)

    return build


def write_vocabularies(folder, spm, kind, separate):
    """Those of Marian: of a kind (vocab.yml, vocab.txt or vocab.spm); the sizes of both."""
    import sentencepiece

    def pieces_of(model):
        cutter = sentencepiece.SentencePieceProcessor(model_proto=model)
        return [cutter.id_to_piece(number) for number in range(cutter.vocab_size())]

    sides = {"source": spm["source"], "target": spm["target"] if separate else spm["source"]}
    stem, _, ending = kind.partition(".")
    names, sizes = [], []
    for side, model in sides.items():
        (folder / f"{side}.spm").write_bytes(model)
        pieces = pieces_of(model)
        if ending != "spm":
            pieces = ["</s>", "<unk>", *sorted({*pieces} - {"</s>", "<unk>"}), ">>fra<<"]
        name = f"{stem}.{side}.{ending}" if separate else kind
        ids = {piece: number for number, piece in enumerate(pieces)}
        if ending == "spm":
            (folder / name).write_bytes(model)
        elif ending == "txt":
            (folder / name).write_text("".join(f"{piece}\n" for piece in pieces))
        else:
            lines = (f"{json.dumps(piece, ensure_ascii=False)}: {n}" for piece, n in ids.items())
            (folder / name).write_text("\n".join(lines) + "\n")
        names.append(name)
        sizes.append(len(pieces))
    (folder / "decoder.yml").write_text(DECODER.format(*names))
    return tuple(sizes)


@pytest.mark.parametrize("name", SHAPES)
def test_logits_are_those_of_marians_formulas(toolkit, name):
    folder, theirs = toolkit(name)
    model = read_npz(folder, (), "en", "de")
    generator = random.Random(0)
    source_pieces, target_pieces = (side.vocabulary for side in model.tokenizers)
    source = [generator.randrange(2, len(source_pieces.names) - 1) for _ in range(7)] + [0]
    target = [generator.randrange(2, len(target_pieces.names) - 1) for _ in range(11)] + [0]
    expected = theirs.logits(source, target)
    ours = [{one: n for n, one in enumerate(side.order)} for side in (source_pieces, target_pieces)]
    source_row = [ours[0][token] for token in source]
    target_row = [BOS, *(ours[1][token] for token in target[:-1])]
    assert source_row[-1] == EOS
    batch = Batch(*(jnp.asarray([row]) for row in (source_row, target_row, target_row)))
    [found] = np.asarray(
        jax.jit(predict, static_argnums=0)(model.config.model, model.params, batch)
    )
    places = [ours[1][token] for token in range(expected.shape[1])]
    np.testing.assert_allclose(found[:, places], expected, atol=1e-4, rtol=0)
    log_probs = jax.nn.log_softmax(found)[:, places]
    np.testing.assert_allclose(log_probs, jax.nn.log_softmax(expected), atol=1e-4, rtol=0)


@pytest.mark.parametrize("vocabulary", ["vocab.yml", "vocab.txt", "vocab.spm"])
def test_text_has_the_ids_of_its_vocabulary(toolkit, spm, vocabulary):
    import sentencepiece

    folder, _ = toolkit(vocabulary=vocabulary)
    model = read_npz(folder / "model.npz", (), "en", "de")
    cutter = sentencepiece.SentencePieceProcessor(model_proto=spm["source"])
    text = "The old teacher visited the museum."
    pieces = cutter.encode(text, out_type=str)
    names = model.tokenizers.source.vocabulary.names
    [row] = model.tokenizers.source.encode([text])
    assert [names[model.tokenizers.source.vocabulary.order[token]] for token in row] == pieces
    assert model.tokenizers.source.tags == ((">>fra<<",) if vocabulary != "vocab.spm" else ())
    settings = model.config.decode
    assert (settings.beam_size, settings.alpha, settings.normalisation) == (6, 0.7, "length")
    assert settings.forbidden == (UNK,) and model.config.data.source == "en"
    translator = make_translator(model.config, model.params, model.tokenizers)
    tag = ">>fra<<" * (vocabulary != "vocab.spm")
    assert len(translate(translator, [tag + "the dog"])) == 1


def test_vocabularies_can_be_named_instead(toolkit):
    folder, _ = toolkit("two vocabularies", vocabulary="pieces.yml")
    expected = read_npz(folder, (), "", "")
    (folder / "decoder.yml").unlink()
    named = (folder / "pieces.source.yml", folder / "pieces.target.yml")
    found = read_npz(folder / "model.npz", named, "", "")
    assert found.tokenizers == expected.tokenizers
    jax.tree.map(np.testing.assert_array_equal, found.params, expected.params)
    with pytest.raises(UserError, match="name those of source .* --vocabularies"):
        read_npz(folder, (), "", "")


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"type": "s2s"}, ["the option type is 's2s'", "supported: transformer"]),
        ({"transformer_decoder_autoreg": "rnn"}, ["transformer-decoder-autoreg", "self-attention"]),
        ({"transformer_ffn_activation": "gelu"}, ["activation is 'gelu'", "relu or swish"]),
        ({"transformer_ffn_depth": 3}, ["transformer-ffn-depth is '3'"]),
        ({"transformer_tied_layers": [1, 1]}, ["transformer-tied-layers"]),
        ({"transformer_no_projection": True}, ["transformer-no-projection is 'true'"]),
        ({"right_left": True}, ["right-left is 'true'"]),
        ({"lemma_dim_emb": 8}, ["lemma-dim-emb is '8'"]),
        ({"ulr": True}, ["ulr is 'true'"]),
        (
            {"transformer_preprocess": "n"},
            ["'n' 'dan' ''", "'n' 'da' 'n'"],
        ),
        ({"transformer_postprocess_emb": "n"}, ["transformer-postprocess-emb is 'n'"]),
        (
            {"transformer_new_thing": "on"},
            ["transformer-new-thing is 'on'"],
        ),
        ({"dim_emb": "many"}, ["dim-emb is 'many'"]),
        ({"dim_emb": 2, "transformer_heads": 1}, ["dim-emb is 2", "at least 4"]),
        ({"dim_emb": 15, "transformer_heads": 5}, ["dim-emb is 15", "transformer-heads (5)"]),
        ({"tied_embeddings_all": "yes"}, ["tied-embeddings-all is 'yes'", "true or false"]),
        ({"dim_vocabs": [151, 149]}, ["model.npz has one table of embeddings"]),
        ({"enc_depth": 9999}, ["fewer layers than its options say"]),
    ],
)
def test_options_that_ours_cannot_have_are_refused_by_name(toolkit, changes, words):
    folder, _ = toolkit()
    options = OPTIONS | {"dim-vocabs": [151, 151]}
    options |= {name.replace("_", "-"): value for name, value in changes.items()}
    write_model(folder / "model.npz", options, make_arrays(OPTIONS, (151, 151)))
    with pytest.raises(UserError) as error:
        read_npz(folder, (), "", "")
    assert all(word in str(error.value) for word in words), error.value


@pytest.mark.parametrize(
    "line, words",
    [
        ("word-penalty: 0.5", ["word-penalty is '0.5'"]),
        ("shortlist: [lex.s2t, 50]", ["shortlist is"]),
        ("beam-size: six", ["decoder.yml", "beam-size is 'six'", "1 to 1,000"]),
        ("beam-size: 0", ["beam-size is '0'"]),
        ("normalize: nan", ["normalize is 'nan'"]),
        ("normalize: [1]", ["normalize is ['1']"]),
        ("allow-unk: maybe", ["allow-unk is 'maybe'"]),
        ("allow-special: true", ["allow-special is 'true'"]),
        ("models: [gone.npz]", ["lacks gone.npz"]),
        ("- a", ["cannot read"]),
    ],
)
def test_searches_that_ours_cannot_do_are_refused_by_name(toolkit, line, words):
    folder, _ = toolkit()
    file = folder / "decoder.yml"
    name = line.partition(":")[0]
    kept = [one for one in file.read_text().splitlines() if not one.startswith(f"{name}:")]
    if name == "models":
        kept.remove("  - model.npz")
    file.write_text("\n".join([*kept, line]))
    with pytest.raises(UserError) as error:
        read_npz(folder, (), "", "")
    assert all(word in str(error.value) for word in words), error.value


def damaged(arrays, how):
    if how == "lacks":
        del arrays["encoder_l2_ffn_W1"]
    elif how == "unknown":
        arrays["encoder_l1_aan_Wq"] = np.zeros((16, 16), np.float32)
    elif how == "shape":
        arrays["decoder_l1_self_Wk"] = arrays["decoder_l1_self_Wk"][:, :-1]
    elif how == "rows":
        arrays["Wemb"] = arrays["Wemb"][:-3]
    elif how == "nan":
        arrays["decoder_ff_logit_out_b"][0, 5] = np.nan
    elif how == "integers":
        arrays["encoder_l1_self_bq"] = np.zeros((1, 16), np.int8)
    return arrays


@pytest.mark.parametrize(
    "how, message",
    [
        ("lacks", "lacks the array encoder_l2_ffn_W1"),
        ("unknown", "has the array encoder_l1_aan_Wq, which its options do not explain"),
        ("shape", r"decoder_l1_self_Wk has the shape \(16, 15\), .* require \(16, 16\)"),
        ("rows", r"Wemb has the shape \(148, 16\), but its options require \(151, 16\)"),
        ("nan", "contains NaN"),
        ("integers", "contains int8, not floating-point numbers"),
    ],
)
def test_damaged_arrays_are_named(toolkit, how, message):
    folder, theirs = toolkit()
    write_model(folder / "model.npz", theirs.options, damaged(theirs.arrays, how))
    with pytest.raises(UserError, match=message):
        read_npz(folder, (), "", "")


def test_a_shape_beyond_the_file_takes_no_memory(toolkit):
    import zipfile

    folder, _ = toolkit()
    whole = zipfile.ZipFile(folder / "model.npz")
    contents = {name: whole.read(name) for name in whole.namelist()}
    name = "encoder_l1_ffn_W1.npy"
    contents[name] = contents[name].replace(b"(16, 24), }      ", b"(99999999, 9999)}")
    with zipfile.ZipFile(folder / "model.npz", "w") as changed:
        for member, content in contents.items():
            changed.writestr(member, content)
    with pytest.raises(UserError, match=r"cannot read encoder_l1_ffn_W1 .* \(99999999, 9999\)"):
        read_npz(folder, (), "", "")


def test_without_a_search_file_it_searches_as_our_models_do(toolkit):
    folder, _ = toolkit(vocabulary="vocab.spm")
    (folder / "decoder.yml").unlink()
    found = read_npz(folder, (folder / "vocab.spm",), "", "").config.decode
    assert found == DecodeConfig(forbidden=(UNK,), max_source_length=1023)
    (folder / "decoder.yml").write_text("vocabs: [vocab.spm]\nmodels: [model.npz]\n")
    found = read_npz(folder, (), "", "").config.decode
    assert (found.beam_size, found.alpha, found.normalisation) == (12, 0.0, "length")


def test_a_member_that_is_no_array_is_refused(toolkit):
    import zipfile

    folder, _ = toolkit()
    whole = zipfile.ZipFile(folder / "model.npz")
    contents = {name: whole.read(name) for name in whole.namelist()}
    name = "encoder_l1_ffn_W1.npy"
    header = contents[name][:128]
    for damaged in (
        b"", b"\x93NUMPY\x09\x00", header.replace(b"(16, 24)", b"((((((( "), contents[name][:200],
    ):  # fmt: skip
        with zipfile.ZipFile(folder / "model.npz", "w") as changed:
            for member, content in (contents | {name: damaged}).items():
                changed.writestr(member, content)
        with pytest.raises(UserError, match="cannot read encoder_l1_ffn_W1"):
            read_npz(folder, (), "", "")


def test_a_link_to_no_search_file_is_refused(toolkit):
    folder, _ = toolkit()
    (folder / "decoder.yml").unlink()
    (folder / "decoder.yml").symlink_to(folder / "gone.yml")
    with pytest.raises(UserError, match=r"lacks decoder.yml"):
        read_npz(folder, (folder / "vocab.yml",), "", "")


def test_what_is_no_model_is_refused(toolkit, tmp_path):
    folder, theirs = toolkit()
    content = (folder / "model.npz").read_bytes()
    for size in (0, 100, len(content) // 2, len(content) - 1):
        (folder / "model.npz").write_bytes(content[:size])
        with pytest.raises(UserError, match=r"cannot read|no model|lacks"):
            read_npz(folder, (), "", "")
    (folder / "model.npz").write_bytes(content)
    with np.load(folder / "model.npz") as arrays:
        np.savez_compressed(folder / "model.npz", **arrays)
    said = r"compressed, which Marian never does: save the file again with numpy\.savez"
    with pytest.raises(UserError, match=said):
        read_npz(folder, (), "", "")
    np.savez(folder / "model.npz", **theirs.arrays)
    with pytest.raises(UserError, match="no model of Marian: it lacks the array special:model"):
        read_npz(folder, (), "", "")
    (folder / "decoder.yml").unlink()
    np.savez(folder / "second.npz", a=np.zeros(1))
    with pytest.raises(UserError, match="has 2 .npz files: name one"):
        read_npz(folder, (), "", "")
    assert is_npz(folder) and is_npz(folder / "gone.npz") and not is_npz(folder / "source.spm")


def listed(name, count=151):
    """A vocabulary as YAML."""
    return "".join(f'"{name(number)}": {number}\n' for number in range(count))


@pytest.mark.parametrize(
    "text, message",
    [
        ('"</s>": 0\n"<unk>": one\n', "does not have an id for each piece"),
        ('"</s>": 0\n"a": 1\n', "has 2 pieces, but the model has 151 rows"),
        (listed(lambda n: {0: "</s>"}.get(n, f"a{n}")), "lacks the piece <unk>"),
        (
            listed(lambda n: {0: "</s>", 1: "<unk>"}.get(n, n), 150) + "a: 1\n",
            "the piece 'a' has no",
        ),
        ("{", "cannot read"),
    ],
)
def test_damaged_vocabularies_are_named(toolkit, text, message):
    folder, _ = toolkit()
    (folder / "vocab.yml").write_text(text)
    with pytest.raises(UserError, match=message):
        read_npz(folder, (), "", "")


def test_nothing_in_yaml_is_executed(toolkit):
    folder, _ = toolkit()
    victim = folder / "victim"
    attack = f'!!python/object/apply:os.system ["touch {victim}"]'
    file = folder / "decoder.yml"
    file.write_text(file.read_text().replace("beam-size: 6", f"beam-size: {attack}"))
    with pytest.raises(UserError, match="decoder.yml"):
        read_npz(folder, (), "", "")
    assert not victim.exists()


def test_options_are_written_as_marian_writes_them():
    assert "transformer-tied-layers: []" in as_yaml(OPTIONS)
    assert 'transformer-preprocess: ""' in as_yaml(OPTIONS)
