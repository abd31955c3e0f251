"""Models of every kind as CTranslate2's: the same translations. Packages for Argos Translate."""

import json
import zipfile
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
import sentencepiece

ctranslate2 = pytest.importorskip("ctranslate2", reason="it is in the extra `convert`")

from transformer.config import Config, DataConfig, DecodeConfig
from transformer.data.tokenizer import train_tokenizer
from transformer.data.vocabularies import Tokenizers
from transformer.decoding.shortlist import Lexicon
from transformer.errors import UserError
from transformer.interchange import comparison
from transformer.interchange.ctranslate2 import (
    Search,
    _without_bytes,
    argos_code,
    not_carried,
    save_package,
    save_translator,
    save_vocabulary_map,
    token_names,
)
from transformer.interchange.marian import load_any
from transformer.model.batch import BOS, EOS, PAD, UNK
from transformer.runs.load import Run

pytestmark = pytest.mark.slow  # needs an extra


@pytest.fixture(scope="session")
def tokenizers(pairs):
    """One for both sides, and two."""
    sources, targets = zip(*pairs)
    one = train_tokenizer(sources + targets, "unigram", 200)
    bytewise = train_tokenizer(targets, "unigram", 400, DataConfig(byte_fallback=True))
    return Tokenizers(one, one), Tokenizers(one, bytewise)


@pytest.fixture(scope="session")
def random_translator(small_model, random_params, tokenizers):
    """A function from changes to a model to a translator with random weights."""

    def build(**changes):
        pair = tokenizers[changes.get("tying", "all") != "all"]
        source_size, target_size, digest = pair.identity
        settings = {"encoder_layers": 2, "decoder_layers": 1, "max_positions": 100} | changes
        model = small_model(
            source_vocab_size=source_size, target_vocab_size=target_size, **settings
        )
        data = DataConfig(shared_vocabulary=pair[0] is pair[1], vocabulary=digest)
        decode = DecodeConfig(max_extra_length=2, max_source_length=60)
        return Run(Config(model=model, data=data, decode=decode), random_params(model), pair)

    return build


KINDS = [
    {"norm": "pre"},
    {"norm": "post", "activation": "gelu", "attention_bias": True},
    {"norm": "pre", "activation": "gelu_tanh", "tying": "target", "output_bias": True},
    {"norm": "post", "activation": "swish", "tying": "none", "embedding_scale": False},
    {"norm": "pre", "positions": "learned", "tying": "none", "attention_bias": True},
    {"norm": "post", "positions": "learned", "norm_epsilon": 1e-3, "num_heads": 2},
    {"norm": "post", "positions": "rotary", "num_heads": 2, "tying": "none"},
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "-".join(map(str, kind.values())))
def test_it_translates_as_the_original(random_translator, pairs, tmp_path, capsys, kind):
    model = random_translator(**kind)
    save_translator(model, tmp_path / "model", "none")
    sources = [*sorted((source for source, _ in pairs), key=len)[:30], "", "xyz 😀"]
    comparison.compare(model, tmp_path / "model", comparison.Sample(sources, []), "none")
    assert "32 translations are the same (100.0%)" in capsys.readouterr().out


@pytest.mark.parametrize("quantization", ["int8", "int16", "float16", "bfloat16"])
def test_smaller_numbers_make_a_smaller_file_that_translates(
    random_translator, pairs, tmp_path, quantization
):
    model = random_translator(norm="pre")
    sizes = []
    for precision in ("none", quantization):
        folder = tmp_path / precision
        save_translator(model, folder, precision)
        sizes.append((folder / "model.bin").stat().st_size)
        comparison.theirs(model, folder, [pairs[0][0]], Search(2, 9))
    assert sizes[1] < 0.75 * sizes[0]


def test_a_shortlist_becomes_a_vocabulary_map(random_translator, pairs, tmp_path, capsys):
    model, folder = random_translator(norm="pre", tying="none"), tmp_path / "model"
    source, target = model.tokenizers
    likely = np.arange(2 * source.vocab_size).reshape(-1, 2) % target.vocab_size
    likely[likely <= BOS] = PAD
    frequent = np.arange(EOS, target.vocab_size)
    save_translator(model, folder, "none")
    save_vocabulary_map(model, Lexicon(likely, frequent), 2, 0, folder)
    sources = [text for text, _ in pairs[:3]]
    for text in sources:
        found = comparison.theirs(model, folder, [text], Search(2, 9, use_vmap=True))
        tokens = {int(t) for s in [*source.encode([text])[0], EOS] for t in likely[s]}
        assert {*found.ids[0]} <= tokens | {*frequent[:16].tolist()}
    comparison.compare(model, folder, comparison.Sample(sources, []), "none")
    shown = capsys.readouterr().out
    assert "with vmap" in shown and "are the same with vmap and without it" in shown


