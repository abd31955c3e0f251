# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Your own data
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/)
#
# From two text files to a translator that you keep: is the accelerator used, what is wrong with the
# data, training that survives a disconnect, fine-tuning a trained model, and exporting it. The text
# and the model are small here, so that the notebook takes two minutes on two CPU cores; the same
# commands work with your files and larger models (`configs/multi30k.py`, `configs/wmt14_base.py`)
# on a GPU or TPU.
#
# In Colab choose *Runtime > Change runtime type* first: T4 is a GPU, v5e-1 a TPU.

# %% tags=["install"]
import os
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

REPOSITORY = ""  # the address in pyproject.toml, written by `make notebooks`

if "google.colab" in sys.modules:
    if not Path("train.py").exists() and not Path("project").exists():
        if Path("project.zip").exists():
            shutil.unpack_archive("project.zip", "project")
        elif REPOSITORY:
            subprocess.run(["git", "clone", "--depth", "1", REPOSITORY, "project"], check=True)
        else:
            raise SystemExit("upload the project's folder as project.zip, and run this cell again")
    os.chdir(next(Path().rglob("train.py")).parent)
    # The plug-in of an accelerator has to be of jax's own version: beside an older one jax would
    # compute on the CPU.
    has_tpu = "TPU_NAME" in os.environ or any(Path("/dev").glob("accel*"))
    # CUDA 12 runs with drivers from 525 on, CUDA 13 from 580 on.
    extra = "cuda12" if shutil.which("nvidia-smi") else "tpu" if has_tpu else ""
    wanted = ".[convert,viewing" + f",{extra}" * bool(extra) + "]"
    subprocess.run([sys.executable, "-m", "pip", "install", "-qe", wanted], check=True)
    for name in {"jax", "numpy"} & sys.modules.keys():
        if sys.modules[name].__version__ != version(name):
            raise SystemExit("choose Runtime > Restart session, and run this cell again")

while not Path("train.py").exists():
    os.chdir("..")
    assert Path.cwd() != Path("/"), "open this notebook inside the project"
sys.path.insert(0, os.getcwd())

# %% [markdown]
# ## 1. Is the accelerator used?
#
# JAX takes the best device that it finds. If the plug-in of the accelerator is missing or of
# another version, this is the CPU, without a warning. So look, and train with `--device gpu` (or
# `tpu`), which refuses anything else. (We ask in a separate process: a TPU, and most of a GPU's
# memory, belong to the first process that uses them, and this should be the training.)

# %%
ASK = """
import jax
x = jax.numpy.ones((1000, 1000))
print("a product was computed on", (x @ x).devices(), "with jax", jax.__version__)
print(jax.default_backend())
"""
said = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, check=True)
*shown, kind = said.stdout.splitlines()
print(*shown, sep="\n")
print("training is on", kind)
there = "gpu" if shutil.which("nvidia-smi") else kind
if "TPU_NAME" in os.environ or any(Path("/dev").glob("accel*")):
    there = "tpu"
assert kind == there, f"there is a {there.upper()}, but JAX does not use it: see README"

# %% [markdown]
# ## 2. A folder that stays
#
# A Colab machine and all its files are deleted some time after you close the page. Google Drive
# stays: put the run folder there. (Copy the training text to the machine, which reads it faster.)

# %%
if "google.colab" in sys.modules:
    from google.colab import drive

    drive.mount("/content/drive")
    home = Path("/content/drive/MyDrive/translator")
else:
    home = Path("runs/own_data")
    shutil.rmtree(home, ignore_errors=True)  # an example, which is made anew
home.mkdir(parents=True, exist_ok=True)
print("all that is made here goes to", home)

# %% [markdown]
# ## 3. Your files
#
# Two files with one sentence per line; line k of one is the translation of line k of the other.
# Instead of yours, here are 2,000 sentences of the phrasebook as an old program may want them: it
# knows neither umlauts nor capital letters, so "Das Mädchen" (the girl) is written "das maedchen".
# They also have mistakes that real data have.

# %%
from itertools import islice

from transformer.config import DataConfig
from transformer.data.corpus import read_pairs


def plain(german):
    return german.lower().translate(str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "ß": "ss"}))


