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
# # Attention
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/)
#
# Why does a network for sentences need attention, what does attention compute, and why does it have
# the form of equation 1 of ["Attention Is All You Need"](https://arxiv.org/abs/1706.03762)?
#
# $$\mathrm{Attention}(Q, K, V) = \mathrm{softmax}\!\left(\frac{Q K^\top}{\sqrt{d_k}}\right) V
# \tag{1}$$
#
# The cells call the functions that train our translators (`transformer/model/layers.py`). Each
# `assert` checks a statement of the text beside it. Times are measured; they differ between
# machines, and nothing is asserted about them. Nothing is trained here; two trained translators are
# loaded for a comparison in section 2. The whole notebook runs in about a minute on a CPU.
#
# Five exercises and a quiz are for you: write your answer in place of the dots, and run the cell. A
# folded cell below each of them has a solution.
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

# %%
import itertools
import math
import time
from functools import partial

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

from notebooks.exercises import check, check_each
from transformer.config import ModelConfig
from transformer.model.layers import (
    attention,
    causal_mask,
    key_value,
    multi_head_attention,
    project,
    sinusoids,
)
from transformer.model.operations import pair_operations
from transformer.model.params import Attention, init_params
from transformer.viewing.plots import draw_weights

jax.config.update("jax_default_matmul_precision", "highest")  # 32 bits on accelerators too
np.set_printoptions(precision=3, suppress=True)
print(f"jax {jax.__version__} on {jax.devices()[0].device_kind}")

# %%
attention = jax.jit(attention)  # compiled as a whole instead of operation by operation


def normal(seed, *shape):
    """Random numbers with mean 0 and variance 1."""
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


# %% [markdown]
# ## 1. Why not a fully connected layer?
#
# A short hotel review has 37 words. With 1,024 numbers for each word the network reads 37,888
# numbers. A fully connected layer with as many outputs has a weight for every pair of an input and
# an output. It accepts texts of exactly 37 words, and it has to learn about "clean" at position 9
# and at position 29 separately.

# %%
review = (
    "We came late on Friday because the train had stopped twice, but the woman at the desk waited "
    "for us and she gave us the room above the garden. It was small, it was quiet and clean."
)
length, width = len(review.split()), 1024
inputs = length * width
assert (length, inputs) == (37, 37_888)
print(f"{length} words of {width:,} numbers are {inputs:,} inputs")
print(f"one fully connected layer:      {inputs**2:>13,} weights, for {length} words only")
print(
    f"the same matrix for each word:  {width**2:>13,} weights, for any number; no word sees others"
)
print(f"attention, four such matrices:  {4 * width**2:>13,} weights, for any number; each sees all")

# %% [markdown]
# The same on a small scale: three words of four numbers. One matrix over all of them is a 12 x 12
# matrix. A matrix that is shared by the words is a 4 x 4 matrix. Written as a 12 x 12 matrix, it
# has the same block three times and zeros elsewhere: no number of one word reaches another word.

# %%
three_words, shared, over_all = normal(0, 3, 4), normal(1, 4, 4), normal(2, 12, 12)
assert (shared.size, over_all.size) == (16, 144)

blocks = np.kron(np.eye(3), shared)  # the shared matrix, as a matrix over all 12 numbers
np.testing.assert_allclose(three_words.ravel() @ blocks, (three_words @ shared).ravel(), rtol=1e-4)
assert np.unique(blocks[blocks != 0]).size == 16
figure, axes = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
titles = ["one matrix over all words: 144 weights", "the same matrix for each word: 16 weights"]
for place, matrix, title in zip(axes, (over_all, blocks), titles):
    image = place.imshow(matrix.T, cmap="PuOr", vmin=-3, vmax=3)
    place.set(title=title, xlabel="number of the input", ylabel="number of the output")
    place.set_xticks(range(12), range(1, 13))
    place.set_yticks(range(12), range(1, 13))
    for border in (3.5, 7.5):  # between the words
        place.axhline(border, color="black", linewidth=0.8)
        place.axvline(border, color="black", linewidth=0.8)
figure.colorbar(image, ax=axes, label="weight")
plt.show()

# %% [markdown]
# A layer that uses the same weights for every word is small and does not depend on the position of
# a word. It lacks a way for words to exchange information.
#
# ## 2. Why not a recurrent network?
#
# A recurrent network has shared weights too, and reads texts of any length:
#
# $$h_t = \tanh(W h_{t-1} + U x_t), \qquad
# \frac{\partial h_T}{\partial h_t} = \prod_{s=t+1}^{T} \frac{\partial h_s}{\partial h_{s-1}}$$
#
# Information about an early word reaches the last state only through every state in between. The
# path is as long as the distance, and the gradient is a product of as many factors. In attention,
# every word is one step away from every other word.

# %%
steps, units = 60, 64
xs = normal(0, steps, units)
W, _ = np.linalg.qr(normal(1, units, units))  # orthogonal: it changes the length of no vector
U = normal(2, units, units) / math.sqrt(units)
projections = normal(3, 3, units, units) / math.sqrt(units)


def last_state(xs):
    return jax.lax.scan(lambda h, x: (jnp.tanh(W @ h + U @ x), None), jnp.zeros(units), xs)[0]


def last_output(xs):
    q, k, v = xs @ projections
    return attention(q[-1:], k, v)[0][0]


def gradient_norms(function):
    """Norms of the gradient with respect to each word, at distance 0, 1, 2, ... from the last."""
    slopes = np.asarray(jax.jit(jax.jacobian(function))(xs), np.float64)  # [units, steps, units]
    return np.sqrt((slopes**2).sum((0, 2)))[::-1]


# %%
recurrent, attending = gradient_norms(last_state), gradient_norms(last_output)
plt.semilogy(recurrent, label="recurrent network")
plt.semilogy(attending, "--", label="attention")
plt.xlabel("distance from the last word, in words")
plt.ylabel("norm of the gradient")
plt.title("How much the last output depends on each word")
plt.legend()
plt.show()
for name, norms in {"recurrent network": recurrent, "attention": attending}.items():
    near, far = norms[1:11].mean(), norms[50:60].mean()
    print(f"{name:18} mean gradient at distances 1 to 10: {near:.1e}, at 50 to 59: {far:.1e}")
assert recurrent[50:60].mean() < 1e-6 * recurrent[1:11].mean()
assert 0.5 < attending[50:60].mean() / attending[1:11].mean() < 2

# %% [markdown]
# ### Vanishing and exploding
#
# Without tanh the product can be written down. If $h_t = a W h_{t-1} + U x_t$, then
#
# $$\frac{\partial h_T}{\partial x_t} = (a W)^{T-t}\, U, \qquad
# \left\lVert \frac{\partial h_T}{\partial x_t} \right\rVert = a^{T-t}\, \lVert U \rVert,$$
#
# because our $W$ is orthogonal, so that it changes no lengths. With $a < 1$ the gradient
# **vanishes**, with $a > 1$ it **explodes**. Only $a = 1$ preserves it, and nothing in training
# holds $a$ at 1. Clipping limits a gradient that explodes; it cannot restore one that has vanished.

# %%
distances = np.arange(steps)


def scaled_recurrence(a):
    return lambda xs: jax.lax.scan(lambda h, x: (a * W @ h + U @ x, None), jnp.zeros(units), xs)[0]


for a, style in {0.5: "C0-", 1.0: "C1--", 1.5: "k:"}.items():
    norms = gradient_norms(scaled_recurrence(a))
    np.testing.assert_allclose(norms, a**distances * np.linalg.norm(U), rtol=1e-3)
    plt.semilogy(distances, norms, style, linewidth=2, label=f"a = {a}")
    print(f"a = {a}: gradient at distance 1: {norms[1]:.1e}, at distance 50: {norms[50]:.1e}")