def test_a_model_that_translates_otherwise_is_an_error(
    random_translator, random_params, pairs, tmp_path, capsys
):
    model = random_translator(norm="pre")
    other = replace(model, params=random_params(model.config.model, seed=1))
    save_translator(other, tmp_path / "model", "none")
    sample = comparison.Sample([source for source, _ in pairs[:10]], [])
    with pytest.raises(UserError, match="are the same as those of the original"):
        comparison.compare(model, tmp_path / "model", sample, "none")
    assert "better: original" in capsys.readouterr().out
    comparison.compare(model, tmp_path / "model", sample, "int8")  # may differ


def test_pad_bos_and_what_is_forbidden_are_never_chosen(random_translator, pairs, tmp_path):
    model = random_translator(norm="pre", output_bias=True)
    bias = model.params.embedding.output_bias.at[np.array([0, 1, 9])].set(50.0)
    embedding = model.params.embedding.replace(output_bias=bias)
    decode = replace(model.config.decode, forbidden=(9,))
    model = replace(
        model,
        params=model.params.replace(embedding=embedding),
        config=replace(model.config, decode=decode),
    )
    save_translator(model, tmp_path / "model", "none")
    sources = [source for source, _ in pairs[:5]]
    found = comparison.theirs(model, tmp_path / "model", sources, Search(2, 9))
    assert not {0, 1, 9} & {token for row in found.ids for token in row}
    assert found.ids == comparison.ours(model, sources, beam=2, limit=9).ids


def test_relative_positions_are_refused(random_translator, tmp_path):
    with pytest.raises(UserError, match=r"model.positions \(relative\) .*to-safetensors"):
        save_translator(random_translator(positions="relative"), tmp_path / "model", "none")
    assert not list(tmp_path.iterdir())


def test_every_id_has_a_name_of_its_own(tokenizers):
    for tokenizer in {*tokenizers[0], *tokenizers[1]}:
        names = token_names(tokenizer)
        assert len(set(names)) == len(names) == tokenizer.vocab_size


def test_a_marian_model_goes_there_in_one_go(marian_folder, pairs, tmp_path, capsys):
    model = load_any(marian_folder()[0])
    save_translator(model, tmp_path / "model", "none")
    sample = comparison.Sample([source for source, _ in pairs[:20]], [])
    comparison.compare(model, tmp_path / "model", sample, "none")
    assert "(100.0%)" in capsys.readouterr().out


LINES = ["THE Dog sleeps", "Straße STRASSE STRAẞE", "İ is I", "E\u0301COLE É", "", "¿Ünïcödé ½?"]


def test_raw_text_is_cut_by_what_was_written_as_by_the_tokenizer(
    random_translator, pairs, tmp_path, monkeypatch
):
    """Lower-casing is part of it; where it is lost, a comparison would see other pieces."""
    sources, targets = zip(*pairs[:300])
    options = DataConfig(lowercase=True)
    lowercase = train_tokenizer([*sources, *targets], "unigram", 200, options)
    model = with_tokenizer(random_translator(norm="pre"), lowercase)
    save_translator(model, tmp_path / "model", "none")
    read = []
    search = lambda _, rows, *rest: read.append(rows) or [[] for _ in rows]  # noqa: E731
    monkeypatch.setattr(comparison, "search", search)
    lines, names = [*LINES, sources[0].upper()], token_names(lowercase)
    comparison.theirs(model, tmp_path / "model", lines, Search(2, 9))
    expected = [[names[token] for token in row] for row in lowercase.encode(lines) if row]
    known = [[piece if piece in names else names[UNK] for piece in row] for row in read[-1]]
    assert known == expected and len(known) == len(lines) - 1
    (tmp_path / "model" / "source.spm").write_bytes(lowercase.model)
    comparison.theirs(model, tmp_path / "model", lines, Search(2, 9))
    assert read[-1] != read[0]


def with_tokenizer(model, tokenizer):
    """The model with another tokenizer and tables of its size."""
    size = tokenizer.vocab_size
    config = replace(model.config.model, source_vocab_size=size, target_vocab_size=size)
    table = np.resize(np.asarray(model.params.embedding.source), (size, config.d_model))
    embedding = model.params.embedding.replace(source=jnp.asarray(table))
    return Run(
        replace(model.config, model=config),
        model.params.replace(embedding=embedding),
        Tokenizers(tokenizer, tokenizer),
    )


