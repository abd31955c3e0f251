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
# From sentence pairs to BLEU on one page: training with live curves, translating, what BLEU
# counts, greedy and beam search, and the same update under `jit` and under a literal `pmap`. It
# takes about ten minutes on two CPU cores; a run that is finished already is only looked at.
#
# In Colab, write the address of the repository below; the cell clones and installs it.

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
# ## The data
#
# `phrasebook/en_de` is generated on your machine by a grammar. Its test sentences hold
# combinations of words and constructions that training never shows, so a translator has to
# compose.

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
# While it works we draw what it writes to `metrics.jsonl`.

# %%
import matplotlib.pyplot as plt
from IPython.display import clear_output

from transformer.runs.metrics import read_metrics
from transformer.viewing.plots import draw_runs

run = Path("runs/quickstart")


def draw():
    clear_output(wait=True)
    lines = {"quickstart": read_metrics(run)}
    _, axes = plt.subplots(1, 4, figsize=(15, 3), layout="constrained")
    draw_runs(axes[0], lines, "loss", "training loss", "nats a token")
    draw_runs(axes[1], lines, "validation_bleu", "validation BLEU")
    draw_runs(axes[2], lines, "learning_rate", "learning rate")
    draw_runs(axes[3], lines, "tokens_per_second", "target tokens/s")
    plt.show()


training = subprocess.Popen(
    [sys.executable, "train.py", "configs/quickstart.py"],
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
)
said = []
for line in training.stdout:
    said.append(line)
    if line.startswith("update") and (run / "metrics.jsonl").exists():
        draw()
        print(line, end="")
assert training.wait() == 0, "".join(said)
draw()
print("".join(said[-8:]))

# %% [markdown]
# The loss is the label-smoothed cross-entropy of section 5.4. The learning rate rises and then
# falls as in equation 3, and towards the end it is led to zero. The first updates are slow because
# each shape of batch is compiled once; what is compiled is kept.
#
# The loss does not go to zero: with smoothing, the target is a distribution, and nothing can be
# closer to it than its entropy. With this vocabulary that is

# %%
import numpy as np

from transformer.runs.folder import load_run_config

config = load_run_config(run)
V, smoothing = config.model.target_vocab_size, config.train.label_smoothing
wanted = np.full(V, smoothing / V)
wanted[0] += 1 - smoothing  # the reference's token
print(f"{-(wanted * np.log(wanted)).sum():.2f} nats a token")

# %% [markdown]
# ## Translating
#
# A run folder is all that is needed: its config, its vocabulary, its checkpoints.

# %%
import jax

from transformer.decoding.translator import make_translator, translate
from transformer.machine import devices
from transformer.runs.load import load_run

jax.config.update("jax_num_cpu_devices", 4)  # where the CPU computes, for the last section
devices.configure_devices("any")  # numbers of 32 bits; what is compiled is kept
trained = load_run(run)
params, tokenizers = trained.params, trained.tokenizers
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
# On the test split, against the raw references, with sacreBLEU's signature: without it a score
# cannot be compared with another.

# %%
from transformer.evaluation.scores import References, score

pairs = list(read_pairs(config.data, "test"))
hypotheses = translate(translator, [source for source, _ in pairs])
references = [target for _, target in pairs]
print(trained.label)
for metric in score(hypotheses, References.of(config.data, pairs)):
    print(metric)

# %% [markdown]
# What does BLEU count? How many of the words that were written stand in the reference too, and of
# the pairs, triples and quadruples of words in a row; a word that the reference has once counts
# once, however often it was written. The four shares are multiplied and the fourth root is taken.
# Who writes too little would have it easy, so what is shorter than the reference is marked down by
# exp(1 - reference / written).

# %%
import math
from collections import Counter

from sacrebleu.metrics import BLEU

cut = BLEU().tokenizer  # where words end: "13a", as the signature says


def ngrams(text, n):
    words = cut(text).split()
    return Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))


def by_hand(hypotheses, references):
    shares = []
    for n in (1, 2, 3, 4):
        counted = [(ngrams(h, n), ngrams(r, n)) for h, r in zip(hypotheses, references)]
        found = sum((written & there).total() for written, there in counted)  # the lesser count
        shares.append(found / sum(written.total() for written, _ in counted))
    written, there = (sum(len(cut(t).split()) for t in texts) for texts in (hypotheses, references))
    brevity = min(1, math.exp(1 - there / written))
    return shares, brevity, 100 * brevity * math.prod(shares) ** (1 / 4)


shares, brevity, found = by_hand(hypotheses, references)
print("words, pairs, triples, quadruples:", ", ".join(f"{share:.1%}" for share in shares))
print(f"brevity {brevity:.3f}, BLEU {found:.2f}")
assert abs(found - BLEU().corpus_score(hypotheses, [references]).score) < 1e-6
print("sacreBLEU has the same.")

