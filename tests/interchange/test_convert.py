"""convert.py as its users meet it: there and back, further training, and mistakes."""

import json
import pickle
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is in the extra `oracles`")
transformers = pytest.importorskip("transformers", reason="it is in the extra `oracles`")

sys.path.insert(0, str(Path(__file__).parents[1] / "commands"))
from marian_models import train_spm
from safetensors.numpy import load_file, save_file
from small_run import run, write_data

import convert
from transformer.commands.program import carry_out
from transformer.runs.checkpoints import load_params
from transformer.runs.folder import load_run_config

pytestmark = pytest.mark.slow  # needs an extra


@pytest.fixture(scope="module")
def place(marian_folder, tmp_path_factory):
    """A folder of a MarianMTModel, opus, and a run made from it, en_de."""
    place = tmp_path_factory.mktemp("convert")
    folder, _ = marian_folder(generation={"max_length": 30, "length_penalty": 3.0})
    shutil.copytree(folder, place / "opus")
    made = run("convert.py", "from-marian", place / "opus", place / "en_de")
    assert made.returncode == 0, made.stderr
    assert "translate with:" in made.stdout and "en to de" in made.stdout
    return place


def test_a_run_translates_as_transformers_and_goes_back(place, pairs, tmp_path):
    sentences = [source for source, _ in pairs[:20]]
    text = "".join(f"{sentence}\n" for sentence in sentences)
    found = run("translate.py", place / "en_de", stdin=text)
    assert found.returncode == 0, found.stderr

    def theirs(folder):
        tokenizer = transformers.MarianTokenizer.from_pretrained(folder)
        model = transformers.MarianMTModel.from_pretrained(folder).eval()
        encoded = tokenizer(sentences, return_tensors="pt", padding=True)
        with torch.no_grad():
            return tokenizer.batch_decode(model.generate(**encoded), skip_special_tokens=True)

    assert found.stdout.splitlines() == theirs(place / "opus")
    back = run("convert.py", "to-marian", place / "en_de", tmp_path / "back")
    assert back.returncode == 0, back.stderr
    assert theirs(tmp_path / "back") == theirs(place / "opus")
    card = (tmp_path / "back" / "README.md").read_text()
    assert card.startswith("---\nlanguage:\n- en\n- de\n") and "Not scored yet" in card