def test_target_tags_go_along_or_one_of_them_is_built_in(
    random_translator, tagged, tokenizers, pairs, tmp_path, capsys
):
    tags = (">>deu<<", ">>pt_br<<", ">>cmn_Hans<<")
    model = with_tokenizer(random_translator(norm="pre"), tagged(tokenizers[0].source, *tags))
    save_translator(model, tmp_path / "all", "none")
    sources = [source for source, _ in pairs[:9]]
    texts = [f"{tag} {source}" for tag, source in zip(tags * 3, sources)]
    comparison.compare(model, tmp_path / "all", comparison.Sample(texts, []), "none")
    assert "9 translations are the same (100.0%)" in capsys.readouterr().out
    cutter = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "all" / "source.spm"))
    pieces = cutter.encode(">>pt_br<< the dog", out_type=str)
    assert pieces == ["\u2581>>pt_br<<", *cutter.encode("the dog", out_type=str)]
    assert "begin with a target tag" in " ".join(not_carried(model))

    save_translator(model, tmp_path / "one", "none", ">>pt_br<<")
    sample = comparison.Sample(sources, [])
    comparison.compare(model, tmp_path / "one", sample, "none", ">>pt_br<<")
    assert "9 translations are the same (100.0%)" in capsys.readouterr().out
    assert "target tag" not in " ".join(not_carried(model, ">>pt_br<<"))
    tokenizer = model.tokenizers.source
    likely = np.full((tokenizer.vocab_size, 1), PAD)
    likely[[EOS, tokenizer.encode([">>pt_br<<"])[0][0]], 0] = 90, 91
    lexicon = Lexicon(likely, np.arange(80, 99))
    save_vocabulary_map(model, lexicon, 1, 2, tmp_path / "one", ">>pt_br<<")
    first, *_ = (tmp_path / "one" / "vmap.txt").read_text().splitlines()
    assert first.split() == tokenizer.pieces([80, 81, 90, 91])

    with pytest.raises(UserError, match="--target .*>>deu<<"):
        save_package(model, tmp_path / "a.argosmodel", "none")
    save_package(model, tmp_path / "a.argosmodel", "none", ">>cmn_Hans<<")
    with zipfile.ZipFile(tmp_path / "a.argosmodel") as package:
        [config] = [name for name in package.namelist() if name.endswith("model/config.json")]
        assert json.loads(package.read(config))["bos_token"] == "\u2581>>cmn_Hans<<"
        [metadata] = [name for name in package.namelist() if name.endswith("metadata.json")]
        assert json.loads(package.read(metadata))["to_code"] == "zh"


def test_a_package_holds_what_argos_translate_opens(random_translator, pairs, tmp_path):
    model = random_translator(norm="pre")
    save_package(model, tmp_path / "en_de.argosmodel", "int8")
    zipfile.ZipFile(tmp_path / "en_de.argosmodel").extractall(tmp_path / "packages")
    (package,) = (tmp_path / "packages").iterdir()
    metadata = json.loads((package / "metadata.json").read_text())
    assert metadata["from_code"] == "en" and metadata["to_name"] == "German"
    processor = sentencepiece.SentencePieceProcessor(
        model_file=str(package / "sentencepiece.model")
    )
    translator = ctranslate2.Translator(str(package / "model"))
    source = pairs[0][0]
    pieces = translator.translate_batch([processor.encode(source, out_type=str)], beam_size=2)
    text = processor.decode_pieces(pieces[0].hypotheses[0])
    assert isinstance(text, str)


def test_the_model_of_a_package_chooses_no_bytes(random_translator):
    bytewise = random_translator(norm="pre", tying="none")
    forbidden = _without_bytes(bytewise).config.decode.forbidden
    names = bytewise.tokenizers.target.pieces(forbidden)
    assert names == [f"<0x{number:02X}>" for number in range(256)]
    assert not _without_bytes(random_translator(norm="pre")).config.decode.forbidden


def test_packages_have_the_codes_that_argos_translate_knows():
    codes = ("deu", "eng_Latn", "zho_Hans", "zh-TW", "jap", "pt_BR", "yue")
    assert [argos_code(code) for code in codes] == ["de", "en", "zh", "zt", "ja", "pt", "yue"]


@pytest.mark.parametrize(
    "changes, file, word",
    [
        ({}, "a.zip", r"\.argosmodel"),
        ({"source": "English, please"}, "a.argosmodel", "data.source"),
    ],
)
def test_what_argos_cannot_use_is_refused(random_translator, tmp_path, changes, file, word):
    model = random_translator(norm="pre")
    data = replace(model.config.data, **changes)
    model = replace(model, config=replace(model.config, data=data))
    with pytest.raises(UserError, match=word):
        save_package(model, tmp_path / file, "none")
    assert not list(tmp_path.iterdir())
