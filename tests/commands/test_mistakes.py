"""What the commands say to mistakes: one sentence with the remedy, exit code 2, nothing lost.

Every row is a command line and what its sentence must name. `folder` is where it is typed.
"""

import re
import resource
import shutil
import sys

import pytest
from tensorflow_datasets.core.download.checksums import UrlInfo

import eval as eval_command
import generate
import train
import translate
from transformer.commands import shortlist
from transformer.commands.program import carry_out
from transformer.data.datasets import multi30k
from transformer.data.tokenizer import save_tokenizer, train_tokenizer

COMMANDS = {
    "train.py": train.main,
    "eval.py": eval_command.main,
    "translate.py": translate.main,
    "generate.py": generate.main,
    "shortlist": shortlist.main,
}


@pytest.fixture(scope="session")
def prepared(config, undisturbed, family, tmp_path_factory):
    """A place with a config, a finished run, and runs and files in which something is wrong."""
    place = tmp_path_factory.mktemp("mistakes")
    (place / "configs").mkdir()
    small = config.read_text()
    (place / "configs" / "small.py").write_text(small)
    (place / "configs" / "large.py").write_text(small)
    (place / "configs" / "broken.py").write_text("config = Konfig()")
    (place / "configs" / "empty.py").write_text("")
    (place / "thesis.txt").write_text("precious")

    runs = place / "runs"
    for name in ("first", "other-model", "other-vocabulary", "no-checkpoint", "reverse", "strange"):
        shutil.copytree(undisturbed, runs / name)
    for kind in ("language", "masked", "classes"):
        shutil.copytree(family(kind), runs / kind)
    path = runs / "other-model" / "config.json"
    path.write_text(path.read_text().replace('"d_ff": 32', '"d_ff": 64'))
    path = runs / "reverse" / "config.json"
    swapped = path.read_text().replace('"source": "en"', '"source": "xx"')
    swapped = swapped.replace('"target": "de"', '"target": "en"')
    path.write_text(swapped.replace('"source": "xx"', '"source": "de"'))
    path = runs / "strange" / "config.json"
    path.write_text(re.sub('"vocabulary": "[^"]*"', '"vocabulary": "other"', path.read_text()))
    other = train_tokenizer(["other words"], "char", 30)
    save_tokenizer(other, runs / "other-vocabulary" / "tokenizer" / "source.model")
    shutil.rmtree(runs / "no-checkpoint" / "checkpoints")
    (runs / "damaged").mkdir()
    (runs / "damaged" / "config.json").write_text('{"model": {"d_mo')

    for name, content in {
        "two.en": b"a\nb\n", "one.de": b"a\n", "latin.de": b"a\nb \xe4\n", "nothing.en": b"",
        "table.tsv": b"a\tb\nc\n", "broken.en.gz": b"a\nb\n", "long.en": b"a b " * 500 + b"\n",
        "colours.tsv": b"cat\tblue\n", "alike.tsv": b"cat\tred\ndog\tred\n",
        "blank.en": b"\n \n", "blank.de": b"\n\n",
    }.items():  # fmt: skip
        (place / name).write_bytes(content)
    return place


@pytest.fixture
def folder(prepared, tmp_path, monkeypatch):
    """A copy of that place as the working directory; a machine without network."""
    shutil.copytree(prepared, tmp_path / "work")
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.delenv("MULTI30K_DIR", raising=False)
    monkeypatch.setattr("tensorflow_datasets.core.constants.DATA_DIR", str(tmp_path / "tfds"))
    unreachable = "http://127.0.0.1:9/"
    infos = {unreachable + name: UrlInfo(1, "0", name) for name in multi30k.FILES}
    monkeypatch.setattr(multi30k, "URL", unreachable)
    monkeypatch.setattr(multi30k.Multi30k, "url_infos", infos)
    return tmp_path / "work"