plt.xlabel("distance from the last word, in words")
plt.ylabel("norm of the gradient")
plt.title("Vanishing, preserved and exploding gradients")
plt.legend()
plt.show()

# %% [markdown]
# ### One step after the other
#
# Step $t$ of a recurrent network cannot start before step $t - 1$ has ended. Attention is two
# matrix products, whose rows are independent: the output of one query is the same whether it comes
# alone or with others. Where the words have twice as many numbers as there are words, as 256 words
# of 512 numbers, both need exactly the same number of multiplications ($U x_t$ is left out). A
# single product of all words with a matrix needs as many. How much faster the independent products
# are depends on the processor and its number of cores.


# %%
def milliseconds(function, *arguments):
    """The fastest of 20 calls, after one that compiles."""
    jax.block_until_ready(function(*arguments))
    times = []
    for _ in range(20):
        start = time.perf_counter()
        jax.block_until_ready(function(*arguments))
        times.append(time.perf_counter() - start)
    return 1e3 * min(times)


T, D = 256, 512
assert T * D**2 == 2 * T**2 * D  # multiplications of T steps W h, and of Q K^T and its average of V
many, matrix = jnp.array(normal(0, T, D)), jnp.eye(D)
one_by_one = jax.jit(lambda x, w: jax.lax.scan(lambda h, x: (w @ h + x, None), x[0], x)[0])
recurrence_ms = milliseconds(one_by_one, many, matrix)
product_ms = milliseconds(jax.jit(jnp.matmul), many, matrix)
attention_ms = milliseconds(attention, many, many, many)
together, _ = attention(many, many, many)
for i in (0, 100, 255):
    alone, _ = attention(many[i : i + 1], many, many)
    np.testing.assert_allclose(alone[0], together[i], atol=1e-5)
print(f"{T * D**2:,} multiplications each:")
print(f"recurrence, {T} steps one after the other: {recurrence_ms:6.2f} ms")
print(f"one product, all words at once:             {product_ms:6.2f} ms")
print(f"attention, all words at once:               {attention_ms:6.2f} ms")
print(f"recurrence takes {recurrence_ms / product_ms:.1f} times as long as the product,")
print(f"and {recurrence_ms / attention_ms:.1f} times as long as attention (measured here)")

# %% [markdown]
# ### The context vector is a bottleneck
#
# A translator of two recurrent networks passes one vector from the encoder to the decoder, the last
# state: the fixed **context vector**. A sentence of 5 words and one of 60 words have to fit into
# the same number of numbers, and the words that are read first have come through the most steps.
# With attention, the decoder reads one vector for each word of the source, so that it has more to
# read if the sentence is longer.

# %%
for count in (5, 20, 60):
    context = jax.eval_shape(last_state, xs[:count])
    outputs, _ = jax.eval_shape(attention, *(xs[:count] @ projections))
    assert context.shape == (units,)
    assert outputs.shape == (count, units)
    print(f"{count:2} words: context vector {context.size} numbers, attention {outputs.size:5,}")

# %% [markdown]
# Does the bottleneck matter? `notebooks/recurrent.py` is a translator of two recurrent networks
# (Cho et al., 2014) whose context vector has 192 numbers. It was trained for 2,400 updates on the
# same corpus of 100,000 sentence pairs as the Transformer of the later notebooks, which had 660. It
# reads the source backwards (Sutskever et al., 2014). Both now translate 500 sentences
# of the same grammar that training has not shown, and choose the likeliest token at each step
# (greedy search, section 11 of `02_transformer`).

# %%
from dataclasses import replace

from notebooks.recurrent import D as CONTEXT
from notebooks.recurrent import load_recurrent, translate_recurrently
from transformer.data.datasets.phrasebook.splits import splits
from transformer.decoding.translator import make_translator, translate
from transformer.interchange.model import load_plain

trained = load_plain(Path("notebooks/weights/quickstart"))
greedily = replace(trained.config, decode=replace(trained.config.decode, beam_size=1))
translator = make_translator(greedily, trained.params, trained.tokenizers)
tests = splits(sizes={"train": 0, "validation": 500, "test": 0})["validation"]
english, german = zip(*((one.english, one.german) for one in tests))
assert CONTEXT == 192
translations = {
    "Transformer": translate(translator, english),
    "recurrent networks": translate_recurrently(load_recurrent(), trained.tokenizers, english),
}
longest = max(range(len(tests)), key=lambda number: len(english[number]))
print("source:", english[longest], "\nreference:", german[longest])
for name, texts in translations.items():
    print(f"{name}: {texts[longest]}")

# %% [markdown]
# BLEU measures from 0 to 100 how much of the translations is in the references (notebook 03), here
# for five groups of sentences by length:

# %%
from sacrebleu.metrics import BLEU

counts = np.array([len(text.split()) for text in english])
groups = np.array_split(counts.argsort(kind="stable"), 5)
spans = [f"{counts[group].min()} to {counts[group].max()}" for group in groups]
bleu = {}
for name, texts in translations.items():
    pairs = [([texts[i] for i in group], [german[i] for i in group]) for group in groups]
    bleu[name] = [BLEU().corpus_score(found, [right]).score for found, right in pairs]
    style = "o-" if name == "Transformer" else "s--"
    plt.plot(spans, bleu[name], style, label=name)
    print(f"{name:18}", *(f"{value:7.1f}" for value in bleu[name]))
plt.ylim(0, 103)
plt.title("Translations of short and of long sentences")
plt.xlabel("words of the source")
plt.ylabel("BLEU, greedy search")
plt.legend()
plt.show()
first, *_, last = bleu["recurrent networks"]
assert first > last + 8
assert min(bleu["Transformer"]) > max(bleu["Transformer"]) - 5
assert max(bleu["recurrent networks"]) < min(bleu["Transformer"])

# %% [markdown]
# The recurrent networks translate long sentences worse than short ones. The Transformer, which
# reads every word of the source at every step, translates all lengths about equally well.
# (Attention was first added to recurrent networks: Bahdanau et al., 2015.)

# %% [markdown]
# ## 3. One word, one vector?
#
# An embedding table gives "it" the same numbers in every sentence. Below it refers to an animal in
# one sentence and to a street in the other. A vector that depends on the context has to take
# something from the other words.
#
# We choose five features by hand, so that everything can be read: *living thing*, *place*,
# *pronoun*, *adjective*, and *said of living things* (or, if negative, of places).

# %%
TABLE = {
    "animal": [2, 0, 0, 0, 0],
    "crossed": [0.5, 0.5, 0, 0, 0],
    "street": [0, 2, 0, 0, 0],
    "it": [0, 0, 2, 0, 0],
    "tired": [0, 0, 0, 2, 2],
    "wide": [0, 0, 0, 2, -2],
}
tired = ["animal", "crossed", "street", "it", "tired"]
wide = ["animal", "crossed", "street", "it", "wide"]


def embedded(sentence):
    return np.array([TABLE[word] for word in sentence], np.float32)


print("it, in both sentences:", embedded(tired)[3], embedded(wide)[3])
assert (embedded(tired)[3] == embedded(wide)[3]).all()