phrasebook = DataConfig(dataset="phrasebook/en_de")
text = Path("runs/own_text")
text.mkdir(parents=True, exist_ok=True)
for split, count in {"train": 2000, "validation": 64, "test": 64}.items():
    pairs = [(a, plain(b)) for a, b in islice(read_pairs(phrasebook, split), count)]
    if split == "train":
        pairs[10], pairs[11] = ("", pairs[10][1]), (pairs[11][0], "")  # lines are missing
        pairs[20] = pairs[22] = pairs[23] = pairs[21]  # one pair four times
        pairs[30] = (pairs[30][0], pairs[30][0])  # not translated
        pairs[40] = (pairs[40][0], "Погода сегодня хорошая.")  # another language
        source, target = next(read_pairs(phrasebook, "test"))
        pairs[50] = (source, plain(target))  # in the test set, too
    for side, ending in enumerate(("en", "de")):
        lines = "".join(f"{pair[side]}\n" for pair in pairs)
        (text / f"{split}.{ending}").write_text(lines, encoding="utf-8")
print((text / "train.de").read_text(encoding="utf-8")[:200], "...")

# %% [markdown]
# Any set of sentence pairs of TensorFlow Datasets works as well: `--data.dataset
# ted_hrlr_translate/pt_to_en --data.source pt --data.target en` downloads it once.
#
# ## 4. What is wrong with them?
#
# The data doctor reads all text before hours of training are spent on it, and changes nothing.

# %%
FILES = [
    "--data.dataset", "", "--data.source", "en", "--data.target", "de",
    "--data.train-files", f"{text}/train.en", f"{text}/train.de",
    "--data.validation-files", f"{text}/validation.en", f"{text}/validation.de",
    "--data.test-files", f"{text}/test.en", f"{text}/test.de",
]  # fmt: skip
SMALL = [
    "--model.d-model", "64", "--model.d-ff", "128", "--model.encoder-layers", "1",
    "--model.decoder-layers", "1", "--decode.max-length", "16", "--data.vocab-size", "500",
    "--data.batch-tokens", "1024", "--data.num-buckets", "1", "--optimizer.name", "adam",
    "--optimizer.scale", "1", "--optimizer.warmup-steps", "50",
    "--optimizer.cooldown-steps", "50", "--train.steps", "100", "--train.validate-every", "50",
    "--train.log-every", "25",
]  # fmt: skip


def command(script, *words):
    """Runs one of the project's commands, prints its output and returns it."""
    result = subprocess.run(
        [sys.executable, script, *map(str, words)], capture_output=True, text=True
    )
    print(result.stdout + result.stderr * (result.returncode != 0), end="")
    assert result.returncode == 0
    return result.stdout


def content_of_files():
    return {path.name: path.read_bytes() for path in text.iterdir()}


files_before = content_of_files()
first = home / "first"
shutil.rmtree(first, ignore_errors=True)
said = command("train.py", "configs/quickstart.py", "--run", first, *FILES, *SMALL, "--doctor")
assert content_of_files() == files_before  # the doctor changes nothing


def count_by_doctor(finding):
    [line] = [line for line in said.splitlines() if line.strip().startswith(finding)]
    return int(line.removeprefix("  " + finding).split()[0])


for finding in ("source equal to target", "another script than most", "pair also in test"):
    assert count_by_doctor(finding) == 1

# %% [markdown]
# ### Exercise 1: words that training never shows
#
# The doctor does not look for words that are only in the test set. How many different German words
# are there (a word is what stands between spaces, so "suppe." with its full stop is one, too)? With
# a vocabulary of whole words, the model could not write any of them.

# %% tags=["exercise"]
from notebooks.exercises import check


def words_of(*splits):
    """The different German words of these files."""
    texts = [(text / f"{split}.de").read_text(encoding="utf-8") for split in splits]
    return set(" ".join(texts).split())


unseen = ...  # their number
check(unseen, len(words_of("train", "test")) - len(words_of("train")))

# %% cellView="form" jupyter={"source_hidden": true} tags=["solution", "hide-input"]
# @title Solution
unseen_words = words_of("test") - words_of("train")
unseen = len(unseen_words)
check(unseen, len(words_of("train", "test")) - len(words_of("train")))
print(f"{unseen} of {len(words_of('test'))}:", *sorted(unseen_words)[:8], "...")
print("This model can write them, since its vocabulary has 500 parts of words.")

# %% [markdown]
# ## 5. Training, and a disconnect
#
# We kill the program in the middle, as when a machine is taken away. The same command continues
# from the last checkpoint, and ends with the same weights as without the interruption
# (`tests/commands/test_resume.py` compares them bit by bit). The first update after each start is
# slow, because it is compiled: hence the speed below. 100 updates are few, and BLEU is near 0.

# %%
from transformer.runs.metrics import read_metrics