SMALL = "train.py configs/small.py --run runs/new"
MASKED = f"{SMALL} --model.decoder-layers 0 --data.target= --train.best-by loss"
ALIKE = " ".join(f"--data.{split}-files alike.tsv" for split in ("train", "validation", "test"))
DATASET = "--data.train-files --data.validation-files --data.test-files --data.dataset"
MISTAKES = [
    # configs
    ("train.py", ["config", "train.py --help"]),
    (
        "train.py --train.steps 5 configs/small.py",
        ["--train.steps must come after the first argument", "train.py"],
    ),
    ("train.py configs/smal.py", ["no config file configs/smal.py", "large.py", "small.py"]),
    ("train.py nowhere/small.py", ["no config file nowhere/small.py", "configs/small.py"]),
    ("train.py configs", ["configs is a folder: name a config file"]),
    ("train.py configs/broken.py", ["fails with", "Konfig"]),
    ("train.py configs/empty.py", ["must define `config = Config(...)`"]),
    # settings
    (f"{SMALL} --model.d-modle 32", ["d-modle", "d-model"]),
    (f"{SMALL} --train.steps many", ["steps", "many"]),
    (f"{SMALL} --model.norm both", ["norm", "both", "post", "pre"]),
    (f"{SMALL} --model.num-heads 7", ["model.d_model (16)", "multiple of model.num_heads (7)"]),
    (f"{SMALL} --model.dropout 1.5", ["model.dropout (1.5)", "below 1"]),
    (f"{SMALL} --train.steps 0", ["train.steps (0)", "at least 1"]),
    (f"{SMALL} --plan h200", ["unknown target 'h200'", "h100", "v5e"]),
    (f"{SMALL} --plan v5e:four", ["v5e:four", "needs a topology such as '2x2'"]),
    (f"{SMALL} --plan h100:2x2", ["h100:2x2", "needs a topology such as '1'"]),
    (f"{SMALL} --device gpu", ["--device gpu", "JAX found", "JAX_PLATFORMS is cpu: unset it"]),
    # corpora
    (f"{SMALL} {DATASET} multi31k/en_de", ["multi31k", "multi30k"]),
    (f"{SMALL} {DATASET} multi30k/en_fr", ["multi30k/en_fr", "en_de"]),
    (f"{SMALL} {DATASET} multi30k/en_de", ["cannot download", "val.de.gz", "MULTI30K_DIR"]),
    (f"{SMALL} --data.train-files two.en tow.de", ["data.train_files", "no file tow.de", "two.en"]),
    (f"{SMALL} --data.train-files two.en", ["data.train_files", "two.en has no target file"]),
    (f"{SMALL} --data.test-files two.en gone.de", ["data.test_files", "gone.de"]),
    (f"{SMALL} --data.train-files two.en one.de", ["two.en has 2 lines", "one.de has 1"]),
    (
        f"{SMALL} --data.train-files one.de two.en",
        ["data.train_files", "translate from de to en, not from en", "in the other order"],
    ),
    (
        f"{SMALL} --data.source-tokenizer runs/other-vocabulary/tokenizer/source.model "
        "--data.user-symbols <name>",
        ["data.user_symbols", "source.model has no token '<name>'"],
    ),
    (f"{SMALL} --data.train-files two.en latin.de", ["latin.de, line 2", "not UTF-8", "iconv"]),
    (f"{SMALL} --data.train-files nothing.en nothing.en", ["train corpus is empty", "nothing.en"]),
    (f"{SMALL} --data.train-files table.tsv", ["table.tsv, line 2", "data.tsv_columns"]),
    (f"{SMALL} --data.train-files broken.en.gz two.en", ["cannot read broken.en.gz", "gzip"]),
    (
        f"{SMALL} --data.train-files long.en long.en",
        ["none of the 1 training pairs", "data.max_length (256)"],
    ),
    (f"{SMALL} --data.train-weights 1 2", ["data.train_weights has 2 numbers", "1 corpora"]),
    (f"{SMALL} --data.train-weights 0", ["data.train_weights", "must not all be 0"]),
    (f"{SMALL} --data.train-weights -1", ["data.train_weights", "at least 0"]),
    (f"{SMALL} --data.sampling 0.1", ["data.sampling (0.1)", "data.tokenizer", "unigram or bpe"]),
    (f"{SMALL} --data.sampling 1 --data.tokenizer bpe", ["data.sampling (1.0)", "below 1"]),
    (f"{SMALL} --data.targets fr it", ["data.target ('de')", "one of data.targets (fr it)"]),
    (f"{SMALL} --data.targets de de", ["data.targets (de de)", "different codes"]),
    (f"{SMALL} --data.targets de '>>fr<<'", ["data.targets", "different codes of languages"]),
    (f"{SMALL} --data.targets de {DATASET} phrasebook/en_de", ["data.targets (de) needs files"]),
    (
        f"{SMALL} --data.targets de --data.train-files two.en two.en",
        ["data.targets: no part of the name two.en is de", "two.en.de"],
    ),
    (
        f"{SMALL} --data.targets en --data.target en --data.train-files two.en two.en "
        "--data.validation-files two.en two.en --data.test-files two.en two.en "
        "--data.source-tokenizer runs/other-vocabulary/tokenizer/source.model",
        ["data.targets: the source vocabulary has no token >>en<<"],
    ),
    (f"{MASKED} --data.targets de", ["data.targets (de) needs an encoder and a decoder"]),
    (f"{SMALL} --data.corpus-temperature 0.5", ["data.corpus_temperature (0.5)", "at least 1"]),
    (f"{SMALL} --data.tsv-columns 2 2", ["data.tsv_columns (2 2) must be two columns"]),
    (
        f"{MASKED} --data.label-column 1",
        ["data.label_column (1) is the column of the text too", "data.tsv_columns"],
    ),
    (f"{SMALL} --optimizer.spike-threshold 1", ["optimizer.spike_threshold (1)", "above 1"]),
    (
        f"{SMALL} --data.corpus-temperature 5 --data.train-weights 1",
        ["data.corpus_temperature (5)", "data.train_weights", "remove one"],
    ),
    (f"{MASKED} --data.corpus-temperature 5", ["data.corpus_temperature", "only on pairs"]),
    (f"{SMALL} --data.upper-case 1", ["data.upper_case (1.0)", "below 1"]),
    (
        f"{SMALL} --data.upper-case 0.6 --data.typos 0.6",
        ["data.upper_case (0.6) + data.typos (0.6)", "must not exceed 1"],
    ),
    (
        f"{SMALL} --data.title-case 0.6 --data.lowercase",
        ["data.title_case has no effect with data.lowercase"],
    ),
    (f"{MASKED} --data.typos 0.1", ["data.typos needs pairs of sentences or a classifier"]),
    (f"{MASKED} {ALIKE} --data.label-column 3 --data.cut 0.1", ["data.cut needs pairs"]),
    (f"{SMALL} --train.ema-decay 1", ["train.ema_decay (1.0)", "below 1"]),
    (f"{SMALL} --model.word-dropout 1", ["model.word_dropout (1.0)", "below 1"]),
    # one stack, one side
    (f"{SMALL} --model.decoder-layers 0", ["data.target ('de')", "must be empty"]),
    (f"{SMALL} --data.target=", ["data.target ('')", "must be a language"]),
    (f"{MASKED} --train.best-by bleu", ["train.best_by (bleu)", "loss or accuracy"]),
    (
        f"{MASKED} --data.sampling 0.1",
        ["data.sampling", "has an effect only on pairs of sentences"],
    ),
    (f"{MASKED} --data.swap-files", ["data.swap_files", "data.tsv_columns"]),
    (f"{SMALL} --from runs/classes --data.target= --train.best-by loss", ["data.label_column"]),
    (
        f"{MASKED} {ALIKE} --data.label-column 2",
        ["data.label_column", "all training data has the class 'red'"],
    ),
    (
        f"{MASKED} {ALIKE} --data.label-column 3",
        ["alike.tsv, line 1", "data.label_column"],
    ),
    # run folders
    ("train.py configs/small.py --run thesis.txt", ["thesis.txt", "is not a run", "--run"]),
    ("train.py configs/small.py --run .", ["is not a run", "--run"]),
    ("train.py configs/small.py --run thesis.txt/run", ["thesis.txt/run", "--run"]),
    ("train.py configs/small.py --run /sys/run", ["cannot write to /sys/run", "--run"]),
    (
        "train.py configs/small.py --run runs/first --model.d-ff 64",
        ["d_ff is 32 in the run, 64 in this command"],
    ),
    ("train.py configs/small.py --run runs/first --from runs/first", ["--from", "--run"]),
    (f"{SMALL} --from runs/frist", ["runs/frist is not a run", "runs/first"]),
    (f"{SMALL} --from runs/no-checkpoint", ["runs/no-checkpoint has no checkpoint yet"]),
    (
        f"{SMALL} --from runs/first --from-checkpoint 7",
        ["runs/first has no checkpoint '7'", "best", "20"],
    ),
    (f"{SMALL} --from runs/first --model.d-ff 64", ["of another model"]),
    (f"{SMALL} --from runs/first --data.lowercase", ["data.lowercase cannot be set"]),
    ("eval.py runs/frist", ["runs/frist is not a run", "runs/first"]),
    ("eval.py elsewhere/run", ["elsewhere/run is not a run", "train.py creates runs"]),
    ("eval.py runs/damaged", ["config.json is damaged"]),
    ("eval.py runs/other-model", ["checkpoint", "set model.d_ff back from 64 to 32"]),
    ("eval.py runs/other-vocabulary", ["runs/other-vocabulary/tokenizer", "another vocabulary"]),
    ("eval.py runs/no-checkpoint", ["runs/no-checkpoint has no checkpoint yet"]),
    # scoring and translating
    ("eval.py runs/first --checkpoint 7", ["no checkpoint '7'", "average, average-best", "20"]),
    ("eval.py runs/first --decode.beam-size 0", ["decode.beam_size (0)", "at least 1"]),
    ("eval.py runs/first --split training", ["split", "test", "validation"]),
    ("eval.py runs/first --split validation --test-files two.en two.en", ["--split validation"]),
    ("eval.py runs/first --test-files one.de two.en", ["--test-files", "not from en"]),
    ("eval.py runs/first --test-files two.en gone.de", ["--test-files: there is no file gone.de"]),
    ("eval.py runs/first --references one.de", ["--references: one.de has 1 lines", "sentences"]),
    (
        "eval.py runs/first --test-files two.en two.en two.en two.en --references one.de",
        ["one test set"],
    ),
    ("eval.py runs/first --bleu-tokenizer words", ["data.bleu_tokenizer ('words')", "13a, intl"]),
    ("eval.py runs/first --test-files two.en one.de", ["two.en has 2 lines", "one.de has 1"]),
    ("eval.py runs/first --compare runs/frist", ["runs/frist is not a run"]),
    ("eval.py runs/first --compare runs/first:7", ["runs/first has no checkpoint '7'", "20"]),
    ("eval.py runs/first --compare runs/language", ["--compare", "runs/language"]),
    ("eval.py runs/language --compare runs/first", ["runs/language is not a translator"]),
    ("eval.py runs/classes --lowercased", ["runs/classes is not a translator", "--lowercased"]),
    ("translate.py runs/frist", ["runs/frist is not a run", "runs/first"]),
    ("translate.py runs/first --beam 3", ["--beam"]),
    ("translate.py runs/first two.en", ["two.en is no setting", "runs/first < two.en"]),
    ("translate.py runs/no-checkpoint", ["runs/no-checkpoint has no checkpoint yet"]),
    ("translate.py runs/other-vocabulary", ["another vocabulary"]),
    (
        "translate.py runs/language",
        ["runs/language is not a translator", "generate.py runs/language"],
    ),
    ("translate.py runs/first --nbest 3", ["--nbest (3)", "--decode.beam-size (2)"]),
    ("translate.py runs/first --nbest 0", ["nbest (0)", "at least 1"]),
    ("translate.py runs/first --score", ["--score", "--input tsv or --input json"]),
    ("translate.py runs/first --score --input tsv --nbest 2", ["--score", "--nbest"]),
    (
        "translate.py runs/first --score --input tsv --decode.term-bonus 1",
        ["--score", "remove --decode.term-bonus"],
    ),
    (
        "translate.py runs/first --score --input tsv --glossary two.en",
        ["--score", "remove --glossary"],
    ),
    ("translate.py runs/first --input xml", ["input", "xml", "json"]),
    ("translate.py runs/first --input html --nbest 2", ["--input html", "remove --nbest"]),
    ("translate.py runs/first --input po --output json", ["--input po", "remove --output json"]),
    ("translate.py runs/first --glossary two.en --decode.beam-size 1", ["--glossary needs a beam"]),
    ("translate.py runs/first --glossary terms.tsv", ["terms.tsv"]),
    ("translate.py runs/first --keep-numbers", ["--keep-numbers", "--input paragraphs"]),
    ("translate.py runs/first --decode.min-length -1", ["min_length (-1)", "at least 0"]),
    ("translate.py runs/first --decode.repetition-penalty 0", ["repetition_penalty", "above 0"]),
    ("translate.py runs/first --ensemble runs/frist", ["runs/frist is not a run"]),
    ("translate.py runs/first --ensemble runs/first:7", ["runs/first has no checkpoint '7'", "20"]),
    ("translate.py runs/first --ensemble runs/language", ["runs/language does not translate"]),
    ("translate.py runs/first --ensemble runs/strange", ["runs/strange has another vocabulary"]),
    ("eval.py runs/first --ensemble runs/strange", ["runs/strange has another vocabulary"]),
    ("eval.py runs/language --ensemble runs/language", ["not a translator: remove --ensemble"]),
    ("eval.py runs/first --ensemble runs/first --report", ["--report", "remove it or --ensemble"]),
    ("eval.py runs/classes --test-files colours.tsv", ["the class 'blue'", "cat, none"]),
    ("generate.py runs/first", ["runs/first is a translator", "translate.py runs/first"]),
    ("generate.py runs/language --samples 3 --beam-size 2", ["--samples (3)", "--beam-size (2)"]),
    ("generate.py runs/language --top-p 1.5", ["top_p (1.5)", "at most 1"]),
    ("generate.py runs/language --words 3", ["--words has no effect"]),
    ("generate.py runs/language --beam-size 2 --top-k 3", ["--top-k has no effect", "--beam-size"]),
    ("generate.py runs/masked --samples 3", ["--samples has no effect"]),
    ("generate.py runs/masked --no-repeat-ngram 3", ["--no-repeat-ngram has no effect"]),
    ("generate.py runs/language --repetition-penalty 0", ["repetition_penalty (0.0)"]),
    ("generate.py runs/language --input tsv", ["--input", "'tsv'", "'json'"]),
    ("eval.py runs/language --sacrebleu wmt14/full", ["runs/language is no", "--sacrebleu"]),
    (
        "translate.py runs/first --decode.shortlist 1",
        ["decode.shortlist", "no shortlist.npz", "transformer.commands.shortlist runs/first"],
    ),
    (
        "eval.py runs/first --decode.shortlist 1 --decode.min-length 2",
        ["decode.shortlist does not allow decode.min_length"],
    ),
    (
        "translate.py runs/first --decode.frequent 9",
        ["decode.frequent", "no shortlist.npz", "transformer.commands.shortlist runs/first"],
    ),
    (
        "translate.py runs/first --decode.frequent 9 --decode.shortlist 2",
        ["decode.shortlist does not allow decode.frequent"],
    ),
    ("shortlist runs/language", ["runs/language is not a translator"]),
    ("shortlist runs/first --files two.en", ["--files", "two.en has no target file"]),
    ("shortlist runs/first --files two.en one.de", ["two.en has 2 lines", "one.de has 1"]),
    ("shortlist runs/none", ["runs/none"]),
    ("translate.py runs/first --confidence", ["--confidence", "add --output json"]),
    (
        "translate.py runs/first --confidence --score --input tsv --output json",
        ["--confidence", "remove --score"],
    ),
    ("translate.py runs/first --confidence --input html", ["--input html", "--confidence"]),
    ("eval.py runs/language --confidence", ["runs/language is not a translator", "--confidence"]),
    ("eval.py runs/language --perturb typos", ["--perturb needs a translator or a classifier"]),
    ("eval.py runs/classes --perturb cut", ["--perturb cut needs pairs of sentences"]),
    ("eval.py runs/first --perturb capitals", ["--perturb", "upper_case"]),
    ("eval.py runs/first --sacrebleu wmt14-full", ["no such test set", "wmt14/full"]),
    ("eval.py runs/first --sacrebleu mtnt2019", ["mtnt2019 has no en-de: it has"]),
    ("generate.py runs/language --log-probs --output json", ["--log-probs has no effect"]),
    ("translate.py runs/first --ensemble runs/reverse", ["runs/reverse does not translate"]),
    ("eval.py runs/first --compare runs/reverse", ["runs/reverse does not translate"]),
    (
        "translate.py runs/first --decode.min-length 9 --decode.max-length 9",
        ["decode.min_length (9)", "below decode.max_length (9)"],
    ),
    (f"{SMALL} --data.train-weights 0.001", ["data.train_weights leave no pair"]),
    ("eval.py runs/first --details -1", ["details (-1)", "at least 0"]),
    (f"{SMALL} --data.train-weights 1e12", ["data.train_weights", "at most 1000"]),
    (f"{SMALL} --train.r-drop 1e30", ["train.r_drop (1e+30)", "at most 1000"]),
    (f"{SMALL} --wandb a/b", ["--wandb 'a/b'", "none of /"]),
    ("translate.py runs/first --decode.alpha 1e30", ["decode.alpha (1e+30)", "at most 10"]),
    ("translate.py runs/first --decode.no-repeat-ngram 3000", ["(3000)", "at most 100"]),
    ("translate.py runs/first --decode.repetition-penalty 1e39", ["(1e+39)", "at most 100"]),
    ("generate.py runs/language --no-repeat-ngram 101", ["no_repeat_ngram (101)", "at most 100"]),
    (
        "generate.py runs/language --max-tokens 5 --min-length 6",
        ["--min-length (6)", "--max-tokens (5)"],
    ),
    ("eval.py runs/first --test-files runs runs", ["runs is a folder"]),
    ("eval.py runs/first --test-files blank.en blank.de", ["blank.en and blank.de", "are blank"]),
]


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def message_of(line, monkeypatch, capfd):
    """What a command that fails leaves on stderr after its own notes."""
    name, *arguments = line.split()
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    with pytest.raises(SystemExit) as stop:
        carry_out(COMMANDS[name])
    assert stop.value.code == 2
    said = capfd.readouterr().err
    assert "Traceback" not in said
    return said


def assert_one_sentence(message, words):
    assert message.startswith("error: ") and len(message.splitlines()) == 1
    for word in words:
        assert word in message


@pytest.mark.parametrize("line, words", MISTAKES, ids=[line for line, _ in MISTAKES])
def test_a_mistake_gets_one_sentence_and_changes_nothing(folder, monkeypatch, capfd, line, words):
    before = contents(folder)
    said = message_of(line, monkeypatch, capfd)
    assert_one_sentence(said[re.search(r"^error: |\Z", said, re.M).start() :], words)
    after = contents(folder)
    assert {path: after.get(path) for path in before} == before


def test_a_full_disk_keeps_the_checkpoints_before(folder, monkeypatch, capfd):
    before = contents(folder)
    monkeypatch.setattr("signal.signal", lambda *_: None)  # Ctrl-C stays pytest's
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        said = message_of(f"{SMALL} --data.normalisation identity", monkeypatch, capfd)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert_one_sentence(said[said.index("error: ") :], ["cannot s", "check free space"])
    after = contents(folder)
    assert {path: after.get(path) for path in before} == before
