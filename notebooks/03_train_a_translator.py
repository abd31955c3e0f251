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
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/)
#
# From sentence pairs to BLEU on one page: training with live curves, translating, what BLEU
# counts, greedy and beam search, and the same update under `jit` and under a literal `pmap`.
# Training is short here, and the model that translates was trained by the same command with more
# updates. So the notebook takes two minutes on two CPU cores, and less when it is run again. Three
# exercises and a quiz have folded solutions.
#
# In Colab, the first cell fetches and installs the project.

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
tests = list(islice(read_pairs(config.data, "test"), 128))
for source, target in tests[:5]:
    print(f"{source}\n    {target}")
shown = {source for source, _ in islice(read_pairs(config.data, "train"), 10_000)}
assert not shown & {source for source, _ in tests}

# %% [markdown]
# ## Training
#
# One command. It keeps everything in its run folder, and continues from there if it is run again.
# While it works, we draw what it writes to `metrics.jsonl`, beside the curves of the whole
# training: the same command without settings (`python train.py configs/quickstart.py`), 660 updates
# on 72,000 of the 100,000 pairs, which take 3.2 minutes on two CPU cores. Our 60 updates
# need few pairs, so we give them 20,000, and 100 for validation.

# %%
import matplotlib.pyplot as plt
from IPython.display import clear_output

from transformer.runs.metrics import read_metrics
from transformer.viewing.plots import draw_runs

run, weights = Path("runs/notebook"), Path("notebooks/weights/quickstart")
shutil.rmtree(run, ignore_errors=True)  # an example, which is made anew


def draw():
    clear_output(wait=True)
    lines = {"60 updates": read_metrics(run), "whole training": read_metrics(weights)}
    _, axes = plt.subplots(1, 3, figsize=(13, 3), layout="constrained")
    draw_runs(axes[0], lines, "loss", "training loss", "nats per token")
    draw_runs(axes[1], lines, "validation_bleu", "greedy search, validation set", "BLEU")
    draw_runs(axes[2], lines, "learning_rate", "learning rate", "learning rate")
    plt.show()