training = [
    sys.executable, "train.py", "configs/quickstart.py", "--run", str(first), *FILES, *SMALL,
]  # fmt: skip
if kind != "cpu":
    training += ["--device", kind]
process = subprocess.Popen(training, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
for line in process.stdout:
    print(line, end="")
    if line.startswith("update 75/"):
        process.kill()
assert process.wait() < 0
print("... and the machine is gone")

# %%
result = subprocess.run(training, capture_output=True, text=True)
assert result.returncode == 0, result.stderr
lines = result.stdout.splitlines()
print(*(line for line in lines if line.startswith(("updates", "update ", "done"))), sep="\n")
assert any(line.startswith("updates     50 of 100 done") for line in lines)

# %%
import matplotlib.pyplot as plt

from transformer.viewing.plots import draw_runs

figure, axes = plt.subplots(1, 3, figsize=(13, 3), layout="constrained")
metrics = {"first": read_metrics(first)}
draw_runs(axes[0], metrics, "loss", "training loss", "nats per token")
draw_runs(axes[1], metrics, "validation_bleu", "greedy search, validation set", "BLEU")
draw_runs(axes[2], metrics, "tokens_per_second", "speed", "target tokens per second")
for place in axes:
    place.axvline(50, color="black", linestyle="--", linewidth=0.8)
    place.set_xlim(20, 105)
axes[0].text(52, axes[0].get_ylim()[1], "continued from here", va="top")
axes[1].set_ylim(0, 100)
plt.show()

# %% [markdown]
# ### Exercise 2: how many epochs?
#
# In one epoch, each pair is read once. How many epochs are the 100 updates? The line below says how
# many updates are an epoch.

# %% tags=["exercise"]
[line] = [line for line in lines if line.startswith("data")]
print(line)
epochs = ...
updates_an_epoch = int(line.split(" updates an epoch")[0].split()[-1].replace(",", ""))
check(epochs, 100 / updates_an_epoch, tolerance=0.01)

# %% cellView="form" jupyter={"source_hidden": true} tags=["solution", "hide-input"]
# @title Solution
epochs = 100 / updates_an_epoch
check(epochs, 100 / updates_an_epoch, tolerance=0.01)
print(f"{epochs:.2f}; metrics.jsonl says {read_metrics(first)[-2]['epoch']:.2f}")

# %% [markdown]
# ## 6. Fine-tuning a trained model
#
# 2,000 pairs are too few to learn a language from. They are enough to adapt a model that has
# learned it: here the one of `03_train_a_translator`, which has read 72,000 sentences in the usual
# spelling. First its score on your validation set (the test set is for the final score:
# `python eval.py runs/own_data/tuned`):

# %%
import json

GREEDY = ["--decode.beam-size", 1, "--decode.max-extra-length", 20]
VALIDATION = [text / "validation.en", text / "validation.de"]


def bleu_of(run):
    """The BLEU of a run on your validation set, with greedy search."""
    command("eval.py", run, *GREEDY, "--test-files", *VALIDATION)
    [record] = (Path(run) / "eval").glob("*.json")
    scores = json.loads(record.read_text(encoding="utf-8"))["scores"]
    return next(score["value"] for score in scores if score["name"] == "BLEU")


trained = home / "trained"
shutil.rmtree(trained, ignore_errors=True)
command("convert.py", "from-safetensors", "notebooks/weights/quickstart", trained)
before = bleu_of(trained)

# %% [markdown]
# Fine-tuning starts with its weights and its vocabulary (`--from`). The learning rate rises to
# 0.006, a third of that of the training above, and the training is short: a model adapts to your
# text within few updates, and with many of them it may forget what it could before. (It begins to:
# look for words in the translations below that are no German.)

# %%
tuned = home / "tuned"
shutil.rmtree(tuned, ignore_errors=True)
TUNING = [
    "--optimizer.name", "adam", "--optimizer.scale", "0.3", "--optimizer.warmup-steps", "20",
    "--optimizer.cooldown-steps", "100", "--train.steps", "160", "--train.validate-every", "160",
    "--train.log-every", "40", "--data.batch-tokens", "1024", "--data.num-buckets", "1", *GREEDY,
]  # fmt: skip
command("train.py", "configs/quickstart.py", "--run", tuned, "--from", trained, *FILES, *TUNING)
after, alone = (
    max(line.get("validation_bleu", 0) for line in read_metrics(run)) for run in (tuned, first)
)
print(f"trained on 72,000 other sentences: {before:.1f}, fine-tuned on yours: {after:.1f}")
print(f"trained on yours alone: {alone:.1f}")
assert after > before + 8
assert after > alone + 25

# %% [markdown]
# ### A model that others have trained
#
# OPUS-MT has more than a thousand translators (Tiedemann and Thottingal, 2020) in Hugging Face's
# format. `convert.py from-marian` makes a run of one, with the same logits, and `--from` fine-tunes
# it as above. To download one (300 MB), set `OPUS`.

# %%
OPUS = ""  # such as "Helsinki-NLP/opus-mt-en-de"

if OPUS:
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "huggingface_hub"], check=True)
    from huggingface_hub import snapshot_download

    wanted = ["*.json", "*.spm", "pytorch_model.bin", "model.safetensors"]
    snapshot_download(OPUS, local_dir=home / "marian", allow_patterns=wanted)
    command("convert.py", "from-marian", home / "marian", home / "imported")
    bleu_of(home / "imported")