# %% [markdown]
# ## 4. First try: an average, weighted by similarity
#
# Let each word become an average of all words, in which similar words count more. The scalar
# product measures the similarity. Softmax turns each row of similarities into weights that are
# positive and sum to one (`jax.nn.softmax`):
#
# $$s_{ij} = x_i \cdot x_j, \qquad
# \alpha_{ij} = \mathrm{softmax}_j(s_{ij}) = \frac{\exp(s_{ij})}{\sum_{m} \exp(s_{im})}, \qquad
# y_i = \sum_j \alpha_{ij}\, x_j$$

# %%
vectors = embedded(tired)
similarity = vectors @ vectors.T
weights = jax.nn.softmax(similarity)
averages = weights @ vectors
assert (weights > 0).all()
assert np.allclose(weights.sum(-1), 1)

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
draw_weights(left, similarity / similarity.max(), tired, tired, "similarity / largest similarity")
draw_weights(right, weights, tired, tired, "weights: softmax of each row")
for place in (left, right):
    place.set(xlabel="word $j$", ylabel="word $i$")
figure.colorbar(right.images[0], ax=(left, right), label="similarity / largest; weight")
plt.show()
print("the weight of each word for itself:", np.diag(weights))
print('the weights of "it" for animal and street:', weights[3, [0, 2]])

assert (similarity == similarity.T).all()
assert [tired[j] for j in weights.argmax(-1)] == ["animal", "animal", "street", "it", "tired"]
np.testing.assert_allclose(weights[1, 0], weights[1, 2], rtol=1e-5)  # crossed: animal and street
np.testing.assert_allclose(averages[1, 0], averages[1, 1], rtol=1e-5)
change = np.linalg.norm(averages - vectors, axis=-1) / np.linalg.norm(vectors, axis=-1)
print("relative change of each word:", change)
assert [word for word, share in zip(tired, change) if share > 0.1] == ["crossed"]

# %% [markdown]
# Three things go wrong. All words except one are most similar to themselves, so they hardly change.
# ("crossed", whose numbers are small, becomes a mixture of animal and street.) The similarity is
# symmetric: "it" can look for "animal" only if "animal" looks for "it" as much. But a pronoun needs
# its noun, and a noun does not need its pronouns. And there is nothing to learn: the average has no
# weights of its own.
#
# Is a matrix $U$ that is learned enough? If it projects every word in the same way, the scores are
#
# $$X U (X U)^\top = X\, U U^\top X^\top = (X\, U U^\top X^\top)^\top,$$
#
# and symmetric again, whatever $U$ is. Two different matrices are needed: one for the word that
# looks, another for the word that is found.

# %%
one_matrix, W_Q, W_K = normal(0, 3, 5, 3)
with_one_matrix = (vectors @ one_matrix) @ (vectors @ one_matrix).T
with_two_matrices = (vectors @ W_Q) @ (vectors @ W_K).T
np.testing.assert_allclose(with_one_matrix, with_one_matrix.T, rtol=1e-5, atol=1e-5)
assert not np.allclose(with_two_matrices, with_two_matrices.T)
for name, scores in {"one matrix": with_one_matrix, "two matrices": with_two_matrices}.items():
    print(f"{name:12} animal to it {scores[0, 3]:6.2f}, it to animal {scores[3, 0]:6.2f}")

# %% [markdown]
# So each word gets three vectors, by three matrices that are learned: a **query** (it describes
# what the word looks for), a **key** (it describes how the word can be found), and a **value**
# (what the word passes on). With one word in each row of $X$, a layer of one head is
#
# $$Q = X W^Q, \quad K = X W^K, \quad V = X W^V, \qquad
# \mathrm{Attention}(Q, K, V) = \mathrm{softmax}\!\left(\frac{Q K^\top}{\sqrt{d_k}}\right) V.$$
#
# The function `attention(q, k, v)` computes it for $Q$ [T, d_k], $K$ [S, d_k] and $V$ [S, d_v], and
# returns the outputs [T, d_v] and the weights [T, S]. Section 8 explains the division.
#
# Two such layers are enough for "it", with matrices written by hand; training finds its own. In the
# first layer a pronoun looks for an adjective, and receives the kind of things of which the
# adjective is said. In the second layer it looks for a word of that kind. After each layer the old
# vector is added (a residual connection), so that the word keeps its own features.


# %%
def layer(x, w_q, w_k, w_v):
    """x + Attention(x W_q, x W_k, x W_v), and the weights."""
    q, k, v = (x @ np.array(w, np.float32) for w in (w_q, w_k, w_v))
    y, weights = attention(q, k, v)
    return x + y, weights


# rows: living thing, place, pronoun, adjective, said of living things
looks_for_adjectives = [[0], [0], [3], [0], [0]]
is_an_adjective = [[0], [0], [0], [1], [0]]
passes_on_the_kind = np.diag([0, 0, 0, 0, 1])
looks_for_its_kind = [[0, 0], [0, 0], [0, 0], [0, 0], [3, -3]]
is_living_or_a_place = [[1, 0], [0, 1], [0, 0], [0, 0], [0, 0]]
passes_on_its_features = np.diag([1, 1, 0, 0, 0])


def two_layers(sentence):
    """The vectors of the words after two layers, and the weights of both."""
    x = embedded(sentence)
    x, first = layer(x, looks_for_adjectives, is_an_adjective, passes_on_the_kind)
    x, second = layer(x, looks_for_its_kind, is_living_or_a_place, passes_on_its_features)
    return x, first, second


# %%
figure, axes = plt.subplots(2, 2, figsize=(8.5, 7.5), layout="constrained")
for row, sentence, noun in zip(axes, (tired, wide), ("animal", "street")):
    x, first, second = two_layers(sentence)
    draw_weights(row[0], first, sentence, sentence, f"first layer, … {sentence[-1]}")
    draw_weights(row[1], second, sentence, sentence, f"second layer, … {sentence[-1]}")
    for place in row:
        place.set(xlabel="key", ylabel="query")
    print(f"it, where something is {sentence[-1]}:", x[3])
    features = np.array([0, 0, 2, 0, TABLE[sentence[-1]][-1]]) + TABLE[noun]
    np.testing.assert_allclose(x[3], features, atol=0.01)
    place_of_noun = sentence.index(noun)
    assert second[3, place_of_noun] > 0.99  # "it" looks at the noun,
    assert second[place_of_noun, 3] < 0.15  # and the noun hardly looks at "it"
    np.testing.assert_allclose(np.delete(first, 3, axis=0), 1 / 5, rtol=1e-5)
    assert (second.argmax(-1) == place_of_noun).all()
figure.colorbar(axes[0, 0].images[0], ax=axes, label="weight")
plt.show()
_, _, before_the_adjective = two_layers(tired[:4])
np.testing.assert_allclose(before_the_adjective[3, 0], before_the_adjective[3, 2], rtol=1e-5)

# %% [markdown]
# "It" now carries the features of the animal in one sentence and those of the street in the other.
# Before the last word is read, both nouns are possible: "it" gives them equal weights.
# The weights of the second layer are not symmetric: "it" looks at the noun, the noun hardly looks
# at "it". (In the first layer all other words look for nothing in particular: their queries are
# zero, their weights are equal, and so each receives a little of the kind. Therefore they too look
# mostly at the animal or the street in the second layer.)
#
# ## 5. Attention is a soft lookup table
#
# A dictionary returns the value whose key equals the query. Attention returns an average of all
# values, in which a value counts more if its key is more similar to the query. The longer the
# query, the more attention resembles a dictionary.

# %%
keys_of_table = np.eye(3)
values_of_table = np.array([[10.0], [20.0], [60.0]])


@jax.jit
def look_up(query):
    """The value that is found, and the weights of the three keys."""
    y, weights = attention(query[None], keys_of_table, values_of_table)
    return y[0, 0], weights[0]


