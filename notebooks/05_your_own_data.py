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
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github)
#
# From two text files to a translator that you keep: is the accelerator used, what is wrong with the
# data, training that survives a disconnect, fine-tuning a model that others have trained, and
# exporting it. What stands here runs on two CPU cores in some minutes, on little text and with a
# small model, so it does not translate well; the same commands with your files and
# `configs/multi30k.py` or `configs/wmt14_base.py` do, on a GPU or TPU.
#
# In Colab choose *Runtime > Change runtime type* first: T4 is a GPU, v5e-1 a TPU.

# %% tags=["install"]
import os
import shutil
import subprocess
import sys
from pathlib import Path

REPOSITORY = ""  # https://github.com/...

if "google.colab" in sys.modules:
    if not Path("train.py").exists():
        if not Path("project").exists():
            assert REPOSITORY, "set REPOSITORY to the address of the repository, and run this again"
            subprocess.run(["git", "clone", "--depth", "1", REPOSITORY, "project"], check=True)
        os.chdir("project")
    # The plug-in of an accelerator has to be of jax's own version: beside an older one jax would
    # compute on the CPU.
    has_tpu = "TPU_NAME" in os.environ or any(Path("/dev").glob("accel*"))
    extra = "cuda" if shutil.which("nvidia-smi") else "tpu" if has_tpu else ""
    wanted = ".[convert,viewing" + f",{extra}" * bool(extra) + "]"
    subprocess.run([sys.executable, "-m", "pip", "install", "-qe", wanted], check=True)

while not Path("train.py").exists():
    os.chdir("..")
    assert Path.cwd() != Path("/"), "open this notebook inside the project"
sys.path.insert(0, os.getcwd())

# %% [markdown]
# ## 1. What computes here?
#
# JAX takes the best device that it finds, and without a word the CPU, if the accelerator's plug-in
# is missing or of another version. So look, and train with `--device gpu` (or `tpu`), which refuses
# anything else. (We ask in a process of its own: a TPU, and most of a GPU's memory, belong to the
# first process that uses it, and that shall be the training.)

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
# ## 2. A place that stays
#
# A Colab machine and all its files are gone some time after you close the page. Google Drive stays:
# put the run folder there. (The text that it is trained on is better copied to the machine, which
# reads faster.)

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
# Two files, one sentence a line, line k of one a translation of line k of the other. Instead of
# yours, here are some thousand sentences of the phrasebook, with mistakes that real data have.

# %%
from itertools import islice

from transformer.config import DataConfig
from transformer.data.corpus import read_pairs

phrasebook = DataConfig(dataset="phrasebook/en_de")
text = Path("runs/own_text")
text.mkdir(parents=True, exist_ok=True)
for split, count in {"train": 8000, "validation": 64, "test": 64}.items():
    pairs = list(islice(read_pairs(phrasebook, split), count))
    if split == "train":
        pairs[10] = ("", pairs[10][1])  # a line is missing
        pairs[20] = pairs[21]  # the same twice
        pairs[30] = (pairs[30][0], pairs[30][0])  # not translated
        pairs[40] = (pairs[40][0], "Погода сегодня хорошая.")  # another language
        pairs[50] = next(read_pairs(phrasebook, "test"))  # in the test set, too
    for side, ending in enumerate(("en", "de")):
        lines = "".join(f"{pair[side]}\n" for pair in pairs)
        (text / f"{split}.{ending}").write_text(lines, encoding="utf-8")
print((text / "train.en").read_text(encoding="utf-8")[:120], "...")

# %% [markdown]
# Any set of sentence pairs of TensorFlow Datasets is as good: `--data.dataset
# ted_hrlr_translate/pt_to_en --data.source pt --data.target en` downloads it once.
#
# ## 4. What is wrong with them?
#
# The data doctor reads everything before hours are spent on it, and changes nothing.

# %%
FILES = [
    "--data.dataset", "", "--data.source", "en", "--data.target", "de",
    "--data.train-files", f"{text}/train.en", f"{text}/train.de",
    "--data.validation-files", f"{text}/validation.en", f"{text}/validation.de",
    "--data.test-files", f"{text}/test.en", f"{text}/test.de",
]  # fmt: skip
SMALL = [
    "--model.d-model", "96", "--model.d-ff", "192",
    "--model.norm", "post", "--model.dropout", "0.1", "--data.vocab-size", "900",
    "--data.batch-tokens", "1536", "--data.num-buckets", "2", "--optimizer.name", "adam",
    "--optimizer.scale", "1", "--optimizer.warmup-steps", "200",
    "--optimizer.cooldown-steps", "200", "--train.steps", "500",
    "--train.validate-every", "100", "--train.log-every", "50",
    "--decode.normalisation", "length", "--decode.alpha", "1",
]  # fmt: skip