# %% [markdown]
# ## 7. Taking it elsewhere
#
# CTranslate2 translates without JAX, with weights of 8 bits; LibreTranslate and Argos Translate are
# built on it. `to-ctranslate2` compares its translations with ours, unless `--sentences` is 0:
# here, we compare by hand. After 160 updates our model is unsure, so that rounding its weights
# changes many translations. `to-safetensors` writes the weights for other programs.

# %%
small = home / "ctranslate2"
shutil.rmtree(small, ignore_errors=True)
command("convert.py", "to-ctranslate2", tuned, small, "--quantization", "int8", "--sentences", 0)
size = sum(path.stat().st_size for path in small.iterdir()) / 1e6
print(f"all files of {small}: {size:.1f} MB")

# %%
import ctranslate2
import numpy as np
import sentencepiece
from sacrebleu.metrics import BLEU

loaded = ctranslate2.Translator(str(small), device="cpu")
source = sentencepiece.SentencePieceProcessor(str(small / "source.spm"))
target = sentencepiece.SentencePieceProcessor(str(small / "target.spm"))
english, german = (file.read_text(encoding="utf-8").splitlines() for file in VALIDATION)
found = loaded.translate_batch(source.encode(english, out_type=str), beam_size=1)
translations = [target.decode(one.hypotheses[0]) for one in found]
with_8_bits = BLEU().corpus_score(translations, [german]).score
print(f"BLEU with weights of 32 bits, in JAX: {after:.1f}; with 8 bits, in CTranslate2:", end=" ")
print(f"{with_8_bits:.1f}")
assert with_8_bits > before + 4
is_right = np.array(translations) == np.array(german)
without_capitals = np.mean([one.islower() for one in translations])
print(
    f"{without_capitals:.0%} have no capital letter, as in your files; {is_right.sum()} of", end=" "
)
print(f"{len(english)} are the reference, word by word: 160 updates are few. For example:")
for number in [*np.flatnonzero(is_right)[:2], *np.flatnonzero(~is_right)[:2]]:
    print(f"{english[number]}\n    {translations[number]}")
assert without_capitals > 0.8

# %% [markdown]
# ### Exercise 3: 8 bits instead of 32
#
# A weight of 32 bits takes 4 bytes, one of 8 bits takes 1. The model has 1.115 million weights; how
# many million bytes would all of them take in each precision? Compare with the size above, in which
# biases, norms and scales keep 32 bits, and the vocabulary has files of its own.

# %% tags=["exercise"]
from transformer.interchange.model import load_plain
from transformer.model.params import count_params

megabytes = ...  # two numbers: 32 bits, 8 bits
weights = count_params(load_plain(Path("notebooks/weights/quickstart")).params) / 1e6
check(megabytes, [4 * weights, weights], tolerance=0.02)

# %% cellView="form" jupyter={"source_hidden": true} tags=["solution", "hide-input"]
# @title Solution
megabytes = [4 * 1.115136, 1.115136]
check(megabytes, [4 * weights, weights], tolerance=0.02)

# %%
archive = shutil.make_archive(home / "translator", "zip", small)
print(f"{Path(archive).name}: {Path(archive).stat().st_size / 1e6:.1f} MB")
if "google.colab" in sys.modules:
    from google.colab import files

    files.download(archive)

# %% [markdown]
# ## What to read next
#
# - `python eval.py RUN --report` writes a page that shows all of a run.
# - On a machine of your own, `pip install -e '.[server]'` and `python -m transformer.serving.server
#   RUN` serve a page on which to try it.