lengths = np.linspace(0, 12, 60)
found, weights = map(np.array, zip(*(look_up(length * keys_of_table[1]) for length in lengths)))
np.testing.assert_allclose(found[0], values_of_table.mean(), rtol=1e-5)
assert (np.diff(weights[:, 1]) > 0).all()
assert abs(found[-1] - 20) < 0.1
assert (jax.grad(lambda query: look_up(query)[0])(2 * keys_of_table[1]) != 0).all()

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
np.testing.assert_allclose(weights[:, 0], weights[:, 2], atol=1e-6)
left.plot(lengths, weights[:, 1], "C1--", linewidth=2, label="key 2")
left.plot(lengths, weights[:, 0], "k-", linewidth=2, label="keys 1 and 3 (equal)")
left.set(xlabel="length of the query", ylabel="weight", title="weights, the query along key 2")
left.legend()
right.plot(lengths, found)
right.set(xlabel="length of the query", ylabel="value", ylim=(10, 60))
right.set(title="value that is found, of 10, 20 and 60")
plt.show()

# %% [markdown]
# At length 0 all keys have the same weight, and the mean of the values, 30, is found. In between
# the output changes smoothly with the query, so that it has gradients from which queries and keys
# can be learned; a dictionary has no gradient.
#
# ## 6. Attention routes
#
# Once the weights are known, the rest is a matrix product: row $i$ of the weights says which values
# go into output $i$. Below, three values (blue, orange and white, as colours) are sent to three
# outputs: each to the next one, partly mixed, and all to all.

# %%
colours = np.array([[0.0, 0.45, 0.7], [0.9, 0.6, 0.0], [1.0, 1.0, 1.0]])
routes = {
    "each to the next": [[0, 0, 1], [1, 0, 0], [0, 1, 0]],
    "the first a mixture": [[0.5, 0.5, 0], [0, 1, 0], [0, 0, 1]],
    "all the same": [[1 / 3] * 3] * 3,
}
figure, axes = plt.subplots(2, 3, figsize=(9, 5), layout="constrained")
places = ["1", "2", "3"]
for (name, route), (above, below) in zip(routes.items(), axes.T):
    # Softmax of the logarithm of the weights gives the weights again. With unit vectors as keys the
    # scores are the queries; sqrt(3) undoes the scaling.
    queries = np.log(np.array(route) + 1e-9) * math.sqrt(3)
    outputs, weights = attention(queries, np.eye(3), colours)
    np.testing.assert_allclose(weights, route, atol=1e-6)
    np.testing.assert_allclose(outputs, np.array(route) @ colours, atol=1e-6)
    draw_weights(above, weights, places, places, name)
    above.set(xlabel="value", ylabel="output")
    below.imshow(outputs[None])
    below.set(xticks=range(3), xticklabels=places, yticks=[], xlabel="output", title="outputs")
figure.colorbar(axes[0, 0].images[0], ax=axes[0], label="weight")
plt.show()

# %% [markdown]
# Now with weights as a trained layer might have them. The first output is 0.1 of the first value,
# 0.3 of the second and 0.6 of the third:
#
# $$y_1 = 0.1\, v_1 + 0.3\, v_2 + 0.6\, v_3$$


# %%
def draw_routing(axes, weights, values, outputs):
    """Values on the left, outputs on the right; the width of a line is the weight."""
    styles = [("tab:blue", "-"), ("tab:orange", "--"), ("dimgrey", ":")]
    for (i, j), weight in np.ndenumerate(weights):
        colour, style = styles[j]
        axes.plot([0, 1], [-j, -i], style, color=colour, linewidth=10 * weight, alpha=0.8)
        box = {"facecolor": "white", "edgecolor": "none", "pad": 3}
        axes.text(0.25, -0.75 * j - 0.25 * i, f"{weight:.1f}", ha="center", va="center", bbox=box)
    for side, name, vectors in ((-0.05, "v", values), (1.05, "y", outputs)):
        for number, vector in enumerate(np.array(vectors)):
            text = f"${name}_{number + 1}$ = ({', '.join(f'{entry:g}' for entry in vector)})"
            axes.text(side, -number, text, ha="right" if side < 0 else "left", va="center")
    axes.set(xlim=(-0.6, 1.6), ylim=(-2.3, 0.3))
    axes.axis("off")


route = np.array([[0.1, 0.3, 0.6], [0.5, 0.2, 0.3], [0.1, 0.2, 0.7]])
values = np.array([[10.0, 0, 0, 5], [0, 10, 0, 5], [0, 0, 10, 5]])
outputs, weights = attention(np.log(route) * math.sqrt(3), np.eye(3), values)
np.testing.assert_allclose(outputs[0], [1, 3, 6, 5], rtol=1e-4)
np.testing.assert_allclose(outputs, route @ values, rtol=1e-4)
figure, axes = plt.subplots(figsize=(8, 3.4), layout="constrained")
draw_routing(axes, weights, values, np.round(outputs, 3))
axes.set_title("Three values routed to three outputs; the width of a line is the weight")
plt.show()

# %% [markdown]
# The weights apply to whole vectors. As a matrix over all 12 numbers (section 1), this step has
# only nine weights, one for each pair of words, however wide the words are.
#
# ### The average is linear, attention is not
#
# With the weights fixed, outputs are linear in the values. But the weights themselves are computed
# from the words, by a product of queries and keys and a softmax. Therefore the whole is **not**
# linear, although it has no activation function: attention of a sum is not the sum of attentions.
# (A network that computes the weights of another network is called a hypernetwork.)

# %%
over_all = np.kron(route, np.eye(4))
np.testing.assert_allclose(over_all @ np.ravel(values), np.ravel(outputs), rtol=1e-4)
assert route.size == 9
assert np.count_nonzero(over_all) == 9 * 4  # each of them in four places

first, second = normal(0, 2, 3, 4)
# The average is linear.
np.testing.assert_allclose(route @ (first + second), route @ first + route @ second, atol=1e-5)


def of_itself(x):
    return attention(x, x, x)[0]


of_sum, sum_of_both = of_itself(first + second), of_itself(first) + of_itself(second)
assert not np.allclose(of_sum, sum_of_both, atol=0.1)
assert not np.allclose(of_itself(2 * first), 2 * of_itself(first), atol=0.1)
print("attention of the sum, first word:    ", of_sum[0])
print("sum of both attentions, first word:  ", sum_of_both[0])

# %% [markdown]
# ## 7. By hand
#
# For one word, equation 1 is five small steps:
#
# $$q_1 = x_1 W^Q, \qquad k_1 = x_1 W^K, \qquad s_j = q_1 \cdot k_j, \qquad
# \alpha_j = \frac{\exp(s_j / \sqrt{d_k})}{\sum_m \exp(s_m / \sqrt{d_k})}, \qquad
# y_1 = \sum_j \alpha_j\, v_j$$
#
# The sentence is "we wash our cats". Its first word has the vector $x_1$ of four numbers; queries,
# keys and values have three. The keys of the other three words, and all values, are given.

# %%
x1 = np.array([3, 0, 1, -0.5])  # we
W_q = np.array([[1.5, 1, 2], [3, -2, 5], [1, 2, -2], [9, 4, 2]])
W_k = np.array([[1, 0.5, 2], [-2, 0.5, 3], [0.5, 2, -3], [5, 3, 2]])
k2, k3, k4 = np.array([[3, 4, 3], [5, 2, 3], [3, 2, 1]])  # wash, our, cats
V = np.array([[1, 0.5, -1], [4, 5, -2], [-3, 2, 2], [1, 1, 6]])  # one row for each word