# %%
SETTINGS = {
    "--train.steps": 60, "--train.validate-every": 60, "--train.log-every": 10,
    "--optimizer.warmup-steps": 30, "--optimizer.cooldown-steps": 20, "--data.num-buckets": 1,
    "--decode.max-extra-length": 10, "--data.train-split": "train[:20000]",
    "--data.validation-split": "validation[:100]",
}  # fmt: skip
words = [str(word) for setting in SETTINGS.items() for word in setting]
training = subprocess.Popen(
    [sys.executable, "train.py", "configs/quickstart.py", "--run", str(run), *words],
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
print("".join(said[-12:]))
losses = [line["loss"] for line in read_metrics(run) if "loss" in line]
assert losses[-1] < losses[0] - 2

# %% [markdown]
# After 60 updates the model has seen 3,000 pairs, and knows how German sentences begin and end. The
# first updates are slow because each batch shape is compiled once; compiled programs are cached for
# the next run.
#
# The learning rate is that of equation 3 times 1.4 (`optimizer.scale`), and is led to zero at the
# end. The optimiser is Muon for most matrices, and Adam for the other weights
# ([measurements](../docs/experiments.md#optimisers)). The loss
# is the label-smoothed cross-entropy of section 5.4 (`transformer/training/loss.py`): with
# $\epsilon = 0.1$, the target distribution over $V$ tokens is
#
# $$q_v = (1 - \epsilon)\,[v = y] + \epsilon / V, \qquad
# \text{loss} = -\sum_v q_v \log p_v ,$$
#
# where $y$ is the token of the reference.
#
# It does not go to zero: the smallest value is the entropy of $q$. With this vocabulary:

# %%
import numpy as np

from transformer.runs.folder import load_run_config

config = load_run_config(weights)
V, smoothing = config.model.target_vocab_size, config.train.label_smoothing
q = np.full(V, smoothing / V)
q[0] += 1 - smoothing  # the reference's token
least = -(q * np.log(q)).sum()
curve = read_metrics(weights)
rates = [line["learning_rate"] for line in curve if "learning_rate" in line]
assert curve[-1]["step"] == config.train.steps == 660
assert rates[-1] < 0.01 * max(rates)  # led to zero at the end
print(f"the smallest loss is {least:.2f} nats per token")
whole = [line["loss"] for line in curve if "loss" in line]
print(f"the whole training ends at   {whole[-1]:.2f}")
assert least < whole[-1] < whole[0]

# %% [markdown]
# ### Exercise 1: perplexity
#
# The perplexity is $\exp(\text{loss})$, where the loss is the cross-entropy without smoothing in
# nats per token: a model of that perplexity is as uncertain as one that chooses at random among
# that number of tokens. What is the perplexity of a model that gives every one of the $V$ tokens
# the same probability, and what is its loss?

# %% tags=["exercise"]
from notebooks.exercises import check_each

perplexity = ...
loss = ...
with_equal_probabilities = -np.log(np.full(V, 1 / V)).mean()
of_equal = {"perplexity": np.exp(with_equal_probabilities), "loss": with_equal_probabilities}
check_each({"perplexity": perplexity, "loss": loss}, of_equal)

# %% cellView="form" jupyter={"source_hidden": true} tags=["solution", "hide-input"]
# @title Solution
perplexity, loss = V, np.log(V)
check_each({"perplexity": perplexity, "loss": loss}, of_equal)
print(f"{loss:.2f} nats")

# %% [markdown]
# ## Translating
#
# Settings, vocabulary and weights are all that is needed. Those of the whole training are in
# `notebooks/weights/quickstart` (made by `make weights`); `load_run(Path("runs/quickstart"))` reads
# those of a run of your own. (Unlike Figure 1, this model normalises before each sublayer, and it
# rotates queries and keys instead of adding positions to the embeddings: sections 6 and 5 of
# `02_transformer`. On a CPU, JAX simulates four devices; the last section divides a batch among
# them.)

# %%
import jax

from transformer.decoding.translator import make_translator, translate
from transformer.interchange.model import load_plain
from transformer.machine import devices

jax.config.update("jax_num_cpu_devices", 4)  # for the last section, on a CPU
devices.configure_devices("any")  # 32-bit numbers; compiled programs are cached
trained = load_plain(weights)
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
# On sentences of the test split, against the raw references, with sacreBLEU's signature: without it
# a score cannot be compared with another. (On all 2,000 of them, the model has 97.8 BLEU.) The
# interval has the scores of 95 % of the test sets of the same size that are drawn at random, with
# replacement, from these sentences. chrF2 counts n-grams of characters instead of words, and TER
# counts the edits that turn a translation into the reference, as a share of its words (the fewer,
# the better).

# %%
from transformer.evaluation.scores import References, score

pairs = tests
hypotheses = translate(translator, [source for source, _ in pairs])
references = [target for _, target in pairs]
for metric in score(hypotheses, References.of(config.data, pairs)):
    print(metric)

# %% [markdown]
# What does BLEU count (Papineni et al., 2002)? $p_n$ is the share of the translations' n-grams
# (sequences of $n$ words) that the references contain, where an n-gram counts at most as often as
# the reference has it. The brevity penalty is for translations that have fewer words ($c$) than the
# references ($r$), since these could have high $p_n$ easily:
#
# $$\text{BLEU} = 100 \cdot \min(1, e^{1 - r / c}) \cdot (p_1\,p_2\,p_3\,p_4)^{1/4}$$

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
# ### Exercise 2: BLEU by hand
#
# The translation "the cat sat on the mat" has the reference "the cat sat on a mat". How many of its
# 6 words, 5 pairs, 4 triples and 3 quadruples does the reference contain? "the" counts once only.
# Then compute BLEU.

# %% tags=["exercise"]
counts = ...  # four numbers, in a list
value = ...
example = "the cat sat on the mat", "the cat sat on a mat"
of_example = {
    "counts": [(ngrams(example[0], n) & ngrams(example[1], n)).total() for n in (1, 2, 3, 4)],
    "BLEU": BLEU().corpus_score([example[0]], [[example[1]]]).score,
}
check_each({"counts": counts, "BLEU": value}, of_example)

# %% cellView="form" jupyter={"source_hidden": true} tags=["solution", "hide-input"]
# @title Solution
counts = [5, 3, 2, 1]  # nothing that has the second "the"
value = 100 * (5 / 6 * 3 / 5 * 2 / 4 * 1 / 3) ** (1 / 4)  # no brevity penalty: 6 words each
check_each({"counts": counts, "BLEU": value}, of_example)

# %% [markdown]
# ## Greedy and beam search
#
# Greedy search takes the likeliest token at each step, and cannot go back. Beam search keeps
# several hypotheses, and finds translations that are likelier as a whole:

# %%
import time
from dataclasses import replace

from transformer.decoding.translator import best_hypotheses

sources = [source for source, _ in pairs]
greedily = replace(config, decode=replace(config.decode, beam_size=1))
print("beam  BLEU  score per sentence  seconds")
means = []
for beam, searching in ((1, make_translator(greedily, params, tokenizers)), (4, translator)):
    best_hypotheses(searching, sources)  # compiles
    start = time.perf_counter()
    best = best_hypotheses(searching, sources)
    seconds = time.perf_counter() - start
    means.append(np.mean([found.score for found in best]))
    value = BLEU().corpus_score([found.text for found in best], [references]).score
    print(f"{beam:4}  {value:.1f}  {means[-1]:18.4f}  {seconds:7.1f}")
assert means[0] <= means[1]

# %% [markdown]
# ### The length penalty
#
# The score is not the log-probability. Every further token makes a sentence less likely, so a
# search for the likeliest one prefers short ones. Section 6.1 divides the logarithm by a length
# penalty (Wu et al., 2016), so that longer translations can win (`length_penalty` in
# `transformer/decoding/search.py`):
#
# $$\text{score} = \frac{\log P(y \mid x)}{\left((5 + |y|) / 6\right)^\alpha}$$
#
# Below, $\alpha$ chooses among the four best hypotheses of each sentence. A validation set says
# which $\alpha$ is right. A model that is as sure as this one hardly needs it: most translations
# stay the same, and on so few sentences a difference of 1 BLEU lies within the interval above.

# %%
from transformer.decoding.translator import hypotheses as n_best

lists = n_best(translator, sources, count=4)
lengths, texts = [], {}
for alpha in (0.0, 0.6, 2.0):
    chosen = [
        max(found, key=lambda one: one.log_prob / ((5 + len(one.tokens)) / 6) ** alpha)
        for found in lists
    ]
    lengths.append(np.mean([len(one.tokens) for one in chosen]))
    mean = np.mean([one.log_prob for one in chosen])
    texts[alpha] = [one.text for one in chosen]
    bleu = BLEU().corpus_score(texts[alpha], [references]).score
    print(f"alpha {alpha}: {lengths[-1]:.2f} tokens, {mean:.3f} nats per sentence, BLEU {bleu:.1f}")
assert lengths == sorted(lengths)
assert np.mean([a == b for a, b in zip(texts[0.0], texts[0.6])]) > 0.9

# %% [markdown]
# ### Exercise 3: which hypothesis wins?
#
# One hypothesis has 5 tokens and the log-probability -4.0, another one 10 tokens and -5.0. What are
# their scores with $\alpha = 1$, and which of them is the translation? Which one would it be
# without a length penalty?

# %% tags=["exercise"]
from transformer.decoding.search import length_penalty

scores = ...  # two numbers, in a list
winner = ...  # 5 or 10 tokens?
winner_without = ...
answers = {"scores": scores, "winner": winner, "without": winner_without}
log_probs, tokens = np.array([-4.0, -5.0]), np.array([5, 10])
penalty = replace(config.decode, normalisation="gnmt", alpha=1.0)
right_scores = log_probs / [length_penalty(penalty, count) for count in (5, 10)]
right_choice = {
    "scores": right_scores,
    "winner": tokens[right_scores.argmax()],
    "without": tokens[log_probs.argmax()],
}
check_each(answers, right_choice)

# %% cellView="form" jupyter={"source_hidden": true} tags=["solution", "hide-input"]
# @title Solution
scores = [-4 / (10 / 6), -5 / (15 / 6)]
winner, winner_without = 10, 5
check_each({"scores": scores, "winner": winner, "without": winner_without}, right_choice)

# %% [markdown]
# ## The same update, under `jit` and under `pmap`
#
# An update is a pure function from a state and a batch to a new state. Training gives it to
# `jax.jit`, and the compiler spreads the batch over all devices. Written for one device, with the
# sums over devices spelled out (`psum` adds up the gradients of all), it can go through `jax.pmap`
# as well; `in_axes` says that the state is the same everywhere, and the batch divided along its
# first axis. We compare what Adam gets, the mean gradient (its first moment is a tenth of it), on
# each of the devices.

# %%
import jax.numpy as jnp
import optax

from transformer.data.batching import one_epoch
from transformer.data.buckets import make_plan
from transformer.data.token_store import encoded
from transformer.training.optimizer import learning_rate
from transformer.training.step import apply_gradients, gradients, init_state, update

# Without dropout, both compute the same. Adam, since its first moment is a tenth of the gradient;
# one layer in each stack, which compiles faster.
model = replace(config.model, dropout=0.0, encoder_layers=1, decoder_layers=1)
still = replace(config, model=model, optimizer=replace(config.optimizer, name="adam"))
rate = learning_rate(config, 1)
count = jax.local_device_count()
tokens = encoded(config.data, tokenizers, pairs)
batch = next(one_epoch(config, tokens, make_plan(tokens, config.data)))
rows = len(batch.source) // count * count
batch = jax.tree.map(lambda ids: ids[:rows], batch)
state = jax.jit(init_state, static_argnums=0)(still, jax.random.key(0))


def update_of_one_device(state, batch):
    """What `update` does, on a device with a part of the batch."""
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
print(f"largest difference: {furthest:.1e} of a parameter's largest gradient")
assert furthest < 1e-4

# %% [markdown]
# ## Quiz
#
# Write your answers in the cell below, and run it. Then run the folded cell: it says which of them
# are right, and how they are computed if you unfold it.
#
# 1. A vocabulary has 10 tokens, and $\epsilon = 0.1$. Which probability should the reference's
#    token have?
# 2. The loss is $\ln 8$ nats per token. What is the perplexity?
# 3. A sentence of 3 tokens has a loss of 2 nats per token, a sentence of one token has 1 nat. What
#    is the loss of both together, per token?
# 4. Equation 3 with a warm-up of 200 updates and no cooldown: at which update is the learning rate
#    the highest?
# 5. With the same schedule, how many times as high is it at update 200 as at update 800?
# 6. A weight has the gradient 0.001, and the learning rate is 0.01. By how much does Adam's first
#    update lower the weight?
# 7. A translation has 9 words, and all of its n-grams are in the reference, which has 10 words.
#    What is its BLEU?
# 8. "d c b a" has the reference "a b c d". What is its BLEU by the formula above?
# 9. The first token is A with probability 0.6 or B with 0.4. After A, the likeliest token has
#    probability 0.5, after B 0.9. Which probability have the two tokens that greedy search finds,
#    and which those that a beam of two finds?
# 10. A hypothesis of 7 tokens has the log-probability -4. What is its score with $\alpha = 1$?

# %%
quiz = {
    1: ...,
    2: ...,
    3: ...,
    4: ...,
    5: ...,
    6: ...,
    7: ...,
    8: ...,
    9: ...,  # two numbers, in parentheses and with a comma
    10: ...,
}

# %% cellView="form" jupyter={"source_hidden": true} tags=["solution", "hide-input"]
# @title Solution
schedule = replace(config.optimizer, warmup_steps=200, cooldown_steps=0)
rates = learning_rate(replace(config, optimizer=schedule), np.arange(1, 1001))
adam = optax.adam(0.01)
step, _ = adam.update(jnp.array(0.001), adam.init(jnp.array(1.0)))
ten = " ".join("abcdefghij")
after = {"A": 0.5, "B": 0.9}
first = {"A": 0.6, "B": 0.4}
solutions = {
    1: (1 - 0.1) + 0.1 / 10,
    2: np.exp(np.log(8)),
    3: (3 * 2 + 1 * 1) / (3 + 1),
    4: rates.argmax() + 1,
    5: rates[199] / rates[799],
    6: -step,
    7: by_hand([ten[:-2]], [ten])[2],
    8: by_hand(["d c b a"], ["a b c d"])[2],
    9: (
        first["A"] * after["A"],  # the likelier first token cannot be taken back
        max(first[token] * after[token] for token in first),
    ),
    10: -4 / length_penalty(replace(config.decode, normalisation="gnmt", alpha=1.0), 7),
}
check_each(quiz, solutions)

# %% [markdown]
# ## What to read next
#
# - `04_looking_inside`: what the translator looks at.
# - `train.py` reads in the order in which things happen.