def test_training_goes_on_from_the_imported_weights(place, tmp_path):
    config, tuned = write_data(tmp_path), tmp_path / "tuned"
    words = ["train.py", config, "--run", tuned, "--train.steps"]
    begun = run(*words, 20, "--from", place / "en_de", "--optimizer.scale", 0.3)
    assert begun.returncode == 0, begun.stderr
    assert "starts from the weights of" in begun.stdout
    imported, _ = load_params(place / "en_de", load_run_config(place / "en_de"), "best")
    first, _ = load_params(tuned, load_run_config(tuned), "10")
    # After ten small updates the weights are still near: random ones would not be.
    near = np.abs(first.embedding.source - imported.embedding.source).max()
    assert 0 < near < 0.1 < np.abs(imported.embedding.source).max()
    losses = [json.loads(line) for line in (tuned / "metrics.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in losses if "loss" in line]
    assert losses[-1] < losses[0]
    words = ["to-marian", tuned, tmp_path / "out", "--decode.normalisation", "length"]
    out = run("convert.py", *words)
    assert out.returncode == 0, out.stderr
    assert transformers.MarianMTModel.from_pretrained(tmp_path / "out").config.d_model == 32


def test_weights_go_out_as_safetensors_and_come_back(place, pairs, tmp_path):
    (place / "en_de" / "shortlist.npz").write_bytes(b"a lexicon, which is copied as it is")
    out = run("convert.py", "to-safetensors", place / "en_de", tmp_path / "plain")
    (place / "en_de" / "shortlist.npz").unlink()
    assert out.returncode == 0, out.stderr
    back = run("convert.py", "from-safetensors", tmp_path / "plain", tmp_path / "back")
    assert back.returncode == 0, back.stderr
    assert (tmp_path / "back" / "shortlist.npz").read_bytes().startswith(b"a lexicon")
    text = "".join(f"{source}\n" for source, _ in pairs[:9])
    one, other = (
        run("translate.py", folder, stdin=text) for folder in (place / "en_de", tmp_path / "back")
    )
    assert one.stdout == other.stdout and len(one.stdout) > 20


def test_a_sample_is_translated_by_both_or_the_reason_is_said(place, pairs, tmp_path):
    pytest.importorskip("ctranslate2", reason="it is in the extra `convert`")
    for side, name in enumerate(("en", "de")):
        lines = sorted(pairs, key=lambda pair: len(pair[0]))[:20]
        (tmp_path / name).write_text("".join(f"{line[side]}\n" for line in lines))
    words = ["convert.py", "to-ctranslate2", place / "opus", tmp_path / "ct2"]
    without = run(*words)
    assert without.returncode == 0, without.stderr
    assert "not compared with the original" in without.stdout
    shutil.rmtree(tmp_path / "ct2")
    compared = run(*words, "--sample", tmp_path / "en", tmp_path / "de")
    assert compared.returncode == 0, compared.stderr
    assert "20 translations are the same (100.0%)" in compared.stdout
    assert compared.stdout.count("BLEU") == 2 and "sentences/s" in compared.stdout


def edited(name, change):
    """A mistake: one of the JSON files with some of its fields changed."""

    def make(folder):
        path = folder / name
        fields = json.loads(path.read_text())
        fields = change(fields) if callable(change) else fields | change
        path.write_text(json.dumps(fields))

    return make


def config(**change):
    return edited("config.json", change)


def generation(**change):
    return edited("generation_config.json", change)


def weights(change):
    def make(folder):
        path = folder / "model.safetensors"
        save_file(change(load_file(path)), path)

    return make


def without(name):
    return lambda folder: (folder / name).unlink()


def cut(name, size):
    def make(folder):
        path = folder / name
        path.write_bytes(path.read_bytes()[:size])

    return make


def harmful_pickle(folder):
    class Harmful:
        def __reduce__(self):
            return exec, (f"open({str(folder / 'victim')!r}, 'w')",)

    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Harmful(), protocol=2))


def lacking(arrays):
    return {name: array for name, array in arrays.items() if "fc1.weight" not in name}


def narrow(arrays):
    return arrays | {"model.encoder.layers.0.fc1.weight": np.zeros((3, 3), np.float32)}


def not_numbers(arrays):
    return arrays | {"model.encoder.layers.0.fc1.bias": np.full(48, np.nan, np.float32)}


def other_pieces(name):
    """The SentencePiece model of another language."""
    texts = ["καλημέρα, τι κάνεις;", "γάτα κοιμάται στο σπίτι", "σκύλος βλέπει τη γάτα"]
    return lambda folder: (folder / name).write_bytes(train_spm(texts * 9, 28))


def dangling(name):
    """The file as a link to nowhere."""

    def make(folder):
        (folder / name).unlink()
        (folder / name).symlink_to("gone")

    return make