# %% [markdown]
# The example divides by $\sqrt{64} = 8$, as a head of width 64 does, although its vectors have only
# three numbers. The folded cell computes the same with our functions, to compare with: `attention`
# divides by the root of the width that it finds, so it gets the vectors with 61 zeros once, and
# without them once.


# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-input"]
def by_project(w):
    return project(jnp.array(x1, jnp.float32)[None, None], w[:, None], None)[0, 0]


def with_zeros(rows):
    return np.pad(rows, [(0, 0), (0, 64 - 3)])


query, key = np.array(by_project(W_q)), np.array(by_project(W_k))  # [1, 3] each
all_keys = np.concatenate([key, [k2, k3, k4]])
output_64, weights_64 = attention(with_zeros(query), with_zeros(all_keys), V)
output_3, weights_3 = attention(query, all_keys, V)
expected = {
    "q1": query[0],
    "k1": key[0],
    "scores": all_keys @ query[0],
    "weights": weights_64[0],
    "output": output_64[0],
    "weights_by_3": weights_3[0],
    "output_by_3": output_3[0],
}

# %% [markdown]
# ### Exercise 1: we wash our cats
#
# Compute the output for the word "we" with numpy, step by step, without `attention`: first with
# $\sqrt{64}$ in the denominator, then once more with $\sqrt{3}$. (Try the first half on paper:
# query, key and scores are whole numbers.) You learn how little happens in equation 1, and what the
# denominator changes.

# %% tags=["exercise"]
q1 = ...  # the query of "we", three numbers
k1 = ...  # the key of "we", three numbers
scores = ...  # the query times each of the four keys
weights = ...  # softmax of scores / sqrt(64)
output = ...  # the average of the rows of V with these weights
weights_by_3 = ...  # the same with sqrt(3)
output_by_3 = ...

answers = (q1, k1, scores, weights, output, weights_by_3, output_by_3)
check_each(dict(zip(expected, answers)), expected)

# %% cellView="form" jupyter={"source_hidden": true} tags=["solution", "hide-input"]
# @title Solution
q1 = x1 @ W_q
k1 = x1 @ W_k
scores = np.array([k1, k2, k3, k4]) @ q1
weights = np.exp(scores / math.sqrt(64))
weights = weights / weights.sum()
output = weights @ V
weights_by_3 = np.exp(scores / math.sqrt(3))
weights_by_3 = weights_by_3 / weights_by_3.sum()
output_by_3 = weights_by_3 @ V

answers = (q1, k1, scores, weights, output, weights_by_3, output_by_3)
check_each(dict(zip(expected, answers)), expected)

# %% [markdown]
# With $\sqrt{3}$ the scaled scores are further apart, and one word gets nearly all of the weight.
#
# Projections may have a bias, as in BERT: $V = X W^V + b$. Since the weights of a query sum to one,
# a bias of the values moves every output by exactly $b$, whatever the weights are.

# %%
np.testing.assert_allclose([query[0], key[0]], [[1, 3, 3], [1, 2, 2]])
np.testing.assert_allclose(all_keys @ query[0], [13, 24, 20, 12])
np.testing.assert_allclose(output_64[0], [1.2756, 3.1513, 0.1436], atol=1e-4)
assert weights_64.max() < 0.5
assert weights_3.max() > 0.9

figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
axes.bar(np.arange(4) - 0.2, weights_64[0], 0.4, label="divided by sqrt(64)")
axes.bar(np.arange(4) + 0.2, weights_3[0], 0.4, hatch="//", label="divided by sqrt(3)")
axes.set_xticks(range(4), ["we", "wash", "our", "cats"])
axes.set(xlabel="key", ylabel="weight", title='The weights of the query of "we"', ylim=(0, 1))
axes.legend()
plt.show()
bias = np.array([1.0, -2, 0.5])
by_hand = project(jnp.array(x1, jnp.float32)[None, None], W_q[:, None], bias[None])[0, 0, 0]
np.testing.assert_allclose(by_hand, x1 @ W_q + bias, rtol=1e-5)
with_bias, _ = attention(query, all_keys, V + bias)
np.testing.assert_allclose(with_bias, output_3 + bias, rtol=1e-5)
print("output, divided by sqrt(64):", output_64[0])
print("output, divided by sqrt(3): ", output_3[0])

# %% [markdown]
# ## 8. Why divide by $\sqrt{d_k}$?
#
# Let the numbers of $q$ and $k$ be independent, with mean 0 and variance 1. Each product $q_i k_i$
# has variance 1, and so
#
# $$\mathrm{Var}(q \cdot k) = \sum_{i=1}^{d_k} \mathrm{Var}(q_i k_i) = d_k.$$
#
# The cell measures it, up to the error of the sample. The wider the heads, the further apart the
# scores.


# %%
def random_scores(d_k):
    """The scores of 1,024 random queries and as many random keys."""
    queries, keys = normal(d_k, 2, 1024, d_k)
    return queries @ keys.T


scores_by_width = {d_k: random_scores(d_k) for d_k in (1, 4, 16, 64, 256, 1024)}
for d_k, scores in scores_by_width.items():
    print(f"d_k = {d_k:5,}: variance of the scores {scores.var():7.1f}")
    np.testing.assert_allclose(scores.var(), d_k, rtol=0.15)

# %% [markdown]
# Training changes queries and keys through the scores, and the scores through the gradient of the
# softmax,
#
# $$\frac{\partial \alpha_i}{\partial s_j} = \alpha_i\, (\delta_{ij} - \alpha_j),$$
#
# where $\delta_{ij}$ is 1 if $i = j$ and 0 otherwise. It is small if one weight is nearly 1 and the
# others nearly 0. It is larger if all weights are equal, and largest in between.
#
# Undivided scores of a wide head are in the first case: one key has nearly all of the weight, and
# the gradient falls with the width. (A query has the further factor $k$, or $k / \sqrt{d_k}$ if the
# scores are divided.) With narrow heads the undivided scores are *better* off: at $d_k = 4$ and 16
# their gradient is larger than that of the divided ones. Division does not give the
# largest gradient. It gives the same gradient at every width (here within a fifth), so that the
# softmax of a wide head passes on as much gradient as that of a narrow one.


# %%
@jax.jit
def softmax_gradient(scores):
    """The mean norm of d weights / d scores, and the mean of the largest weights, of each row."""
    slopes = jax.vmap(jax.jacobian(jax.nn.softmax))(scores)
    return jnp.sqrt((slopes**2).sum((1, 2))).mean(), jax.nn.softmax(scores).max(-1).mean()


# 490 queries, each with 32 keys
samples = {d_k: scores.reshape(-1, 32)[::67] for d_k, scores in scores_by_width.items()}
divided = np.array([softmax_gradient(rows / math.sqrt(d_k)) for d_k, rows in samples.items()])
undivided = np.array([softmax_gradient(rows) for rows in samples.values()])

alpha = np.array(jax.nn.softmax(samples[4][0]))
by_formula = alpha[:, None] * (np.eye(32) - alpha)
np.testing.assert_allclose(jax.jacobian(jax.nn.softmax)(samples[4][0]), by_formula, atol=1e-6)
for d_k, with_root, without in zip(scores_by_width, divided[:, 0], undivided[:, 0]):
    print(f"d_k = {d_k:5,}: gradient {with_root:.3f} divided, {without:.3f} not divided")