# %% [markdown]
# ## Greedy and beam search
#
# Greedy search takes the likeliest token each time, and cannot go back. A beam keeps several
# beginnings. It finds translations that are likelier as a whole:

# %%
import time
from dataclasses import replace

from transformer.decoding.translator import hypotheses as search

sources = [source for source, _ in pairs[:500]]
print("beam  BLEU  log-probability a sentence  seconds")
for beam in (1, 2, 4, 8):
    decode = replace(config.decode, beam_size=beam, alpha=0.0)
    searching = make_translator(replace(config, decode=decode), params, tokenizers)
    search(searching, sources)  # compiles
    start = time.perf_counter()
    best = [found[0] for found in search(searching, sources)]
    seconds = time.perf_counter() - start
    mean = sum(found.log_prob for found in best) / len(best)
    value = BLEU().corpus_score([found.text for found in best], [references[:500]]).score
    print(f"{beam:4}  {value:.1f}  {mean:26.3f}  {seconds:7.1f}")

# %% [markdown]
# ### The length penalty
#
# Every further token makes a sentence less likely, so a search for the likeliest prefers short
# ones. Dividing the logarithm by ((5 + length) / 6)^alpha makes up for that (section 6.1): with a
# larger alpha translations get longer. Which alpha is right, a validation set says. A model that is
# as sure as this one hardly needs it; one that is not, on real text, does. Here even an alpha of 2
# changes little, and one of 10 prefers sentences that do not end.

# %%
checked = list(read_pairs(config.data, "validation"))[:500]
right = [target for _, target in checked]
ends = [len(ids) + 1 for ids in tokenizers.target.encode(right)]  # the end counts
print(f"the references have {np.mean(ends):.2f} tokens a sentence")
print("alpha  tokens a sentence  log-probability a sentence  BLEU")
for alpha in (0.0, 0.6, 2.0, 10.0):
    decode = replace(config.decode, alpha=alpha)
    searching = make_translator(replace(config, decode=decode), params, tokenizers)
    best = [found[0] for found in search(searching, [source for source, _ in checked])]
    length = np.mean([len(found.tokens) for found in best])
    mean = np.mean([found.log_prob for found in best])
    value = BLEU().corpus_score([found.text for found in best], [right]).score
    print(f"{alpha:5}  {length:17.2f}  {mean:26.3f}  {value:4.1f}")

# %% [markdown]
# ## The same update, under `jit` and under `pmap`
#
# An update is a pure function: state and batch go in, a new state comes out. Training hands it to
# `jax.jit`, and the compiler spreads the batch over all devices. Written for one device, with the
# sums over devices spelled out, it can go through `jax.pmap` as well. We compare what Adam is
# given, the mean gradient (its first moment is a tenth of that), on each of the devices.

# %%
import jax.numpy as jnp
import optax

from transformer.data.batching import one_epoch
from transformer.data.buckets import make_plan
from transformer.data.token_store import encoded
from transformer.training.optimizer import learning_rate
from transformer.training.step import apply_gradients, gradients, init_state, update

# Both draw nothing without dropout. Adam, since its first moment is a tenth of the gradient.
model, optimizer = replace(config.model, dropout=0.0), replace(config.optimizer, name="adam")
still = replace(config, model=model, optimizer=optimizer)
rate = learning_rate(config, 1)
count = jax.local_device_count()
tokens = encoded(config.data, tokenizers, pairs)
batch = next(one_epoch(config, tokens, make_plan(tokens, config.data)))
rows = len(batch.source) // count * count
batch = jax.tree.map(lambda ids: ids[:rows], batch)
state = jax.jit(init_state, static_argnums=0)(still, jax.random.key(0))


def update_of_one_device(state, batch):
    """What `update` does, on a device that has a part of the batch."""
    found = gradients(still, state.params, batch)
    summed_gradients, sums = jax.lax.psum(found, "devices")
    return apply_gradients(still, state, summed_gradients, sums, rate)[0]


by_jit, _ = jax.jit(update, static_argnums=0)(still, state, batch, rate)
parts = jax.tree.map(lambda rows: rows.reshape(count, -1, rows.shape[-1]), batch)
by_pmap = jax.pmap(update_of_one_device, "devices", in_axes=(None, 0))(state, parts)
furthest = 0.0
moments = (optax.tree.get(after.opt_state, "mu") for after in (by_jit, by_pmap))
for ours, theirs in zip(*map(jax.tree.leaves, moments)):
    furthest = max(furthest, float(jnp.abs(theirs - ours).max() / jnp.abs(ours).max()))
print(f"{rows} sentences on {count} device(s)")
print(f"furthest apart: {furthest:.1e} of a parameter's largest gradient")
assert furthest < 1e-4

# %% [markdown]
# ## What to read next
#
# - `04_looking_inside`: what the translator looks at.
# - `train.py` reads in the order in which things happen.