BAD_FOLDERS = {
    "no config": (without("config.json"), ["lacks config.json"]),
    "config cut": (cut("config.json", 50), ["cannot read", "config.json"]),
    "config a list": (edited("config.json", lambda _: []), ["config.json", "not a JSON object"]),
    "other architecture": (config(model_type="bart"), ["model_type", "'bart'", "marian"]),
    "pre-norm": (config(normalize_before=True), ["config.json", "normalize_before", "True"]),
    "layers dropped": (config(encoder_layerdrop=0.1), ["encoder_layerdrop"]),
    "unknown field": (config(sparse_attention="banded"), ["sparse_attention", "banded"]),
    "activation": (config(activation_function="mish"), ["activation_function", "mish", "relu"]),
    "a bool": (config(scale_embedding="yes"), ["scale_embedding is 'yes'", "true or false"]),
    "a list": (config(activation_function=[]), ["activation_function is []"]),
    "many layers": (
        config(encoder_layers=2**30, num_hidden_layers=2**30), ["fewer encoder layers"],
    ),
    "another end": (generation(eos_token_id=20), ["eos_token_id is 20", "but 0 in config.json"]),
    "another start": (generation(decoder_start_token_id=30), ["decoder_start_token_id is 30"]),
    "no room": (generation(max_length=1), ["max_length is 1", "2 to 100,000"]),
    "a word for a number": (generation(max_length="x"), ["max_length is 'x'", "an integer"]),
    "a number for a list": (generation(bad_words_ids=5), ["bad_words_ids is 5"]),
    "never ends": (generation(suppress_tokens=[0]), ["suppress_tokens", "eos_token_id"]),
    "longest sentence": (
        edited("tokenizer_config.json", {"model_max_length": "x"}), ["model_max_length is 'x'"],
    ),
    "pad no text": (edited("tokenizer_config.json", {"pad_token": {"a": 1}}), ["pad_token"]),
    "language": (
        edited("tokenizer_config.json", {"source_lang": "e\n\x1b[31m"}), ["not a language code"],
    ),
    "added tokens": (
        edited("tokenizer_config.json", {"additional_special_tokens": ["<new>"]}), ["'<new>'"],
    ),
    "half a letter": (edited("vocab.json", {">>fra<<": 1, "\ud800": 5}), ["vocab.json"]),
    "a folder of weights": (
        lambda f: ((f / "model.safetensors").unlink(), (f / "model.safetensors").mkdir()),
        ["lacks model.safetensors"],
    ),
    "heads": (
        config(decoder_attention_heads=2),
        ["encoder_attention_heads is 4", "must be the same"],
    ),
    "width": (config(d_model=33), ["model.d_model (33)"]),
    "width a word": (config(d_model="wide"), ["d_model", "wide"]),
    "lacking field": (
        edited("config.json", lambda f: {k: v for k, v in f.items() if k != "d_model"}),
        ["config.json lacks d_model"],
    ),
    "pad elsewhere": (config(pad_token_id=5), ["pad_token_id"]),
    "start nowhere": (config(decoder_start_token_id=10**6), ["vocab.json", "special token"]),
    "start is end": (config(decoder_start_token_id=0), ["two special tokens have the same id"]),
    "vocabulary too large": (config(vocab_size=7, decoder_vocab_size=7), ["vocab_size of config"]),
    "no layers": (config(decoder_layers=0), ["decoder_layers is 0"]),
    "a rate": (config(dropout=2.0), ["model.dropout (2.0)"]),
    "huge vocabulary": (config(vocab_size=2**40, decoder_vocab_size=2**40), ["vocab_size of"]),
    "samples": (generation(do_sample=True), ["generation_config.json", "do_sample", "False"]),
    "repetitions": (generation(no_repeat_ngram_size=-3), ["no_repeat_ngram_size is -3"]),
    "repetitions, greedy": (
        generation(repetition_penalty=1.5, num_beams=1), ["repetition_penalty is 1.5", "num_beams"],
    ),
    "repetitions elsewhere": (
        generation(encoder_no_repeat_ngram_size=2), ["encoder_no_repeat_ngram_size is 2"],
    ),
    "words forbidden": (generation(bad_words_ids=[[3, 4]]), ["bad_words_ids", "several tokens"]),
    "token forbidden": (generation(bad_words_ids=[[10**7]]), ["not in the vocabulary"]),
    "beam": (generation(num_beams="many"), ["num_beams is 'many'"]),
    "negative penalty": (
        generation(length_penalty=-1.0), ["generation_config.json: length_penalty is -1.0"],
    ),
    "huge penalty": (generation(length_penalty=1e30), ["length_penalty is 1e+30"]),
    "huge beam": (generation(num_beams=2000), ["generation_config.json: num_beams is 2000"]),
    "huge length": (generation(max_length=2**31), ["generation_config.json: max_length"]),
    "no new tokens": (generation(max_new_tokens=-1), ["max_new_tokens is -1"]),
    "token below 0": (generation(bad_words_ids=[[-1]]), ["-1 is a forbidden token"]),
    "dangling": (
        dangling("generation_config.json"), ["lacks generation_config.json"],
    ),
    "rows": (config(vocab_size=10**30), ["vocab_size is 1000"]),
    "a run": (config(model={"d_model": 5}, model_type=None), ["model_type is None"]),
    "added by number": (
        edited("tokenizer_config.json", {"added_tokens_decoder": ["zz"]}), ["adds the token 'zz'"],
    ),
    "added, a number": (
        edited("tokenizer_config.json", {"added_tokens_decoder": 5}), ["added_tokens_decoder is 5"],
    ),
    "extra tokens": (
        edited("tokenizer_config.json", {"extra_special_tokens": ["dog"]}),
        ["tokenizer_config.json adds the token 'dog'"],
    ),
    "special map": (
        lambda f: (f / "special_tokens_map.json").write_text('{"unk_token": "dog"}'),
        ["special_tokens_map.json: unk_token"],
    ),
    "sampling": (
        edited("tokenizer_config.json", {"sp_model_kwargs": {"enable_sampling": True}}),
        ["sp_model_kwargs"],
    ),
    "surrogate piece": (
        edited("vocab.json", lambda v: {"\ud800" if n == 7 else k: n for k, n in v.items()}),
        ["vocab.json", "surrogates not allowed"],
    ),
    "another output": (
        weights(lambda a: a | {"lm_head.weight": a["model.shared.weight"] + 1}),
        ["lm_head.weight differs from model.shared.weight", "tie_word_embeddings"],
    ),
    "misshapen output": (
        weights(lambda a: a | {"lm_head.weight": np.ones((2, 2), np.float32)}),
        ["lm_head.weight differs from model.shared.weight"],
    ),
    "no weights": (without("model.safetensors"), ["model.safetensors nor pytorch_model.bin"]),
    "weights cut": (cut("model.safetensors", 5000), ["cannot read the weights"]),
    "weights lack one": (weights(lacking), ["lacks model.encoder.layers.0.fc1.weight"]),
    "wrong shape": (weights(narrow), ["fc1.weight has the shape (3, 3)", "(48, 32)"]),
    "no number": (weights(not_numbers), ["fc1.bias contains NaN or an infinite number"]),
    "more weights": (weights(lambda a: a | {"lora.a": np.ones(2)}), ["contains lora.a"]),
    "other layers": (
        config(encoder_layers=3, num_hidden_layers=3),
        ["lacks model.encoder.layers.1"],
    ),
    "harmful pickle": (harmful_pickle, ["refers to", "exec"]),
    "no tokenizer": (without("source.spm"), ["source.spm"]),
    "another source": (other_pieces("source.spm"), ["source.spm", "have no id in vocab.json"]),
    "another target": (other_pieces("target.spm"), ["target.spm", "have no id in vocab.json"]),
    "cleaning": (
        edited("tokenizer_config.json", {"clean_up_tokenization_spaces": "yes"}),
        ["clean_up_tokenization_spaces is 'yes'", "true or false"],
    ),
    "tokenizer cut": (cut("target.spm", 100), ["target.spm", "not a SentencePiece model"]),
    "no vocabulary": (without("vocab.json"), ["lacks vocab.json"]),
    "vocabulary a list": (edited("vocab.json", lambda _: [1]), ["vocab.json"]),
    "piece twice": (edited("vocab.json", {">>fra<<": 1}), ["'>>fra<<'", "id of its own"]),
    "piece no number": (edited("vocab.json", {">>fra<<": "x"}), ["'>>fra<<'"]),
    "no unknown": (
        edited("vocab.json", lambda v: {k: n for k, n in v.items() if k != "<unk>"}),
        ["vocab.json lacks the piece '<unk>'"],
    ),
}  # fmt: skip