# %%
of_equal_weights = np.linalg.norm(np.eye(32) / 32 - 1 / 32**2)
assert undivided[-1, 0] < of_equal_weights < undivided[1, 0]
assert undivided[1, 0] > divided[1, 0]  # at d_k = 4
assert (undivided[3:, 0] < divided[3:, 0]).all()  # from d_k = 64 on
assert (np.diff(undivided[2:, 0]) < 0).all()  # it falls with the width
assert divided[:, 0].max() < 1.2 * divided[:, 0].min()
assert undivided[-1, 1] > 0.9  # one key has nearly all of the weight
assert divided[-1, 1] < 0.3

figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
for number, place in enumerate(axes):
    place.semilogx([*scores_by_width], divided[:, number], "o-", label="divided by $\\sqrt{d_k}$")
    place.semilogx([*scores_by_width], undivided[:, number], "s--", label="not divided")
    place.set_xticks([*scores_by_width], [f"{d_k:,}" for d_k in scores_by_width])
    place.minorticks_off()
    place.set_xlabel("width $d_k$")
axes[0].set(ylabel="mean norm", title="gradient of the softmax", ylim=(0, None))
axes[1].set(ylabel="mean weight", title="largest of 32 weights", ylim=(0, 1))
axes[0].legend()
plt.show()

# %% [markdown]
# ### Exercise 2: another denominator
#
# Here the numbers of queries and keys are uniform between -1 and 1. Each has variance 1/3 instead
# of 1. By which number do you have to divide the scores, so that their variance is 1? You learn on
# which assumption $\sqrt{d_k}$ rests.

# %% tags=["exercise"]
uniform = np.random.default_rng(0).uniform(-1, 1, size=(2, 20_000, 64))
uniform_scores = (uniform[0] * uniform[1]).sum(-1)
print(f"variance of the numbers: {uniform.var():.3f}, of the scores: {uniform_scores.var():.3f}")
divisor = ...

check(divisor, math.sqrt(uniform_scores.var()), tolerance=0.03)

# %% cellView="form" jupyter={"source_hidden": true} tags=["solution", "hide-input"]
# @title Solution
# A product of two independent numbers of mean 0 has the product of their variances: 1/3 times 1/3.
divisor = math.sqrt(64 * 1 / 3 * 1 / 3)

check(divisor, math.sqrt(uniform_scores.var()), tolerance=0.03)
np.testing.assert_allclose((uniform_scores / divisor).var(), 1, atol=0.05)

# %% [markdown]
# ## 9. Attention does not see order
#
# If the words come in another order, the outputs are the same vectors in that other order: each
# word of "dog bites man" gets the same output as in "man bites dog". The reason is the sum over all
# words in equation 1, which does not depend on the order of its terms. The function below is
# attention with several heads (section 11).