def command(script, *words):
    """Runs one of the project's commands; shows what it says, and fails if it does."""
    result = subprocess.run(
        [sys.executable, script, *map(str, words)], capture_output=True, text=True
    )
    print(result.stdout + result.stderr * (result.returncode != 0), end="")
    assert result.returncode == 0


first = home / "first"
command("train.py", "configs/quickstart.py", "--run", first, *FILES, *SMALL, "--doctor")

# %% [markdown]
# ## 5. Training, and a disconnect
#
# The program is killed in the middle, as when a machine is taken away. The same command goes on
# from the last checkpoint, and ends with the same weights as if nothing had happened.

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
    if line.startswith("update 250/"):
        process.kill()
killed = process.wait() < 0
print("... and the machine is gone" if killed else "(this run was finished before)")

# %%
result = subprocess.run(training, capture_output=True, text=True)
assert result.returncode == 0, result.stderr
lines = result.stdout.splitlines()
print(*(line for line in lines if line.startswith(("updates", "update ", "done"))), sep="\n")

# %%
import matplotlib.pyplot as plt

from transformer.viewing.plots import draw_runs

figure, axes = plt.subplots(1, 3, figsize=(13, 3), layout="constrained")
metrics = {"first": read_metrics(first)}
draw_runs(axes[0], metrics, "loss", "training loss", "nats a token")
draw_runs(axes[1], metrics, "validation_bleu", "validation BLEU")
draw_runs(axes[2], metrics, "tokens_per_second", "target tokens/s")
plt.show()

# %%
command("eval.py", first)

# %% [markdown]
# ## 6. Beginning with a model that others have trained
#
# OPUS-MT has a thousand small translators (Tiedemann and Thottingal, 2020), in Hugging Face's
# format. `convert.py from-marian` makes a run of one, with the same logits, and training goes on
# from there. To fetch one (300 MB), set `OPUS`; without a network, as here, our own model stands in
# for it, written in the same layout.
#
# The imported run searches as that format's models do: translations may be as long as the model
# allows, whatever the source. We bound them as ours are, by 30 tokens more than the source has;
# what still differs between the scores comes from when the two searches stop.

# %%
OPUS = ""  # such as "Helsinki-NLP/opus-mt-en-de"

folder = home / "marian"
shutil.rmtree(folder, ignore_errors=True)  # made anew
if OPUS:
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "huggingface_hub"], check=True)
    from huggingface_hub import snapshot_download

    wanted = ["*.json", "*.spm", "pytorch_model.bin", "model.safetensors"]
    snapshot_download(OPUS, local_dir=folder, allow_patterns=wanted)
else:
    command("convert.py", "to-marian", first, folder)
print(sorted(path.name for path in folder.iterdir()))

# %%
imported = home / "imported"
shutil.rmtree(imported, ignore_errors=True)
command("convert.py", "from-marian", folder, imported, "--source", "en", "--target", "de")
test = ["--test-files", f"{text}/test.en", f"{text}/test.de"]
command("eval.py", imported, *test, "--decode.max-extra-length", "30")

# %% [markdown]
# Fine-tuning begins with its weights and its vocabulary. The learning rate stays far below that of
# a training from nothing, and the training is short: a model adapts to your text within few
# updates, and with many of them forgets what it could before.

# %%
tuned = home / "tuned"
TUNING = [
    "--optimizer.name", "adam", "--optimizer.scale", "0.05", "--optimizer.warmup-steps", "50",
    "--optimizer.cooldown-steps", "100", "--train.steps", "200", "--train.validate-every", "100",
    "--data.batch-tokens", "1536", "--data.num-buckets", "2",
]  # fmt: skip
command("train.py", "configs/quickstart.py", "--run", tuned, "--from", imported, *FILES, *TUNING)
command("eval.py", tuned)

# %% [markdown]
# ## 7. Taking it elsewhere
#
# CTranslate2 translates without JAX, with weights of 8 bits; LibreTranslate and Argos Translate are
# built on it. (Speeds of a model as small as this say little about a large one's.)
# `to-safetensors` writes the weights for anything else.

# %%
shutil.rmtree(home / "ctranslate2", ignore_errors=True)
command(
    "convert.py", "to-ctranslate2", tuned, home / "ctranslate2", "--quantization", "int8",
    "--sample", f"{text}/test.en", f"{text}/test.de",
)  # fmt: skip

# %%
import ctranslate2
import sentencepiece

loaded = ctranslate2.Translator(str(home / "ctranslate2"), device="cpu")
source = sentencepiece.SentencePieceProcessor(str(home / "ctranslate2" / "source.spm"))
target = sentencepiece.SentencePieceProcessor(str(home / "ctranslate2" / "target.spm"))
pieces = source.encode("The teacher bought a new bicycle yesterday.", out_type=str)
[found] = loaded.translate_batch([pieces], beam_size=4)
print(target.decode(found.hypotheses[0]))

# %%
archive = shutil.make_archive(home / "translator", "zip", home / "ctranslate2")
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