def refused(monkeypatch, capsys, words):
    """What convert.py says to these words: one sentence."""
    monkeypatch.setattr(sys, "argv", ["convert.py", *map(str, words)])
    with pytest.raises(SystemExit) as stop:
        carry_out(convert.main)
    said = capsys.readouterr().err
    assert stop.value.code == 2, said
    assert said.startswith("error: ") and said.count("\n") == 1
    return said


@pytest.mark.parametrize("name", BAD_FOLDERS)
def test_a_bad_folder_gets_a_sentence_and_leaves_nothing(
    place, tmp_path, monkeypatch, capsys, name
):
    make, words = BAD_FOLDERS[name]
    folder = tmp_path / "opus"
    shutil.copytree(place / "opus", folder)
    make(folder)
    said = refused(monkeypatch, capsys, ["from-marian", folder, tmp_path / "run"])
    for word in words:
        assert word in said
    assert [path.name for path in tmp_path.iterdir()] == ["opus"]
    assert not (folder / "victim").exists()


MISTAKES = [
    ([], ["from-marian", "to-argos"]),
    (["from-mariana"], ["from-mariana", "Available subcommands", "to-argos"]),
    (["from-marian", "gone", "run"], ["gone is not a folder"]),
    (["from-marian", "gone.npz", "run"], ["lacks gone.npz"]),
    (["from-marian", "opus", "run", "--vocabularies", "a"], ["--vocabularies is for .npz files"]),
    (["from-marian", "opus", "en_de"], ["en_de exists"]),
    (["to-marian", "en_de"], ["the folder to create is missing"]),
    (["to-marian", "gone", "out"], ["gone is not a run"]),
    (["to-marian", "en_de", "out", "--checkpoint", "9"], ["en_de has no checkpoint '9'"]),
    (
        ["to-marian", "en_de", "out", "--decode.normalisation", "gnmt"],
        ["--decode.normalisation length"],
    ),
    (["to-ctranslate2", "en_de", "opus"], ["opus exists"]),
    (["to-ctranslate2", "en_de", "out", "--quantization", "int4"], ["int4", "int8"]),
    (
        ["to-ctranslate2", "en_de", "out", "--sample", "gone.txt"],
        ["--sample: there is no file gone.txt;"],
    ),
    (["to-argos", "en_de", "out.zip"], [".argosmodel"]),
    (["to-safetensors", "opus", "out"], ["a model of Hugging Face", "from-marian"]),
    (["to-marian", "opus", "out"], ["a model of Hugging Face", "from-marian"]),
    (["from-safetensors", "opus", "out"], ["a model of Hugging Face", "from-marian"]),
    (["to-marian", "en_de", "out", "--decode.forbidden", "99999"], ["decode.forbidden (99999)"]),
    (["to-ctranslate2", "en_de", "out", "--shortlist", "8"], ["--shortlist", "no shortlist.npz"]),
    (["to-ctranslate2", "en_de", "out", "--frequent", "8"], ["--frequent", "no shortlist.npz"]),
    (["to-ctranslate2", "opus", "out", "--shortlist", "8"], ["opus is not a run", "from-marian"]),
    (["to-ctranslate2", "en_de", "out", "--sentences", "-3"], ["sentences (-3)", "at least 0"]),
    (["from-marian", "gone", "deep/deeper/run"], ["gone is not a folder"]),
    (["from-safetensors", "gone", "out"], ["gone lacks config.json"]),
    (["to-safetensors", "en_de", "/sys/out"], ["cannot write to /sys/out"]),
]  # fmt: skip


@pytest.mark.parametrize("words, parts", MISTAKES, ids=lambda value: " ".join(value))
def test_a_mistake_gets_a_sentence_and_leaves_nothing(place, monkeypatch, capsys, words, parts):
    monkeypatch.chdir(place)
    before = sorted(path.name for path in place.iterdir())
    said = refused(monkeypatch, capsys, words)
    for part in parts:
        assert part in said
    assert sorted(path.name for path in place.iterdir()) == before


def test_help_lists_all_commands(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["convert.py", "--help"])
    with pytest.raises(SystemExit):
        carry_out(convert.main)
    assert len(re.findall(r"^\W+(from|to)-", capsys.readouterr().out, re.M)) == 6