# %%
HEADS, WIDTH = 4, 32
w_q, w_k, w_v = normal(1, 3, WIDTH, HEADS, WIDTH // HEADS) / math.sqrt(WIDTH)
w_o = normal(2, HEADS, WIDTH // HEADS, WIDTH) / math.sqrt(WIDTH)
heads = Attention(w_q=w_q, w_k=w_k, w_v=w_v, w_o=w_o)


@jax.jit
def self_attention(x, mask=None):
    """Section 3.2.2 for one sentence: outputs [T, D] and weights [H, T, T]."""
    mask = jnp.ones((1, 1, 1, 1), bool) if mask is None else mask
    y, weights = multi_head_attention(heads, x[None], key_value(heads, x[None]), mask)
    return y[0], weights[0]


dog, bites, man = normal(3, 3, WIDTH)
one, _ = self_attention(np.stack([dog, bites, man]))
other, _ = self_attention(np.stack([man, bites, dog]))
np.testing.assert_allclose(one[::-1], other, atol=1e-5)
print("dog, first numbers of the output: ", one[0, :4], "and", other[2, :4])

positions = sinusoids(jnp.arange(3), WIDTH)
one, _ = self_attention(np.stack([dog, bites, man]) + positions)
other, _ = self_attention(np.stack([man, bites, dog]) + positions)
assert not np.allclose(one[::-1], other, atol=0.1)
print("with positions added to the words:", one[0, :4], "and", other[2, :4])

# %% [markdown]
# So positions are added to the embeddings (section 3.5); `02_transformer` shows them.
#
# ## 10. Looking back only
#
# A decoder predicts each word from the words before it. In training it reads all words at once, so
# a mask has to hide the later ones. It is applied to the scores, before the softmax: the scores of
# later words become $-\infty$, and $\exp(-\infty) = 0$.
#
# $$\alpha = \mathrm{softmax}\!\left(\frac{Q K^\top}{\sqrt{d_k}} + M\right), \qquad
# M_{ij} = \begin{cases} 0 & \text{if } j \le i \\ -\infty & \text{if } j > i \end{cases}$$
#
# `causal_mask` is true where a query may look. (Our code uses the lowest float32 number instead of
# $-\infty$: a row of $-\infty$ alone would give 0 / 0.)

# %%
causal = np.array(causal_mask(4)[0, 0])
q, k, v = normal(0, 3, 4, 8)
masked = np.where(causal, q @ k.T / math.sqrt(8), -np.inf)
outputs, weights = attention(q, k, v, causal)
print(f"scores with the mask:\n{masked}\n\ntheir softmax:\n{weights}")

np.testing.assert_allclose(weights, jax.nn.softmax(masked), atol=1e-6)
np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-5)
assert (np.array(weights)[~causal] == 0).all()
assert np.isnan(jax.nn.softmax(np.full(4, -np.inf))).all()

# %% [markdown]
# The gradient of each output with respect to each word shows which output depends on which word.

# %%
x = normal(4, 6, WIDTH)
y, weights_of_heads = self_attention(x)


@jax.jit
def dependence(mask):
    """[T, T]: the norm of the gradient of output i with respect to word j."""
    slopes = jax.jacobian(lambda x: self_attention(x, mask)[0])(x)
    return jnp.sqrt((slopes**2).sum((1, 3)))


figure, axes = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
names = [f"word {number}" for number in range(1, 7)]
without_mask = np.array(dependence(np.ones((1, 1, 6, 6), bool)))
with_mask = np.array(dependence(causal_mask(6)))
for place, norms, name in zip(axes, (without_mask, with_mask), ("no mask", "causal mask")):
    draw_weights(place, norms / norms.max(), names, names, name)
    place.set(xlabel="with respect to", ylabel="gradient of the output at")
figure.colorbar(axes[0].images[0], ax=axes, label="norm / largest norm")
plt.show()
assert (without_mask > 0).all()
assert (with_mask[np.triu_indices(6, 1)] == 0).all()
assert (with_mask[np.tril_indices(6)] > 0).all()

# %% [markdown]
# ### Exercise 3: equation 1 in your own words
#
# Write equation 1 with a mask in numpy: `q` [T, d_k], `k` [S, d_k], `v` [S, d_v], and `mask` [T,
# S], which is true where a query may look. Return the outputs [T, d_v]. The second check has other
# lengths and widths, another mask, and scores so large that their exponential overflows. You learn
# the function at the heart of every Transformer.


# %% tags=["exercise"]
def my_attention(q, k, v, mask):
    return ...


every_second = np.arange(15).reshape(3, 5) % 2 == 0
large = normal(1, 3, 16) * 100, normal(2, 5, 16), normal(3, 5, 2), every_second
check(my_attention(q, k, v, causal), attention(q, k, v, causal)[0])
check(my_attention(*large), attention(*large)[0])


# %% cellView="form" jupyter={"source_hidden": true} tags=["solution", "hide-input"]
# @title Solution
def my_attention(q, k, v, mask):
    scores = q @ k.T / np.sqrt(q.shape[-1])
    scores = np.where(mask, scores, -np.inf)
    # Softmax does not change if a number is subtracted from all scores; now the largest is 0.
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights = weights / weights.sum(-1, keepdims=True)
    return weights @ v


check(my_attention(q, k, v, causal), attention(q, k, v, causal)[0])
check(my_attention(*large), attention(*large)[0])

# %% [markdown]
# ## 11. Many heads
#
# A head has one distribution over the words. If it looks at two of them, it gets their average, and
# the two values can no longer be told apart. Two heads look at two words and keep both. Below, the
# values of four words are 1, 2, 4 and 5; first the first and the last word are looked up together,
# then the two between.

# %%
values = np.array([[1.0], [2.0], [4.0], [5.0]])
for name, pair in {"first and last": (0, 3), "the two between": (1, 2)}.items():
    queries = 40 * np.eye(4)[[*pair]]  # one for each of the two words
    one_head, _ = attention(queries.sum(0, keepdims=True), np.eye(4), values)
    two_heads = [attention(query[None], np.eye(4), values)[0] for query in queries]
    print(f"{name:16} one head: {np.ravel(one_head)}  two heads: {np.ravel(two_heads)}")
    np.testing.assert_allclose(one_head, 3, rtol=1e-5)  # (1 + 5) / 2 and (2 + 4) / 2: both are 3
    np.testing.assert_allclose(np.ravel(two_heads), values[[*pair], 0], rtol=1e-5)

# %% [markdown]
# Section 3.2.2 of the paper (`multi_head_attention`):
#
# $$\mathrm{MultiHead}(Q, K, V) = \mathrm{Concat}(\mathrm{head}_1, \ldots, \mathrm{head}_h)\, W^O$$
# $$\mathrm{head}_i = \mathrm{Attention}(Q W_i^Q, K W_i^K, V W_i^V)$$
#
# Here $Q$, $K$ and $V$ are not projected yet: in self-attention all three are the input $X$.
#
# More heads need no more weights, because each head is narrower: $d_k = d_v = d_{model} / h$. The
# paper's model has 8 heads of width 64, and $8 \cdot 64 = 512$.

# %%
for count in (1, 8, 16):
    config = ModelConfig(source_vocab_size=1000, target_vocab_size=1000, num_heads=count)
    params = jax.eval_shape(partial(init_params, config), jax.random.key(0))
    layers = params.encoder.layers.self_attention  # all six layers, on a leading axis
    _, d_model, h, d_k = layers.w_q.shape
    sizes = [w.size // 6 for w in (layers.w_q, layers.w_k, layers.w_v, layers.w_o)]
    print(f"{h:2} heads of width {d_k:3}: W^Q has {sizes[0]:,} weights, all four {sum(sizes):,}")
    assert h * d_k == d_model == 512
    assert sum(sizes) == 4 * 512**2 == 1_048_576
    if h == 8:
        assert d_k == 64
        assert d_model * d_k == 32_768  # weights of one head in W^Q

# %% [markdown]
# Below are the weights of the four heads of section 9, whose matrices are random. Each head looks
# elsewhere.

# %%
figure, axes = plt.subplots(1, HEADS, figsize=(12, 3.4), sharey=True, layout="constrained")
for number, place in enumerate(axes):
    draw_weights(place, weights_of_heads[number], names, names, f"head {number + 1}")
    place.set_xlabel("key")
axes[0].set_ylabel("query")
figure.colorbar(axes[0].images[0], ax=axes, label="weight")
plt.show()
for one, other in itertools.combinations(np.array(weights_of_heads), 2):
    assert (one.argmax(-1) != other.argmax(-1)).any()

# %% [markdown]
# ### Exercise 4: several heads from one
#
# Compute the output `y` [6, 32] of section 10 for the words `x` [6, 32] with four calls of
# `attention`. The matrices `w_q`, `w_k` and `w_v` have the shape [32, 4, 8]: `w_q[:, h]` belongs to
# head `h`. `w_o` has the shape [4, 8, 32], and `w_o.reshape(32, 32)` is the paper's $W^O$. You
# learn that several heads are equation 1 several times, and one more product.

# %% tags=["exercise"]
outputs_of_heads = ...  # a list of four matrices [6, 8]
concatenated = ...  # [6, 32]
answer = ...

check(answer, y)

# %% cellView="form" jupyter={"source_hidden": true} tags=["solution", "hide-input"]
# @title Solution
outputs_of_heads = [attention(x @ w_q[:, h], x @ w_k[:, h], x @ w_v[:, h])[0] for h in range(HEADS)]
concatenated = np.concatenate(outputs_of_heads, axis=-1)
answer = concatenated @ w_o.reshape(WIDTH, WIDTH)

check(answer, y)

# %% [markdown]
# ## 12. What it costs
#
# Each word looks at each, so twice the length means four times the scores. Multiplications for $T$
# words, with $d = d_{model}$ and the width $d_{ff}$ of the feed-forward layer that follows
# attention, $\max(0, x W_1 + b_1) W_2 + b_2$ (equation 2, `02_transformer`):
#
# | | multiplications | steps one after the other | longest path between two words |
# | --- | --- | --- | --- |
# | attention, scores $Q K^\top$ and averages of $V$ | $2\, T^2 d$ | 1 | 1 |
# | feed-forward layer | $2\, T d\, d_{ff}$ | 1 | no path |
# | recurrent layer, $W h_{t-1} + U x_t$ | $2\, T d^2$ | $T$ | $T$ |
#
# The number of heads does not matter: $h$ heads of width $d / h$ need as many multiplications as
# one head of width $d$. The four projections ($W^Q$ to $W^O$) need $4\, T d^2$ more.
# `pair_operations` counts a whole model in this way (twice, since it counts additions too); a test
# compares it with what the compiler counts.


# %%
def attention_multiplications(length, d=256, heads=1):
    scores = averages = heads * length * length * (d // heads)
    return scores + averages


def feed_forward_multiplications(length, d=256, d_ff=1024):
    return length * d * d_ff + length * d_ff * d


lengths = [64, 128, 256, 512, 1024]
for T in lengths:
    counts = attention_multiplications(T), feed_forward_multiplications(T)
    print(f"{T:5,} words: attention {counts[0]:12,}, feed-forward layer {counts[1]:12,}")
    assert attention_multiplications(2 * T) == 4 * counts[0]
    assert feed_forward_multiplications(2 * T) == 2 * counts[1]
    assert attention_multiplications(T, heads=8) == counts[0]
one_layer = ModelConfig(100, encoder_layers=1, decoder_layers=0, d_model=256, d_ff=1024)
others = 4 * T * 256**2 + T * 256 * 100  # projections, and the output layer for 100 tokens
assert pair_operations(one_layer, T, 0) == 2 * (sum(counts) + others)
shares = [attention_multiplications(T) / feed_forward_multiplications(T) for T in lengths]
assert shares == sorted(shares)
assert shares[0] < 0.1

# %% [markdown]
# The counts are exact. Times beside them are measured, on the machine that ran this cell. Softmax,
# memory and the start of each call take time too, and they do not grow like the multiplications.

# %%
feed_forward_alone = jax.jit(lambda x, w_1, w_2: jnp.maximum(x @ w_1, 0) @ w_2)
w_1, w_2 = jnp.ones((256, 1024)), jnp.ones((1024, 256))
measured = []
for T in lengths:
    x_long = jnp.array(normal(0, T, 256))
    attention_ms = milliseconds(attention, x_long, x_long, x_long)
    measured.append([attention_ms, milliseconds(feed_forward_alone, x_long, w_1, w_2)])

counted = [[attention_multiplications(T), feed_forward_multiplications(T)] for T in lengths]
figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
for place, numbers in zip(axes, np.array([counted, measured])):
    place.loglog(lengths, numbers[:, 0], "o-", label="attention: scores and averages")
    place.loglog(lengths, numbers[:, 1], "s--", label="feed-forward layer")
    place.set_xticks(lengths, [f"{T:,}" for T in lengths])
    place.minorticks_off()
    place.set_xlabel("length in words")
axes[0].set(ylabel="multiplications", title="counted")
axes[1].set(ylabel="milliseconds", title="measured on this machine")
axes[0].legend()
plt.show()
growth = np.array(measured)[-1] / np.array(measured)[-2]
print(f"measured from {lengths[-2]} to {lengths[-1]:,} words: attention {growth[0]:.1f} times,")
print(f"the feed-forward layer {growth[1]:.1f} times as long")

# %% [markdown]
# ### Exercise 5: where attention becomes the larger part
#
# The paper's base model has $d_{model} = 512$ and $d_{ff} = 2048$. From which length on does
# attention (scores and averages) need at least as many multiplications as the feed-forward layer?
# You learn for which texts the square matters.

# %% tags=["exercise"]
length_of_equal_cost = ...

costs = (
    (T, attention_multiplications(T, 512), feed_forward_multiplications(T, 512, 2048))
    for T in itertools.count(1)
)
check(length_of_equal_cost, next(T for T, quadratic, linear in costs if quadratic >= linear))

# %% cellView="form" jupyter={"source_hidden": true} tags=["solution", "hide-input"]
# @title Solution
# 2 T^2 d = 2 T d d_ff, so T = d_ff: the width of the model does not matter.
length_of_equal_cost = 2048

costs = (
    (T, attention_multiplications(T, 512), feed_forward_multiplications(T, 512, 2048))
    for T in itertools.count(1)
)
check(length_of_equal_cost, next(T for T, quadratic, linear in costs if quadratic >= linear))

# %% [markdown]
# ## 13. Images are sequences too
#
# Attention needs a set of vectors; they need not be words. A Vision Transformer ([Dosovitskiy et
# al., 2021](https://arxiv.org/abs/2010.11929)) cuts an image into patches, and treats each patch as
# a token. Below, an 8 x 8 image becomes 16 tokens of 2 x 2 = 4 numbers. A photo of 224 x 224 pixels
# in patches of 16 x 16 becomes 196 tokens.

# %%
image = np.zeros((8, 8), np.float32)
image[:, :2] = image[6:] = 1  # the letter L
tokens = image.reshape(4, 2, 4, 2).swapaxes(1, 2).reshape(16, 4)
outputs, weights = attention(20 * (tokens - 0.5), tokens - 0.5, tokens)
print(f"image {image.shape}, tokens {tokens.shape}, weights {weights.shape}, out {outputs.shape}")

assert tokens.shape == outputs.shape == (16, 4)
assert (224 // 16) ** 2 == 196
np.testing.assert_array_equal(tokens[5], image[2:4, 2:4].ravel())  # second row, second column
of_letter = tokens[:, 0] == 1
assert of_letter[0]
assert of_letter.sum() == 7
np.testing.assert_allclose(weights[0], of_letter / 7, atol=1e-3)

figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.6), layout="constrained")
draw_weights(left, image, range(1, 9), range(1, 9), "image, with patches of 2 x 2")
for border in (1.5, 3.5, 5.5):
    left.axhline(border, color="tab:orange")
    left.axvline(border, color="tab:orange")
left.set(xlabel="column of pixels", ylabel="row of pixels")
right.imshow(weights[0].reshape(4, 4), cmap="Blues", vmin=0, vmax=0.2)
right.set(xlabel="column of patches", ylabel="row of patches", title="weights of the first patch")
right.set_xticks(range(4), range(1, 5))
right.set_yticks(range(4), range(1, 5))
figure.colorbar(left.images[0], ax=left, label="value of the pixel", shrink=0.8)
figure.colorbar(right.images[0], ax=right, label="weight", shrink=0.8)
plt.show()

# %% [markdown]
# The first patch looks at the seven patches that belong to the letter, itself among them, wherever
# they are; each has a weight of 1/7.
#
# ## Quiz
#
# Write your answers in the cell below, and run it. Then run the folded cell: it says which of them
# are right, and how they are computed if you unfold it.
#
# 1. Three words of four numbers each: how many weights has one matrix over all of them, and how
#    many has a matrix that the words share?
# 2. $h_t = 0.5\, W h_{t-1} + U x_t$ with an orthogonal $W$: by which factor is the gradient at
#    distance 10 smaller than at distance 0?
# 3. The weights are 0.1, 0.3 and 0.6, the values 10, 20 and 60. What is the output?
# 4. All scores of a query are 7, and there are four keys. How large is each weight?
# 5. $Q$ is [5, 64], $K$ is [7, 64] and $V$ is [7, 32]. Which shapes have the weights and the
#    output?
# 6. The numbers of queries and keys are independent, with mean 0 and variance 1, and $d_k = 256$.
#    What is the standard deviation of the scores before and after the division?
# 7. Without positions, by how much does the output for "dog" change between "dog bites man" and
#    "man bites dog"?
# 8. Five words and a causal mask: how many of the 25 weights are not zero?
# 9. $d_{model} = 512$ and 8 heads: how wide is a query of one head, and how many weights have
#    $W^Q$, $W^K$, $W^V$ and $W^O$ together (without biases)?
# 10. A text becomes three times as long: how many times as many scores are computed?

# %%
quiz = {
    1: ...,  # two numbers, in parentheses and with a comma
    2: ...,
    3: ...,
    4: ...,
    5: ...,  # two shapes, in parentheses: ((1, 2), (3, 4))
    6: ...,  # two numbers
    7: ...,
    8: ...,
    9: ...,  # two numbers
    10: ...,
}

# %% cellView="form" jupyter={"source_hidden": true} tags=["solution", "hide-input"]
# @title Solution
y5, weights5 = jax.eval_shape(attention, np.ones((5, 64)), np.ones((7, 64)), np.ones((7, 32)))
variance = 256 * 1 * 1
in_one_order = self_attention(np.stack([dog, bites, man]))[0][0]
in_the_other = self_attention(np.stack([man, bites, dog]))[0][2]
_, causal_weights = attention(*normal(0, 3, 5, 8), causal_mask(5)[0, 0])
solutions = {
    1: ((3 * 4) ** 2, 4**2),
    2: 1 / 0.5**10,
    3: np.array([0.1, 0.3, 0.6]) @ values_of_table[:, 0],
    4: jax.nn.softmax(np.full(4, 7.0))[0],
    5: (weights5.shape, y5.shape),
    6: (math.sqrt(variance), math.sqrt(variance) / math.sqrt(256)),
    7: float(abs(in_one_order - in_the_other).max().round(3)),
    8: (causal_weights > 0).sum(),
    9: (512 // 8, 4 * 512 * 8 * (512 // 8)),
    10: attention_multiplications(3 * 100) / attention_multiplications(100),
}
check_each(quiz, solutions)

# %% [markdown]
# ## What to read next
#
# - `transformer/model/layers.py`: `attention` is equation 1 for one head of one sentence, `attend`
#   for all heads of a batch, and `multi_head_attention` section 3.2.2.
# - `tests/model/test_layers.py` compares them with plain loops and with Flax.
# - `02_transformer` puts the parts together to Figure 1.
