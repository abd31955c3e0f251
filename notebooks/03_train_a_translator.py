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
# # Train a translator
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github)
#
# The Transformer of ["Attention Is All You Need"](https://arxiv.org/abs/1706.03762), from sentence
# pairs to BLEU on one page. It takes a few minutes on two CPU cores.
#
# In Colab, write the address of the repository below; the cell clones and installs it.

# %%
import os
import subprocess
import sys
from pathlib import Path

REPOSITORY = ""  # https://github.com/...

if "google.colab" in sys.modules:
    assert REPOSITORY, "set REPOSITORY to the address of the repository, then run this cell again"
    subprocess.run(["git", "clone", "--depth", "1", REPOSITORY, "project"], check=True)
    os.chdir("project")
    subprocess.run([sys.executable, "-m", "pip", "install", "-qe", ".[notebook]"], check=True)

while not Path("train.py").exists():
    os.chdir("..")
    assert Path.cwd() != Path("/"), "open this notebook inside the project"
sys.path.insert(0, os.getcwd())

# %% [markdown]
# ## The data
#
# `phrasebook/en_de` is generated on your machine by a grammar. Its test sentences hold combinations
# of words and constructions that training never shows, so a translator has to compose.

# %%
from itertools import islice

from transformer.config.files import load_config
from transformer.data.corpus import read_pairs

config = load_config("configs/quickstart.py")
for source, target in islice(read_pairs(config.data, "test"), 5):
    print(f"{source}\n    {target}")

# %% [markdown]
# ## Training
#
# One command. It keeps everything in `runs/quickstart`, and goes on from there if it is run again.

# %%
with subprocess.Popen(
    [sys.executable, "train.py", "configs/quickstart.py"],
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
) as training:
    for line in training.stdout:
        print(line, end="")
assert training.returncode == 0

# %% [markdown]
# ## What happened
#
# The loss is the label-smoothed cross-entropy of section 5.4, and the learning rate follows
# equation 3.

# %%
import json

import matplotlib.pyplot as plt

run = Path("runs/quickstart")
lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
reports = [line for line in lines if "loss" in line]
validations = [line for line in lines if "validation_bleu" in line]

figure, (left, middle, right) = plt.subplots(1, 3, figsize=(12, 3), layout="constrained")
left.plot([r["step"] for r in reports], [r["loss"] for r in reports])
left.set(xlabel="update", ylabel="loss, nats a token", title="training loss")
middle.plot([r["step"] for r in reports], [r["learning_rate"] for r in reports])
middle.set(xlabel="update", title="learning rate")
right.plot([v["step"] for v in validations], [v["validation_bleu"] for v in validations], "o-")
right.set(xlabel="update", title="validation BLEU", ylim=(0, 100))
plt.show()

# %% [markdown]
# ## Translating
#
# A run folder is all that is needed: its config, its vocabulary, its checkpoints.

# %%
from transformer.data.vocabularies import load_tokenizers
from transformer.decoding.translator import make_translator, translate
from transformer.machine import devices
from transformer.runs.checkpoints import load_params
from transformer.runs.folder import load_run_config

devices.demand("any")  # numbers of 32 bits; what is compiled is kept
config = load_run_config(run)
tokenizers = load_tokenizers(run / "tokenizer", config.data)
params, which = load_params(run, config, "best")
translator = make_translator(config, params, tokenizers)
sentences = [
    "If it rains, the children cannot visit the museum.",
    "Tomorrow I want to visit my friend in the city.",
]
for sentence, translation in zip(sentences, translate(translator, sentences)):
    print(f"{sentence}\n    {translation}")

# %% [markdown]
# ## BLEU
#
# On the test split, against the raw references, with sacreBLEU's signature.

# %%
from transformer.evaluation.scores import score

pairs = list(read_pairs(config.data, "test"))
hypotheses = translate(translator, [source for source, _ in pairs])
print(which)
for metric in score(hypotheses, [target for _, target in pairs], config.data.target):
    print(metric)

# %% [markdown]
# ## What the decoder looks at
#
# Cross-attention: each row is a German token about to be written, each column an English one, and
# the shade says how much the last layer's heads look at it, on average. The model is pure
# functions, so looking inside is one more function call on the finished translation.

# %%
import numpy as np

from transformer.data.batching import pad_sources
from transformer.model.batch import BOS
from transformer.model.encoder_decoder import cross_attention_weights, encode

sentence = sentences[0]
[source_ids] = tokenizers.source.encode([sentence])
[target_ids] = tokenizers.target.encode(translate(translator, [sentence]))
memory = encode(config.model, params, pad_sources([source_ids], rows=1, length=len(source_ids) + 1))
target_in = np.array([[BOS, *target_ids]], np.int32)
weights = cross_attention_weights(config.model, params, memory, target_in)

figure, axes = plt.subplots(figsize=(8, 6))
axes.imshow(np.asarray(weights[-1, 0].mean(axis=0)), cmap="Blues")
columns = [*tokenizers.source.pieces(source_ids), "end"]
rows = [*tokenizers.target.pieces(target_ids), "end"]
axes.set_xticks(range(len(columns)), columns, rotation=90)
axes.set_yticks(range(len(rows)), rows)
plt.show()
