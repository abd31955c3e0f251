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
# # The Transformer
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/)
#
# Figure 1 of ["Attention Is All You Need"](https://arxiv.org/abs/1706.03762), built up on one
# sentence from the functions that train our translators (`transformer/model`), each beside its
# formula. `01_attention` explains attention. Five exercises and a quiz have folded solutions. No
# trained model is needed; all runs in about a minute on a CPU.
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
import math
from dataclasses import replace
from functools import partial
from itertools import islice

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax
from matplotlib.patches import Rectangle

from notebooks.exercises import check, check_each
from transformer.config import Config, DecodeConfig, ModelConfig, OptimizerConfig
from transformer.config.files import load_config
from transformer.data.corpus import read_pairs
from transformer.data.tokenizer import train_tokenizer
from transformer.data.vocabularies import Tokenizers
from transformer.decoding.translator import best_hypotheses, make_translator
from transformer.machine import devices
from transformer.model import encoder_decoder as model
from transformer.model import layers
from transformer.model.batch import BOS, EOS, PAD, UNK, Batch
from transformer.model.params import (
    Attention,
    Norm,
    by_name,
    count_params,
    init_params,
    output_layer,
    unstack,
)
from transformer.training.loss import smoothed_cross_entropy
from transformer.training.optimizer import learning_rate, make_optimizer
from transformer.viewing.plots import draw_weights

devices.configure_devices("any")  # 32-bit numbers; compiled programs are kept
jax.config.update("jax_default_matmul_precision", "highest")  # 32 bits on accelerators too
jax.config.update("jax_disable_most_optimizations", True)  # compile fast: all arrays are small
np.set_printoptions(precision=3, suppress=True, linewidth=100)

# %% [markdown]
# ## 1. Text becomes numbers: words, subwords, characters
#
# A vocabulary of whole words gives short sequences, but it lacks most of the words of a language.
# Characters can spell every word, but the sequences are long, and a single character means little.
# Subwords (section 5.1) are a compromise: frequent words stay whole, rare words are split into
# pieces. The paper's kind are those of byte pair encoding (BPE): it begins with single characters,
# and merges again and again the two neighbours that are most frequent in the training text. From
# "low lower lowest" it merges l + o, then lo + w, and then e is frequent after low, and so on. We
# train all three kinds on the same sentences; `▁` stands for a blank.

# %%
data = load_config("configs/quickstart.py").data
pairs = list(islice(read_pairs(data, "train"), 10_000))
english = [source for source, _ in pairs]
sizes = {"word": 1000, "bpe": 500, "char": 100}
tokenizers = {kind: train_tokenizer(english, kind, size) for kind, size in sizes.items()}

sentence = "Tomorrow the gardener wants to visit the supermarket."
unknown = {}
for kind, one in tokenizers.items():
    [found] = one.encode([sentence])
    unknown[kind] = found.count(UNK)
    print(f"{kind}: {len(found)} tokens of {one.vocab_size:,}, {unknown[kind]} unknown")
    print("   ", *one.pieces(found))
assert unknown["word"] > 0 and unknown["bpe"] == unknown["char"] == 0

misspelt = "Tomorow teh woman sees the dog."
missing = {kind: t.encode([misspelt])[0].count(UNK) for kind, t in tokenizers.items()}
print("unknown in a text with two misspelt words:", missing)
assert missing["word"] >= 2 and missing["bpe"] == missing["char"] == 0
known = set(english[:9000])
seen = sum(text in known for text in english[9000:])
print(f"{seen} of 1,000 further sentences are among the first {len(known):,}")
assert seen < 10

# %% [markdown]
# A misspelt word is unknown to the vocabulary of words; the others spell it. And a vocabulary whose
# entries are whole sentences would know hardly any new one.
#
# Small pieces make long sequences, and the cost of attention grows with the square of the length:

# %%
squares = {}
for kind, one in tokenizers.items():
    lengths = np.array([len(row) for row in one.encode(english[:2000])])
    squares[kind] = np.square(lengths).mean()
    print(f"{kind:5} {lengths.mean():5.1f} tokens per sentence, squared {squares[kind]:7.0f}")
assert squares["word"] < squares["bpe"] < squares["char"]

# %% [markdown]
# ## 2. Numbers become vectors
#
# The id $i$ could be written as a one-hot vector, which is 1 at place $i$ and 0 elsewhere. The
# product of a one-hot vector and a matrix $E$ is row $i$ of $E$. So we take the row, and never
# build the one-hot vector. From here on English and German share one vocabulary of subwords.

# %%
tokenizer = train_tokenizer([text for pair in pairs for text in pair], "bpe", 500)
[ids] = tokenizer.encode([sentence])
V, D = tokenizer.vocab_size, 64
E = np.asarray(jax.random.normal(jax.random.key(0), (V, D)))
one_hot = np.eye(V)[ids]
assert np.array_equal(one_hot @ E, E[ids])
print("one-hot", one_hot.shape, "times E", E.shape, "is", (one_hot @ E).shape, "and rows of E")

# %% [markdown]
# ## 3. Figure 1, step by step
#
# First a map: what the parts are, how they are connected, and the shape of the array on each arrow.
# The letters: B sentences, S source and T target positions, D width of the model, H heads, K width
# of a head (the paper's $d_k = d_v = D / H$, not its keys $K$), F inner width of the feed-forward
# network, V vocabulary. The paper's base model has D = 512, which are H = 8 heads of K = 64, and
# F = 2,048.

# %%
EMBED, ADD, FORWARD = "embedding · √D + positions", "add & norm", "feed-forward\nF inside"
S_D, T_D = "[B, S, D]", "[B, T, D]"
ENCODER = [("source tokens", "[B, S]"), (EMBED, S_D), ("multi-head\nself-attention", S_D)]
ENCODER += [(ADD, S_D), (FORWARD, S_D), (ADD, f"{S_D} memory")]
DECODER = [("target tokens, shifted right", "[B, T]"), (EMBED, T_D)]
DECODER += [("masked multi-head\nself-attention", T_D), (ADD, T_D)]
DECODER += [("multi-head\ncross-attention", T_D), (ADD, T_D), (FORWARD, T_D), (ADD, T_D)]
DECODER += [("linear: table of embeddings", "[B, T, V] logits"), ("softmax", "[B, T, V]")]
HEADS = [("input", "queries: [B, T, D]; keys, values: [B, S, D]")]
HEADS += [("times $W^Q$, $W^K$, $W^V$", "q [B, H, T, K]; k, v [B, H, S, K]")]
HEADS += [("q · k / √K", "[B, H, T, S]"), ("mask, softmax", "[B, H, T, S] weights")]
HEADS += [("times v", "[B, H, T, K]"), ("heads side by side", "[B, T, H K]"), ("times $W^O$", T_D)]

paper = load_config("configs/wmt14_base.py").model
assert (paper.d_model, paper.num_heads, paper.d_model // paper.num_heads) == (512, 8, 64)
assert paper.d_ff == 2048 and paper.encoder_layers == paper.decoder_layers == 6


# %%
def draw_stack(axes, x, title, steps, residuals=()):
    """Boxes from bottom to top, and on each arrow the shape of the array that it carries."""
    arrow = {"arrowstyle": "->"}
    axes.text(x, -0.8, title, ha="center", weight="bold")
    for y, (text, shape) in enumerate(steps):
        box = {"boxstyle": "round", "facecolor": "white"}
        axes.text(x, y, text, ha="center", va="center", bbox=box)
        axes.annotate("", (x, y + 0.75), (x, y + 0.3), arrowprops=arrow)
        axes.text(x + 0.1, y + 0.5, shape, va="center", color="tab:blue")
    for start, end in residuals:  # around a sublayer
        axes.plot([x, x - 1.15, x - 1.15], [start, start, end], "--", color="tab:orange")
        axes.annotate("", (x - 0.45, end), (x - 1.2, end), arrowprops={**arrow, "ec": "tab:orange"})


figure, axes = plt.subplots(figsize=(12, 8.5), layout="constrained")
draw_stack(axes, 1.5, "encoder", ENCODER, [(1.5, 3), (3.5, 5)])
draw_stack(axes, 5, "decoder", DECODER, [(1.5, 3), (3.5, 5), (5.5, 7)])
draw_stack(axes, 8.2, "inside multi-head attention", HEADS)
axes.plot([1.5, 3.2, 3.2], [5.75, 5.75, 4], color="black")  # the memory
axes.annotate("", (4.45, 4), (3.2, 4), arrowprops={"arrowstyle": "->"})
for x, top in ((0.1, 5.35), (3.6, 7.35)):
    axes.add_patch(Rectangle((x, 1.4), 2.9, top - 1.4, fill=False, linestyle=":"))
    axes.text(x + 2.8, top - 0.2, "N layers", ha="right", va="center")
axes.set(xlim=(0, 10.5), ylim=(-1.2, 10))
axes.axis("off")
plt.show()

# %% [markdown]
# Orange lines are residual connections: they carry the input of a sublayer around it, and
# "add & norm" adds it to the output, LayerNorm(x + Sublayer(x)). The right column is what each of
# the three attention boxes does. In self-attention queries and keys come from the same side, so
# T = S; in cross-attention queries come from the decoder, and keys and values from the memory.
# (Training adds **dropout**, section 5.4: it sets numbers of the embeddings and of each sublayer's
# output to zero, chosen at random in each update, and divides the others by 1 minus the rate, so
# that no number is relied upon too much. In this notebook its rate is 0.)
#
# Now with real arrays: a small model with random weights, and one sentence pair.
#
# The decoder reads the target shifted right: `target_in` begins with the token BOS (begin of
# sentence) and lacks the last token. It has to predict `target_out`, which ends with EOS (end of
# sentence): at each position the token that comes next.

# %%
config = ModelConfig(
    source_vocab_size=V,
    target_vocab_size=V,
    encoder_layers=2,
    decoder_layers=2,
    d_model=D,
    num_heads=4,
    d_ff=4 * D,
    dropout=0.0,
    recompute=True,  # layers run in a loop, which compiles faster
)
params = init_params(config, jax.random.key(1))
target = "Morgen will der Gärtner den Supermarkt besuchen."  # a translation of `sentence`
[target_ids] = tokenizer.encode([target])
batch = Batch(
    source=jnp.array([[*ids, EOS]]),
    target_in=jnp.array([[BOS, *target_ids]]),
    target_out=jnp.array([[*target_ids, EOS]]),
)


def show(name, array):
    print(f"{name:44} {array.shape}")


show("source: token ids [B, S]", batch.source)
show("target_in and target_out [B, T]", batch.target_in)

# %% [markdown]
# ### The input of the encoder
#
# Each token is a row of the embedding table, times $\sqrt{D}$, plus a vector for its position
# (sections 3.4 and 3.5): $x_p = \sqrt{D}\,E_{t_p} + \mathrm{PE}(p)$, in `layers.embed`. The padding
# mask is true at tokens and false at padding; one sentence alone needs no padding.

# %%
positions = jnp.arange(batch.source.shape[1])[None]
x = model.embed_source(config, params.embedding, batch.source, positions)
table = np.asarray(params.embedding.source)
by_formula = math.sqrt(D) * table[batch.source] + layers.sinusoids(positions, D)
np.testing.assert_allclose(x, by_formula, rtol=1e-5)
show("embeddings · sqrt(D) + positions [B, S, D]", x)

mask = layers.padding_mask(batch.source)
assert mask.all()
show("padding mask [B, 1, 1, S]", mask)

# %% [markdown]
# Does the sum mix up tokens and positions? The vector of a position is about 30 % shorter than the
# scaled row of a token. If a space has few dimensions, the sum is often closer to the row of
# another token; in 64 dimensions random vectors are nearly orthogonal, and every token can be told
# from its sum with any of 40 positions:


# %%
def recognised(width, count=500):
    """The share of random rows that are the nearest to their own sum with each of 40 positions."""
    rows = np.random.default_rng(width).normal(size=(count, width))  # sqrt(D) times N(0, 1/D)
    waves = np.asarray(layers.sinusoids(jnp.arange(40), width))
    sums = (rows[:, None] + waves).reshape(-1, width)
    nearest = (sums @ rows.T - (rows**2).sum(1) / 2).argmax(1)
    return (nearest.reshape(count, 40) == np.arange(count)[:, None]).mean()


share_by_width = {width: recognised(width) for width in (2, 4, 8, 16, 32, 64)}
print("tokens recognised:", *(f"{share:.0%} of width {w}" for w, share in share_by_width.items()))
assert sorted(share_by_width.values()) == [*share_by_width.values()]
assert share_by_width[2] < 0.05 and share_by_width[64] > 0.99
length_of_position = np.linalg.norm(layers.sinusoids(jnp.arange(40), D), axis=-1)
length_of_token = np.linalg.norm(math.sqrt(D) * table, axis=-1).mean()
np.testing.assert_allclose(length_of_position, math.sqrt(D / 2), rtol=1e-4)  # 1 for each pair
print(f"length of a position {length_of_position[0]:.2f}, of a token {length_of_token:.2f} (mean)")
assert length_of_position[0] < 0.8 * length_of_token

# %% [markdown]
# ### Self-attention
#
# Equation 1 in every head, then the heads side by side, times $W^O$ (section 3.2.2,
# `layers.multi_head_attention`):
#
# $$\mathrm{head}_h = \mathrm{softmax}\!\left(\frac{x W^Q_h (x W^K_h)^\top}{\sqrt{d_k}}\right)
# x W^V_h, \qquad \mathrm{MultiHead}(x) = [\mathrm{head}_1, \ldots, \mathrm{head}_H]\, W^O$$

# %%
first, second = unstack(params.encoder)
kv = layers.key_value(first.self_attention, x)
show("keys of every head, transposed [B, H, K, S]", kv.k)
show("values of every head [B, H, S, K]", kv.v)
attended, weights = layers.multi_head_attention(first.self_attention, x, kv, mask)
show("attention weights [B, H, S, S]", weights)
show("self-attention [B, S, D]", attended)

w = jax.tree.map(np.asarray, first.self_attention)
x0 = np.asarray(x[0])
own = [layers.attention(*(x0 @ m[:, h] for m in (w.w_q, w.w_k, w.w_v)))[0] for h in range(4)]
by_formula = np.concatenate(own, axis=1) @ w.w_o.reshape(D, D)
np.testing.assert_allclose(attended[0], by_formula, atol=1e-5)
np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-5)

# %% [markdown]
# ### Layer normalisation
#
# Each vector is shifted and scaled to mean 0 and variance 1, then multiplied by a learned gain
# $\gamma$, number by number ($\odot$), and a learned bias $\beta$ is added (`layers.layer_norm`):
#
# $$\mathrm{LayerNorm}(x) = \gamma \odot \frac{x - \mu}{\sqrt{\sigma^2 + \epsilon}} + \beta, \qquad
# \mu = \frac{1}{D} \sum_{i=1}^{D} x_i, \qquad
# \sigma^2 = \frac{1}{D} \sum_{i=1}^{D} (x_i - \mu)^2$$
#
# By hand, for $x = (-3, 3, 3, 5)$ with $\gamma = (3, 3, 3, 2)$ and $\beta = (0, 0, 1, 1)$:
#
# - the mean: $\mu = (-3 + 3 + 3 + 5) / 4 = 2$, so $x - \mu = (-5, 1, 1, 3)$;
# - the variance: $\sigma^2 = (25 + 1 + 1 + 9) / 4 = 9$, so $\sigma = 3$ ($\epsilon = 10^{-6}$ only
#   guards against a division by zero);
# - normalised: $(-5/3,\ 1/3,\ 1/3,\ 1)$;
# - with gain and bias: $(-5, 1, 2, 3)$.

# %%
norm = Norm(scale=jnp.array([3.0, 3, 3, 2]), bias=jnp.array([0.0, 0, 1, 1]))
found = layers.layer_norm(config, norm, jnp.array([[[-3.0, 3, 3, 5]]]))
np.testing.assert_allclose(found, [[[-5, 1, 2, 3]]], rtol=1e-5)
print("layer_norm:", found[0, 0])

added = layers.layer_norm(config, first.self_attention_norm, x + attended)
np.testing.assert_allclose(added.mean(-1), 0, atol=1e-5)
np.testing.assert_allclose(added.var(-1), 1, rtol=1e-4)
show("add & norm [B, S, D]", added)

# %% [markdown]
# Mean and variance are taken over the D numbers of one token: other tokens, and other sentences of
# the batch, have no influence. In batch normalisation they have: it takes them over the batch.
#
# The gradient is normalised as well (Xu et al., 2019, https://arxiv.org/abs/1911.07013): on its way
# back through the norm it gets the mean 0, it becomes orthogonal to the normalised vector, and it
# is divided by $\sigma$. A vector that is ten times as long receives a tenth of the gradient.

# %%
plain_norm = Norm(jnp.ones(D), jnp.zeros(D))
five = jax.random.normal(jax.random.key(3), (5, D))
changed = five.at[4].set(0.5)


def layer_normed(x):
    return layers.layer_norm(config, plain_norm, x[None])[0]


def batch_normed(x):
    return (x - x.mean(0)) / x.std(0)


np.testing.assert_allclose(layer_normed(changed)[:4], layer_normed(five)[:4], atol=1e-6)
assert not np.allclose(batch_normed(changed)[:4], batch_normed(five)[:4], atol=0.1)

wanted = jax.random.normal(jax.random.key(4), (5, D))
normalised, backwards = jax.vjp(layer_normed, five)
_, backwards_of_long = jax.vjp(layer_normed, 10 * five)
[gradient], [gradient_of_long] = backwards(wanted), backwards_of_long(wanted)
np.testing.assert_allclose(gradient.mean(-1), 0, atol=1e-5)
np.testing.assert_allclose((gradient * normalised).sum(-1), 0, atol=1e-4)
np.testing.assert_allclose(gradient_of_long, gradient / 10, atol=1e-5)

# %% [markdown]
# ### Exercise 1: layer normalisation in numpy
#
# Write the formula above for an array of any number of vectors, `x` of shape [T, D]. You will see
# why `axis` and `keepdims` matter: each row has a mean of its own.


# %% tags=["exercise"]
def my_layer_norm(x, gain, bias, epsilon=1e-6):
    return ...


rows = np.random.default_rng(0).normal(2, 3, (5, D))
gain, bias = np.linspace(0.5, 1.5, D), np.linspace(-1, 1, D)
normed_rows = layers.layer_norm(config, Norm(gain, bias), jnp.asarray(rows)[None])[0]
tiny = rows / 1000  # here epsilon counts
normed_tiny = layers.layer_norm(config, Norm(gain, bias), jnp.asarray(tiny)[None])[0]
check(my_layer_norm(rows, gain, bias), normed_rows)
check(my_layer_norm(tiny, gain, bias), normed_tiny)


# %% cellView="form" jupyter={"source_hidden": true} tags=["solution", "hide-input"]
# @title Solution
def my_layer_norm(x, gain, bias, epsilon=1e-6):
    mean = x.mean(axis=-1, keepdims=True)
    variance = np.square(x - mean).mean(axis=-1, keepdims=True)
    return gain * (x - mean) / np.sqrt(variance + epsilon) + bias


check(my_layer_norm(rows, gain, bias), normed_rows)
check(my_layer_norm(tiny, gain, bias), normed_tiny)

# %% [markdown]
# ### The feed-forward network
#
# Equation 2 (`layers.feed_forward`): two linear transformations, and between them all negative
# numbers become 0. It is applied to each position alone, with the same weights. Without the maximum
# the whole would be linear, one matrix; the maximum makes it non-linear.
#
# $$\mathrm{FFN}(x) = \max(0,\ x W_1 + b_1)\, W_2 + b_2$$

# %%
inner = layers.feed_forward(config, first.feed_forward, added)
w = jax.tree.map(np.asarray, first.feed_forward)
by_formula = np.maximum(0, added @ w.w_1 + w.b_1) @ w.w_2 + w.b_2
np.testing.assert_allclose(inner, by_formula, atol=1e-5)
show("feed-forward [B, S, D]", inner)
a, b = np.asarray(normalised)[:2]


def with_maximum(x):
    return np.maximum(0, x @ w.w_1) @ w.w_2


def without_maximum(x):
    return x @ w.w_1 @ w.w_2


assert not np.allclose(with_maximum(a + b), with_maximum(a) + with_maximum(b), atol=0.1)
np.testing.assert_allclose(
    without_maximum(a + b), without_maximum(a) + without_maximum(b), atol=1e-4
)
layer_1 = layers.layer_norm(config, first.feed_forward_norm, added + inner)
show("add & norm: the first encoder layer", layer_1)

# %% [markdown]
# ### The second layer, and the decoder
#
# The second layer is the same again with weights of its own. A layer of the decoder has two more
# things: a causal mask, which hides later positions, and cross-attention, whose queries come from
# the target and whose keys and values come from the encoder: with the decoder's vectors $y$ and the
# memory $m$, the encoder's output,
#
# $$Q = y\, W^Q, \qquad K = m\, W^K, \qquad V = m\, W^V.$$
#
# `run_layer` is a layer of either kind. `context_of` gives it the mask, and `layer_memory` computes
# keys and values of the memory, once for all target tokens:

# %%
context = model.context_of(mask)  # positions, and which keys each query may attend to
whole, _, _ = model.run_layer(config, first, x, context)
np.testing.assert_allclose(whole, layer_1, atol=1e-5)  # all of the above at once
layer_2, _, _ = model.run_layer(config, second, layer_1, context)
memory = model.Memory(layer_2, mask, None)
show("memory: the output of the encoder [B, S, D]", memory.states)

context = model.context_of(layers.causal_mask(batch.target_in.shape[1]))
show("causal mask [1, 1, T, T]", context.mask)
y = model.embed_target(config, params.embedding, batch.target_in, context.positions)
show("target embeddings [B, T, D]", y)
for layer in unstack(params.decoder):
    source_side = model.layer_memory(layer, memory)
    y, _, weights = model.run_layer(config, layer, y, context, memory=source_side)
show("masked self-attention weights [B, H, T, T]", weights.own)
show("cross-attention weights [B, H, T, S]", weights.cross)
show("the decoder's states [B, T, D]", y)
assert (np.triu(weights.own, 1) == 0).all()  # no weight on later positions

# %% [markdown]
# ### Exercise 2: the causal mask
#
# Write the mask of section 3.2.3 for `length` positions: an array of shape [T, T], true (or 1)
# where the query (row) may attend to the key (column), and false (or 0) elsewhere. You will see
# which triangle it is, and that the diagonal belongs to it: a position attends to itself.


# %% tags=["exercise"]
def my_causal_mask(length):
    return ...


check(my_causal_mask(5), layers.causal_mask(5)[0, 0])


# %% cellView="form" jupyter={"source_hidden": true} tags=["solution", "hide-input"]
# @title Solution
def my_causal_mask(length):
    position = np.arange(length)
    return position[None, :] <= position[:, None]  # the key is not after the query


check(my_causal_mask(5), layers.causal_mask(5)[0, 0])

# %% [markdown]
# ### From states to probabilities
#
# The logits are products of each state $h$ with every row of the table of embeddings (section 3.4,
# `model.logits`), $z = h E^\top$, and softmax turns them into probabilities,
# $p_v = e^{z_v} / \sum_u e^{z_u}$. That was the whole model: `model.predict`, the function that
# training calls, gives the same logits.

# %%
logits = model.logits(output_layer(params), y)
np.testing.assert_allclose(logits, np.asarray(y) @ table.T, atol=1e-4)
show("logits [B, T, V]", logits)
probabilities = jax.nn.softmax(logits)
np.testing.assert_allclose(probabilities.sum(-1), 1, rtol=1e-5)
show("probabilities of the next token [B, T, V]", probabilities)

predict = jax.jit(partial(model.predict, config))
np.testing.assert_allclose(predict(params, batch), logits, atol=1e-4)
print("model.predict: the same", logits.shape, "logits")

# %% [markdown]
# ## 4. The residual stream
#
# A sublayer does not replace x, it adds to it. So there is a direct path from the embeddings to the
# top, and gradients flow back along it: the gradient of $x + f(x)$ is the gradient that arrives,
# unchanged, plus what comes through $f$. How much is left of the embeddings after each layer, with
# and without the additions? Here is an encoder of 24 layers with random weights, normalised before
# each sublayer (pre-norm; section 6 says more about that):
#
# $$x' = x + \mathrm{Attention}(\mathrm{LayerNorm}(x)), \qquad
# x'' = x' + \mathrm{FFN}(\mathrm{LayerNorm}(x'))$$
#
# The plot shows the cosine of each position's vector and its embedding, averaged over the positions
# and over eight random initialisations.

# %%
deep = replace(config, encoder_layers=24, decoder_layers=0, norm="pre")
deep_params = init_params(deep, jax.random.key(2))
start = model.embed_source(deep, deep_params.embedding, batch.source, positions)


def without_residual(layer, x):
    """The same sublayers, but each replaces x."""
    x = layers.layer_norm(deep, layer.self_attention_norm, x)
    kv = layers.key_value(layer.self_attention, x)
    x, _ = layers.multi_head_attention(layer.self_attention, x, kv, mask)
    x = layers.layer_norm(deep, layer.feed_forward_norm, x)
    return layers.feed_forward(deep, layer.feed_forward, x)


def cosine(a, b):
    """Of the vectors [..., B, S, D], in the mean over sentences and positions."""
    lengths = jnp.linalg.norm(a, axis=-1) * jnp.linalg.norm(b, axis=-1)
    return ((a * b).sum(-1) / lengths).mean((-1, -2))


# %%
context = model.context_of(mask)


def adding(layer, x):
    return model.run_layer(deep, layer, x, context)[0]


def after_each(one_layer, weights, x):
    """[24, B, S, D]: what the layers make of x, one after the other."""
    return jax.lax.scan(lambda x, layer: (one_layer(layer, x),) * 2, x, weights.encoder.layers)[1]


@jax.jit
def cosines_by_layer(seed):
    """[2, 24]: with and without residual connections, after each layer."""
    weights = init_params(deep, jax.random.key(seed))
    embedded = model.embed_source(deep, weights.embedding, batch.source, positions)
    both = (after_each(one, weights, embedded) for one in (adding, without_residual))
    return jnp.stack([cosine(vectors, embedded) for vectors in both])


means = np.mean([cosines_by_layer(seed) for seed in range(8)], axis=0)
kept = dict(zip(("with residual connections", "without"), np.insert(means, 0, 1, axis=1)))
for (name, values), marker in zip(kept.items(), "os"):
    plt.plot(values, f"{marker}-", label=name)
    print(f"{name:26} after layer 1: {values[1]:.2f}, after layer 24: {values[-1]:.2f}")
plt.axhline(0, color="grey", linewidth=0.5)
plt.xlabel("layers")
plt.ylabel("cosine with the embedding (1: same direction)")
plt.title("What is left of a token's embedding")
plt.legend()
plt.show()
assert min(kept["with residual connections"]) > 0.1
assert max(np.abs(kept["without"][1:])) < 0.1

layer = unstack(deep_params.encoder)[0]
normed = layers.layer_norm(deep, layer.self_attention_norm, start)
kv = layers.key_value(layer.self_attention, normed)
half_way = start + layers.multi_head_attention(layer.self_attention, normed, kv, mask)[0]
by_steps = half_way + layers.feed_forward(
    deep, layer.feed_forward, layers.layer_norm(deep, layer.feed_forward_norm, half_way)
)
np.testing.assert_allclose(model.run_layer(deep, layer, start, context)[0], by_steps, atol=1e-5)

# %% [markdown]
# And the gradients? For one sublayer, and for all 24 layers:


# %%
def sublayer(x):
    return layers.feed_forward(deep, layer.feed_forward, x)


def arriving(function):
    """The gradient with respect to `start`, where `ones` arrives at the output."""
    ones = jnp.ones_like(start)
    return jax.jit(lambda x: jax.vjp(function, x)[1](ones)[0])(start)


np.testing.assert_allclose(arriving(lambda x: x + sublayer(x)), 1 + arriving(sublayer), atol=1e-4)


def through_all(one_layer):
    return lambda x: after_each(one_layer, deep_params, x)[-1]


sizes = {
    "with residual connections": float(jnp.linalg.norm(arriving(through_all(adding)))),
    "without": float(jnp.linalg.norm(arriving(through_all(without_residual)))),
}
print("norm of the gradient of the embeddings:", {n: f"{size:.2g}" for n, size in sizes.items()})
assert sizes["with residual connections"] > 10 * sizes["without"]

# %% [markdown]
# ### Only attention moves information between positions
#
# Each position has a residual stream of its own. Layer normalisation and the feed-forward network
# read and write one stream at a time; only attention reads the streams of other positions. We
# change the vector at position 3, and look at which outputs change:

# %%
layer = unstack(deep_params.encoder)[0]
other = np.array(start)
other[0, 3] += np.random.default_rng(0).normal(size=D)
sublayers = {
    "layer normalisation": lambda x: layers.layer_norm(deep, layer.self_attention_norm, x),
    "feed-forward": lambda x: layers.feed_forward(deep, layer.feed_forward, x),
    "attention": lambda x: layers.multi_head_attention(
        layer.self_attention, x, layers.key_value(layer.self_attention, x), mask
    )[0],
}
changed = {}
for name, sublayer in sublayers.items():
    difference = np.abs(sublayer(jnp.asarray(other)) - sublayer(start))
    changed[name] = np.flatnonzero(difference[0].max(-1) > 1e-6).tolist()
    print(f"{name:20} changes at {changed[name]}")
assert changed["layer normalisation"] == changed["feed-forward"] == [3]
assert changed["attention"] == list(range(start.shape[1]))

# %% [markdown]
# Section 5 ends with a head that moves one known piece of information, made by hand.
#
# ## 5. Positions: sinusoids
#
# Attention does not see order (`01_attention`), so section 3.5 adds a vector for each position:
# pairs of sine and cosine, from fast waves to slow ones (`layers.sinusoids`). They are like the
# digits of a binary number, of which the last changes at every step, and the others more slowly.
#
# $$\mathrm{PE}(p, 2i) = \sin\!\left(\frac{p}{10000^{2i/D}}\right), \qquad
# \mathrm{PE}(p, 2i + 1) = \cos\!\left(\frac{p}{10000^{2i/D}}\right)$$

# %%
width = 64
encoding = np.asarray(layers.sinusoids(jnp.arange(100), width))
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 3.5), layout="constrained")
image = left.imshow(encoding.T, aspect="auto", cmap="RdBu", vmin=-1, vmax=1)
left.set(xlabel="position (tokens)", ylabel="dimension", title="the encoding of 100 positions")
figure.colorbar(image, ax=left, label="value")
colours, styles = ("tab:blue", "tab:orange", "black", "tab:grey"), ("-", "--", "-.", ":")
for dimension, colour, style in zip((0, 10, 20, 30), colours, styles):
    right.plot(encoding[:, dimension], style, color=colour, label=f"dimension {dimension}")
right.set(xlabel="position (tokens)", ylabel="value", title="four of the waves")
right.legend(loc="upper left", bbox_to_anchor=(1, 1))
plt.show()
changes = (np.diff(np.sign(encoding[1:, ::2]), axis=0) != 0).sum(0)  # sin 0 has no sign
print("changes of sign in 99 positions, for dimensions 0, 10, 20, 30:", changes[[0, 5, 10, 15]])
assert (np.diff(changes) <= 0).all() and changes[0] > 30 and changes[-1] == 0

# %% [markdown]
# ### Exercise 3: sinusoids in numpy
#
# Write the two formulas for one position: an array of `width` numbers, sines at even places and
# cosines at odd ones. You will see that each pair of numbers has a frequency of its own.


# %% tags=["exercise"]
def my_sinusoids(position, width):
    return ...


check(my_sinusoids(7, 16), layers.sinusoids(jnp.array(7), 16))


# %% cellView="form" jupyter={"source_hidden": true} tags=["solution", "hide-input"]
# @title Solution
def my_sinusoids(position, width):
    angles = position / 10000 ** (np.arange(0, width, 2) / width)
    encoding = np.zeros(width)
    encoding[0::2], encoding[1::2] = np.sin(angles), np.cos(angles)
    return encoding


check(my_sinusoids(7, 16), layers.sinusoids(jnp.array(7), 16))

# %% [markdown]
# ### Why waves?
#
# "For any fixed offset k, PE(pos + k) can be represented as a linear function of PE(pos)", the
# paper says. Each pair of sine and cosine is rotated by a fixed angle, with
# $\omega_i = 10000^{-2i/D}$:
#
# $$\begin{pmatrix} \sin (p + k)\,\omega_i \\ \cos (p + k)\,\omega_i \end{pmatrix} =
# \begin{pmatrix} \cos k \omega_i & \sin k \omega_i \\ -\sin k \omega_i & \cos k \omega_i
# \end{pmatrix} \begin{pmatrix} \sin p\,\omega_i \\ \cos p\,\omega_i \end{pmatrix}$$
#
# So the linear function is a matrix of such rotations, and it is the same for all positions:


# %%
def shift(k):
    """The matrix M with PE(p + k) = PE(p) M, for every p."""
    angles = k * 10000 ** (-np.arange(0, width, 2) / width)
    matrix = np.zeros((width, width))
    for pair, angle in enumerate(angles):
        rows = slice(2 * pair, 2 * pair + 2)
        c, s = math.cos(angle), math.sin(angle)
        matrix[rows, rows] = [[c, -s], [s, c]]  # transposed, since PE is a row here
    return matrix


for k in (1, 5, 30):
    error = np.abs(encoding[:-k] @ shift(k) - encoding[k:]).max()
    assert error < 1e-4
    print(f"k = {k:2}: the largest error is {error:.1e}, at {len(encoding) - k} positions")

# %% [markdown]
# So a head can learn to attend to the token three positions back, at every position: if
# $W^Q (W^K)^\top$ contains the matrix of $k = -3$, the query of $p$ is most like the key of
# $p - 3$. The product of two encodings depends on their distance alone, since
# $\sin a \sin b + \cos a \cos b = \cos(a - b)$, and is largest at distance 0:

# %%
products = encoding @ encoding.T / (width / 2)
plt.plot(np.arange(-50, 50), products[50], label="from position 50")
plt.plot(np.arange(-20, 80), products[20], "--", label="from position 20")
plt.xlabel("distance (tokens)")
plt.ylabel("product (1 at the same position)")
plt.title("Product of two encodings")
plt.legend()
plt.show()
np.testing.assert_allclose(products[50, 30:], products[20, :70], atol=1e-4)
assert (products.argmax(1) == np.arange(100)).all()
three_back = (encoding @ shift(-3) @ encoding.T).argmax(1)
assert (three_back[3:] == np.arange(97)).all()

# %% [markdown]
# ### Learned and relative positions
#
# Positions can also be a learned table with one row per position (the paper's table 3, row E:
# nearly the same scores), but the table ends: longer texts have positions without a row. Or each
# head learns a number for every distance, which is added to the scores
# (`model.positions = "relative"`):
#
# $$\mathrm{softmax}\!\left(\frac{Q K^\top}{\sqrt{d_k}} + B\right) V, \qquad
# B_{ts} = b_{\,s - t}$$
#
# $B$ has the same number along each diagonal, and nothing is added to the embeddings. Below is a
# head that attends to the token before, made by such numbers alone: its queries and keys are zero.

# %%
furthest = 4
numbers = np.zeros((1, 2 * furthest + 1), np.float32)
numbers[0, furthest - 1] = 10  # at distance -1
distances = model.offsets_between(jnp.arange(8)[None], jnp.arange(8)[None])
bias = layers.offset_bias(numbers, distances)
zeros = np.zeros((1, 1, 8, 4), np.float32)
_, weights = layers.attend(zeros, zeros.swapaxes(2, 3), zeros, layers.causal_mask(8), bias)

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
image = left.imshow(bias[0, 0], cmap="Blues")
left.set(title="B, for every pair", xlabel="key (position)", ylabel="query (position)")
left.set_xticks(range(8))
figure.colorbar(image, ax=left, label="added to the score")
draw_weights(right, weights[0, 0], range(8), range(8), "attention weights, 0 (white) to 1")
right.set(xlabel="key (position)", ylabel="query (position)")
plt.show()
np.testing.assert_allclose(np.diagonal(weights[0, 0], -1), 1, atol=1e-3)
for offset in range(-7, 8):
    assert np.unique(np.diagonal(bias[0, 0], offset)).size == 1

# %% [markdown]
# (The first token has no token before it. The causal mask leaves it only itself.)
#
# A fragment from the middle of a text therefore gets the same scores wherever it stands. With
# sinusoids that are added to the embeddings, it does not. A third way, rotary positions, rotates
# queries and keys by an angle that grows with the position (Su et al., 2021; `layers.rotated`).
# With $R_p$ for the rotations by $p\,\omega_i$ (section 5), $(R_p\,q) \cdot (R_s\,k) = q \cdot
# (R_{s-p}\,k)$: positions change a score only by their distance. The values are left as they are.
# The translator of `configs/quickstart.py`, which the later notebooks use, has rotary positions,
# since it needs fewer updates with them ([measurements](../docs/experiments.md#positions)).

# %%
learned = init_params(replace(config, positions="learned", max_positions=32), jax.random.key(0))
positions_table = learned.embedding.source_positions
assert positions_table.shape == (32, D)  # positions from 32 on have no row

fragment = jnp.arange(6)
start_of_text, middle = (
    layers.offset_bias(numbers, model.offsets_between(at[None], at[None]))
    for at in (fragment, fragment + 3)
)
np.testing.assert_array_equal(start_of_text, middle)
words = jax.random.normal(jax.random.key(6), (6, D))
w_q, w_k = jax.random.normal(jax.random.key(7), (2, D, 8)) / math.sqrt(D)
at_start, at_middle = (
    (words + layers.sinusoids(at, D)) @ w_q @ w_k.T @ (words + layers.sinusoids(at, D)).T
    for at in (fragment, fragment + 3)
)
assert not np.allclose(at_start, at_middle, atol=0.1)

query, key = jax.random.normal(jax.random.key(5), (2, 1, 1, 1, 8))


def rotary_score(at_query, at_key):
    rotated = (layers.rotated(x, jnp.array([[p]])) for x, p in ((query, at_query), (key, at_key)))
    return float(jnp.vdot(*rotated))


print("scores at distance 2:", [round(rotary_score(p + 2, p), 4) for p in (0, 3, 50)])
print("scores at distance 5:", [round(rotary_score(p + 5, p), 4) for p in (0, 3, 50)])
np.testing.assert_allclose(rotary_score(52, 50), rotary_score(2, 0), rtol=1e-3)
assert abs(rotary_score(5, 0) - rotary_score(2, 0)) > 0.1

# %% [markdown]
# ### A head that copies the token before
#
# What is such a head good for? Let the first half of the residual stream hold the token's own
# vector, and let the second half be free (zero). The head attends to the token before by its
# position, reads the first half there ($W^V$), and writes it into the second half here ($W^O$):
#
# $$x_t \leftarrow x_t + \sum_s a_{ts}\, x_s W^V W^O, \qquad
# W^V = \begin{pmatrix} I \\ 0 \end{pmatrix}, \quad W^O = \begin{pmatrix} 0 & I \end{pmatrix}$$

# %%
half = D // 2
names = E[:, :half] / np.linalg.norm(E[:, :half], axis=1, keepdims=True)  # of length 1
stream = jnp.concatenate([names[ids], np.zeros((len(ids), half))], 1)[None]
nothing, identity = np.zeros((half, half)), np.eye(half)
copying = Attention(
    w_q=np.zeros((D, 1, half)),
    w_k=np.zeros((D, 1, half)),
    w_v=np.concatenate([identity, nothing], 0)[:, None],
    w_o=np.concatenate([nothing, identity], 1)[None],
    offset_bias=numbers,
)
places = jnp.arange(len(ids))[None]
distances = model.offsets_between(places, places)
kv, causal = layers.key_value(copying, stream), layers.causal_mask(len(ids))
written, _ = layers.multi_head_attention(copying, stream, kv, causal, distances)
stream = stream + written  # the residual connection


def read(part):
    """The token whose vector is most like this part of the stream, at each position."""
    return (np.asarray(part) @ names.T).argmax(-1).tolist()


own, before = read(stream[0, :, :half]), read(stream[0, :, half:])
for name, found in {"first half": own, "second half": before}.items():
    print(f"{name:11}", *tokenizer.pieces(found[:12]))
assert own == ids and before == [ids[0], *ids[:-1]]

# A head that looks at the token after would read the answer that it has to predict. With the causal
# mask it cannot.
ahead = replace(copying, offset_bias=numbers[:, ::-1])
peeped, _ = layers.multi_head_attention(ahead, stream, kv, np.ones_like(causal), distances)
assert read(peeped[0, :-1, half:]) == ids[1:]
hidden, _ = layers.multi_head_attention(ahead, stream, kv, causal, distances)
assert read(hidden[0, :-1, half:]) != ids[1:]

# %% [markdown]
# The stream now carries two tokens: its own, unchanged, and the one before, which later layers can
# use. (A head of the next layer that looks for a token *preceded by* the present one can predict a
# repetition. Elhage et al., 2021, https://transformer-circuits.pub/2021/framework/, found such
# pairs of heads in trained models, and call the second an **induction head**.)
#
# ## 6. Post-norm and pre-norm
#
# The paper normalises after each addition; most models since then normalise before the sublayer,
# and once more at the end (`layers.residual`):
#
# $$\text{post-norm: } \mathrm{LayerNorm}(x + \mathrm{Sublayer}(x)), \qquad
# \text{pre-norm: } x + \mathrm{Sublayer}(\mathrm{LayerNorm}(x))$$
#
# At the start of training the gradients of a deep stack differ. With post-norm they are largest at
# the top and fade towards the bottom, since each normalisation on their way back shrinks them. With
# pre-norm it is the other way round. Xiong et al. (2020, https://arxiv.org/abs/2002.04745) show
# that post-norm has large gradients near the output, which a high learning rate makes unstable
# without a warm-up, while pre-norm has smaller ones there and can do without. The cell measures it
# with the encoder of section 4, which has to name the tokens of 32 sentences, and averages over
# three random initialisations, since single ones differ.


# %%
long_enough = [row[:12] for row in tokenizer.encode(english[:100]) if len(row) >= 12]
tokens = jnp.array(long_enough[:32])


def gradients_by_layer(norm):
    """The norm of the loss's gradient with respect to W_1 of each layer."""
    config_of_norm = replace(deep, norm=norm)

    def loss(weights):
        scores = model.predict(config_of_norm, weights, Batch(tokens, None, tokens))
        return -jnp.take_along_axis(jax.nn.log_softmax(scores), tokens[..., None], -1).mean()

    gradient = jax.jit(jax.grad(loss))
    starts = [init_params(config_of_norm, jax.random.key(seed)) for seed in (1, 2, 3)]
    found = jnp.stack([gradient(start).encoder.layers.feed_forward.w_1 for start in starts])
    return jnp.sqrt((found**2).sum((2, 3))).mean(0)


# %%
sizes = {norm: gradients_by_layer(norm) for norm in ("post", "pre")}
for (norm, size), marker in zip(sizes.items(), "os"):
    plt.semilogy(range(1, 25), size, f"{marker}-", label=f"{norm}-norm")
    print(f"{norm}-norm: top layer {size[-1]:.1e}, bottom layer {size[0]:.1e}")
plt.xlabel("encoder layer (24 is the top)")
plt.ylabel("norm of the gradient of $W_1$")
plt.yticks([0.2, 0.3, 0.4, 0.5, 0.6], ["0.2", "0.3", "0.4", "0.5", "0.6"])
plt.minorticks_off()
plt.title("Gradients at the start of training")
plt.legend()
plt.show()
assert sizes["post"][-1] > 1.5 * sizes["post"][0] and sizes["pre"][0] > 1.5 * sizes["pre"][-1]

# %% [markdown]
# ## 7. Tying: one table for three things
#
# A logit says how similar a state is to the vector of a token. The logits are the products of the
# state with every row of a table ("unembedding"). Section 3.4 uses one table for source, target and
# output. The number of parameters with and without that, in the paper's base model with 37,000
# tokens:


# %%
def counted(config):
    """Number of parameters, from shapes; no weights are made."""
    return count_params(jax.eval_shape(partial(init_params, config), jax.random.key(0)))


base = replace(paper, source_vocab_size=37000, target_vocab_size=37000)
totals = {}
for tying, meaning in {
    "all": "one table for all three",
    "target": "target and output share",
    "none": "three tables",
}.items():
    totals[tying] = counted(replace(base, tying=tying))
    print(f"{meaning:26} {totals[tying]:>12,} parameters")
assert totals["none"] - totals["all"] == 2 * 37000 * base.d_model

state = output_layer(params).table[ids[0]] * math.sqrt(D)  # a state like the first token's vector
best = int(model.logits(output_layer(params), state[None, None])[0, 0].argmax())
print("the state", *tokenizer.pieces(ids[:1]), "is read as", *tokenizer.pieces([best]))
assert best == ids[0]

# %% [markdown]
# ## 8. Where the parameters are
#
# The same functions make the paper's two models, and, without one of the stacks, BERT-large (an
# encoder alone) and GPT-3 (a decoder alone). Only shapes are counted: GPT-3 would not fit here. The
# column $d_k$ is the width of a head.

# %%
configs = {name: load_config(f"configs/{name}.py") for name in ("bert_large", "gpt3", "wmt14_big")}
big = replace(configs["wmt14_big"].model, source_vocab_size=37000, target_vocab_size=37000)
bert, gpt3 = configs["bert_large"].model, configs["gpt3"].model
models = {
    "base": (base, "65 million"),
    "big": (big, "213 million"),
    "BERT-large": (bert, "340 million"),
    "GPT-3": (gpt3, "175 billion"),
}
columns = ("embedding", "self_attention", "cross_attention", "feed_forward")
print(f"{'':10}{'parameters':>16}  {'its paper':12}{'d_k':>5}", *(f"{c:>15}" for c in columns))
shares = {}
for name, (shape, printed) in models.items():
    weights = by_name(jax.eval_shape(partial(init_params, shape), jax.random.key(0)))
    total = sum(leaf.size for leaf in weights.values())
    shares[name] = [sum(w.size for n, w in weights.items() if c in n) / total for c in columns]
    print(f"{name:10}{total:>16,}  {printed:12}{shape.d_model // shape.num_heads:>5}", end="")
    print("".join(f"{share:>16.1%}" for share in shares[name]))
assert all(of_model[3] == max(of_model) for of_model in shares.values())
assert shares["BERT-large"][3] > 0.5 and shares["GPT-3"][3] > 0.5

# %%
figure, axes = plt.subplots(figsize=(9, 2.8), layout="constrained")
before = np.zeros(len(models))
styles = (("tab:blue", ""), ("tab:orange", "//"), ("black", ""), ("darkgrey", "xx"))
for column, (colour, hatch), part in zip(columns, styles, np.array(list(shares.values())).T):
    name = column.replace("_", "-")
    axes.barh(list(models), part, left=before, label=name, color=colour, hatch=hatch, ec="white")
    before += part
axes.invert_yaxis()
axes.set(xlim=(0, 1), xlabel="share of the parameters (1: all)", title="Where the parameters are")
axes.legend(ncols=4, loc="upper center", bbox_to_anchor=(0.5, -0.3))
plt.show()

# %% [markdown]
# Feed-forward networks have the largest share in each of the four, and more than half in the last
# two; attention, which the paper is named after, has less. (65 and 213 million do not follow from
# the paper's own sizes; `python -m benchmarks.parameter_table` says how far off they are.)
#
# ### BERT-large: 333.6 and 340 million
#
# Our encoder lacks some small parts of BERT, and it has the vocabulary of 30,000 tokens that the
# paper mentions; that of the published model has 30,522. With all these parts the count is exactly
# that of the published weights, 336,226,108. The paper rounds it to tens of millions.

# %%
assert (bert.encoder_layers, bert.d_model, bert.num_heads, bert.d_ff) == (24, 1024, 16, 4096)
assert bert.source_vocab_size == 30_000
wide = bert.d_model
left_out = {
    "segment embeddings": 2 * wide,
    "norm of the embeddings": 2 * wide,
    "pooler": wide * wide + wide,
    "masked-model head: a layer and a norm": wide * wide + wide + 2 * wide,
    "next-sentence classifier": 2 * wide + 2,
    "522 more tokens, each a vector and a bias": 522 * (wide + 1),
}
total = counted(bert)
print(f"{'our encoder':42} {total:>11,}")
for name, size in left_out.items():
    print(f"{name:42} {size:>11,}")
    total += size
print(f"{'BERT-large as published':42} {total:>11,}, {total / 340e6 - 1:+.1%} from 340 million")
assert total == 336_226_108 and round(total, -7) == 340_000_000

# %% [markdown]
# ### GPT-3
#
# Each of its 96 heads has a width of 128. A batch has 3.2 million tokens, in sequences of 2,048,
# and training reads about 300 billion tokens:

# %%
training = configs["gpt3"]
assert gpt3.decoder_layers == 96 and gpt3.num_heads == 96 and gpt3.d_model == 12_288
assert gpt3.d_model // gpt3.num_heads == 128
assert training.data.batch_tokens == 3_200_000 and training.data.max_length == 2048
read_in_training = training.train.steps * training.data.batch_tokens
assert abs(read_in_training / 300e9 - 1) < 0.01
print(f"{gpt3.num_heads} heads of {gpt3.d_model // gpt3.num_heads} are {gpt3.d_model:,}")
print(f"about {training.data.batch_tokens // 2048:,} sequences in a batch")
print(f"{training.train.steps:,} updates read {read_in_training / 1e9:.1f} billion tokens")

# %% [markdown]
# ### Exercise 4: the parameters of an encoder layer
#
# Count the parameters of one encoder layer of the small model of section 3, of width D = 64 and
# inner width F = 256: four matrices of attention (without biases), two matrices and two biases of
# the feed-forward network, and two norms with a gain and a bias each. You will see that the length
# of the sentence does not occur.

# %% tags=["exercise"]
F = config.d_ff
answer = ...  # a formula of D and F
two, one = (counted(replace(config, encoder_layers=count)) for count in (2, 1))
check(answer, two - one)

# %% cellView="form" jupyter={"source_hidden": true} tags=["solution", "hide-input"]
# @title Solution
attention_part = 4 * D * D
feed_forward_part = D * F + F + F * D + D
norm_part = 2 * (D + D)
answer = attention_part + feed_forward_part + norm_part
check(answer, two - one)
assert answer == two - one

# %% [markdown]
# ## 9. The loss: cross-entropy and label smoothing
#
# At each position the model gives every token a probability $p_v$, and the right one is $y$.
# Training minimises the cross-entropy between $p$ and a wanted distribution $q$, averaged over the
# positions. Without label smoothing $q$ is 1 at $y$, and the loss is $-\log p_y$. With label
# smoothing (section 5.4, $\epsilon = 0.1$) every token has a small share of $q$
# (`smoothed_cross_entropy` in `transformer/training/loss.py`; $[v = y]$ is 1 if $v$ is $y$, and 0
# otherwise):
#
# $$L = -\sum_{v=1}^{V} q_v \log p_v, \qquad
# q_v = (1 - \epsilon)\,[v = y] + \frac{\epsilon}{V}, \qquad
# \frac{\partial L}{\partial z_v} = p_v - q_v$$

# %%
epsilon, right = 0.1, batch.target_out
log_p = np.log(np.asarray(probabilities))
q = (1 - epsilon) * np.eye(V)[right] + epsilon / V
by_formula = -(q * log_p).sum(-1)
smoothed, plain, _ = smoothed_cross_entropy(logits, right, epsilon)
np.testing.assert_allclose(smoothed, by_formula, rtol=1e-4)
np.testing.assert_allclose(plain, -log_p[0, np.arange(right.shape[1]), right[0]][None], rtol=1e-4)

slope = jax.jit(jax.grad(lambda z: smoothed_cross_entropy(z, right, epsilon)[0].sum()))(logits)
np.testing.assert_allclose(slope, probabilities - q, atol=1e-5)
equal, _, _ = smoothed_cross_entropy(jnp.zeros((1, 1, V)), jnp.array([[5]]), 0.0)
np.testing.assert_allclose(equal, math.log(V), rtol=1e-5)
print(f"random weights: {plain.mean():.2f} nats per token, smoothed {smoothed.mean():.2f}")
print(f"equal probabilities for all {V} tokens: ln {V} = {float(equal[0, 0]):.2f} nats")

# %% [markdown]
# ### Exercise 5: the loss of one token by hand
#
# A vocabulary has four tokens, and the second is right ($y = 1$, counted from 0). The model says
# $p = (0.1, 0.6, 0.2, 0.1)$, and $\epsilon = 0.2$. Write down the four numbers of $q$, and then the
# loss in nats as a sum (`math.log` is the natural logarithm). You will see that the wrong tokens
# count too: label smoothing wants them to be unlikely, but not impossible.

# %% tags=["exercise"]
q_by_hand = ...  # four numbers
loss_by_hand = ...

p = jnp.array([0.1, 0.6, 0.2, 0.1])
one_loss = smoothed_cross_entropy(jnp.log(p)[None, None], jnp.array([[1]]), 0.2)[0][0, 0]
right_answers = {"q": 0.8 * np.eye(4)[1] + 0.2 / 4, "loss": one_loss}
check_each({"q": q_by_hand, "loss": loss_by_hand}, right_answers)

# %% cellView="form" jupyter={"source_hidden": true} tags=["solution", "hide-input"]
# @title Solution
q_by_hand = [0.05, 0.85, 0.05, 0.05]  # 0.2 / 4 for each, and 0.8 more for the right one
loss_by_hand = -sum(q_v * math.log(p_v) for q_v, p_v in zip(q_by_hand, [0.1, 0.6, 0.2, 0.1]))
check_each({"q": q_by_hand, "loss": loss_by_hand}, right_answers)
print(f"{loss_by_hand:.3f} nats, of which {-0.85 * math.log(0.6):.3f} are of the right token")

# %% [markdown]
# ## 10. An update, written out
#
# ### Adam
#
# Adam (section 5.3, `make_optimizer` in `transformer/training/optimizer.py`) keeps two moving
# averages for each weight, of its gradient $g$ and of $g^2$, corrected for their start at zero. The
# update is the first divided by the square root of the second, so its size hardly depends on the
# size of the gradient:
#
# $$m_t = \beta_1 m_{t-1} + (1 - \beta_1)\, g_t, \qquad
# v_t = \beta_2 v_{t-1} + (1 - \beta_2)\, g_t^2$$
#
# $$\theta_t = \theta_{t-1} - \eta\, \frac{m_t / (1 - \beta_1^t)}{\sqrt{v_t / (1 - \beta_2^t)} +
# \epsilon}, \qquad \beta_1 = 0.9,\ \beta_2 = 0.98,\ \epsilon = 10^{-9}$$


# %%
def adam_by_hand(gradients, rate, beta_1=0.9, beta_2=0.98, epsilon=1e-9):
    m = v = 0
    for t, g in enumerate(gradients, start=1):
        m = beta_1 * m + (1 - beta_1) * g
        v = beta_2 * v + (1 - beta_2) * g**2
        yield -rate * (m / (1 - beta_1**t)) / (np.sqrt(v / (1 - beta_2**t)) + epsilon)


# Four updates of three weights, with gradients of very different sizes.
gradients = np.random.default_rng(0).normal(size=(4, 3)) * [0.01, 1, 100]
optimizer = make_optimizer(OptimizerConfig(name="adam"), 0.001)
state = optimizer.init(jnp.zeros(3))
for gradient, wanted in zip(gradients, adam_by_hand(gradients, rate=0.001)):
    change, state = optimizer.update(jnp.asarray(gradient, jnp.float32), state)
    np.testing.assert_allclose(change, wanted, rtol=1e-3, atol=1e-8)
    print("gradient", *(f"{g:8.3f}" for g in gradient), "  update", *(f"{c:8.5f}" for c in change))
first_update = next(adam_by_hand(gradients, rate=0.001))
np.testing.assert_allclose(first_update, -0.001 * np.sign(gradients[0]), rtol=1e-3)

# %% [markdown]
# The first update moves each weight by the learning rate $\eta$, whatever the size of its gradient.
#
# ### The learning rate
#
# It rises linearly during the warm-up, and then falls with the inverse square root of the number of
# updates (equation 3, `learning_rate` in `transformer/training/optimizer.py`):
#
# $$\eta(t) = d_\mathrm{model}^{-0.5} \cdot \min(t^{-0.5},\ t \cdot \mathrm{warmup}^{-1.5})$$

# %%
updates = np.arange(1, 20_001)
for warmup, style in ((4000, "-"), (8000, "--")):
    settings = Config(model=base, optimizer=OptimizerConfig(warmup_steps=warmup))
    rates = learning_rate(settings, updates)
    by_formula = base.d_model**-0.5 * np.minimum(updates**-0.5, updates * warmup**-1.5)
    np.testing.assert_allclose(rates, by_formula, rtol=1e-5)
    assert updates[rates.argmax()] == warmup
    plt.plot(updates, rates, style, label=f"warm-up of {warmup:,} updates")
    print(f"the largest rate is {rates.max():.1e}, at update {updates[rates.argmax()]:,}")
plt.xlabel("update")
plt.ylabel("learning rate")
plt.title("Learning rate with warm-up (equation 3)")
plt.legend()
plt.show()

# %% [markdown]
# ### Twenty updates
#
# Training repeats three steps: compute the loss and its gradient, let the optimiser turn the
# gradient into changes of the weights, and add them. Here on one batch, which is a single pair of
# sentences (`transformer/training/step.py` does the same for batches, devices and dropout).

# %%
optimizer = make_optimizer(OptimizerConfig(name="adam"), 0.003)


def loss_of(params):
    scores = model.predict(config, params, batch)
    return smoothed_cross_entropy(scores, batch.target_out, 0.1)[0].mean()


@jax.jit
def update(params, state):
    loss, gradient = jax.value_and_grad(loss_of)(params)
    changes, state = optimizer.update(gradient, state, params)
    return optax.apply_updates(params, changes), state, loss


trained, state, losses = params, optimizer.init(params), []
for _ in range(20):
    trained, state, loss = update(trained, state)
    losses.append(float(loss))
print("loss before each update:", *(f"{loss:.2f}" for loss in losses))
assert (np.diff(losses) < 0).all()

# %% [markdown]
# The loss falls with each update. That is no success yet: one sentence can be learned by heart.
#
# ## 11. Greedy search, written out
#
# In training all target tokens are known, so all positions are computed at once. In translation the
# next token depends on the ones before: greedy search takes the token with the largest logit,
# appends it, and calls the model again, until that token is EOS or the output is too long.
#
# The loop below calls `model.predict` with the whole prefix each time. The prefix is padded to one
# length, so that the model is compiled once; the causal mask hides the padding.


# %%
def greedy(params, source, longest):
    chosen = []
    while len(chosen) < longest and EOS not in chosen:
        padding = [PAD] * (longest - 1 - len(chosen))
        prefix = jnp.array([[BOS, *chosen, *padding]])
        scores = np.array(predict(params, Batch(source, prefix, prefix))[0, len(chosen)])
        scores[[PAD, BOS]] = -np.inf  # never part of an output
        chosen.append(int(scores.argmax()))
    return chosen


longest = batch.target_out.shape[1]
both = {"random weights": params, "after twenty updates": trained}
outputs = {name: greedy(weights, batch.source, longest) for name, weights in both.items()}
for name in outputs:
    print(f"{name}, {len(outputs[name])} tokens:", tokenizer.decode([outputs[name]])[0])
assert EOS not in outputs["random weights"] and len(set(outputs["random weights"])) < 4
assert outputs["after twenty updates"] == [*target_ids, EOS]

# %% [markdown]
# The model with random weights repeats itself until the output is too long; the other one has
# learned its only sentence. The project's own search (`transformer/decoding/search.py`) keeps the
# keys and values of earlier tokens in a cache, and computes only the newest position each time.
# With a beam of 1 it is greedy search, and finds the same tokens:

# %%
settings = Config(model=config, decode=DecodeConfig(beam_size=1, max_length=longest))
for name, weights in both.items():
    translator = make_translator(settings, weights, Tokenizers(tokenizer, tokenizer))
    [best] = best_hypotheses(translator, [sentence])
    assert list(best.tokens) == outputs[name]
    print(f"{name}: the same {len(best.tokens)} tokens")

# %% [markdown]
# ## Quiz
#
# Write your answers in the cell below, and run it. Then run the folded cell: it says which of them
# are right, and how they are computed if you unfold it.
#
# 1. The paper's base model has D = 512 and 8 heads. How many numbers has a key of one head?
# 2. How many numbers do the matrices $W^Q$ of all 8 heads have together? And with 16 heads?
# 3. A decoder reads 8 tokens. How many attention weights does one head compute in its
#    self-attention, and how many of them does the causal mask set to zero?
# 4. A text becomes twice as long. By which factor does the number of attention weights grow?
# 5. A vector $x$ is normalised, and so is $3x + 2$. By how much do the results differ at most (gain
#    1, bias 0)?
# 6. A feed-forward network without the maximum, $(x W_1) W_2$: how many matrices would do the same?
# 7. What are the first four numbers of the sinusoidal encoding of position 0?
# 8. How many parameters of the base model depend on the length of the text?
# 9. A model gives each of 37,000 tokens the same probability. What is the cross-entropy, in nats?
# 10. In the first update a weight has the gradient 0.000001. By how much does Adam lower it, with
#     a learning rate of 0.001?

# %%
quiz = {
    1: ...,
    2: ...,  # two numbers, in parentheses and with a comma
    3: ...,  # two numbers
    4: ...,
    5: ...,
    6: ...,
    7: ...,  # four numbers
    8: ...,
    9: ...,
    10: ...,
}

# %% cellView="form" jupyter={"source_hidden": true} tags=["solution", "hide-input"]
# @title Solution
shapes = jax.eval_shape(partial(init_params, base), jax.random.key(0))
more_heads = jax.eval_shape(partial(init_params, replace(base, num_heads=16)), jax.random.key(0))
w_q, same = (s.encoder.layers.self_attention.w_q.shape[1:] for s in (shapes, more_heads))
visible = np.asarray(layers.causal_mask(8))
vector = np.array([[1, 4, 2, 9]], np.float32)
four = Norm(np.ones(4), np.zeros(4))
normed, other = (layers.layer_norm(config, four, x[None]) for x in (vector, 3 * vector + 2))
w = jax.tree.map(np.asarray, first.feed_forward)
as_one_matrix = w.w_1 @ w.w_2
np.testing.assert_allclose((rows @ w.w_1) @ w.w_2, rows @ as_one_matrix, atol=1e-3)
longer = replace(base, max_positions=2 * base.max_positions)
solutions = {
    1: base.d_model // base.num_heads,
    2: (math.prod(w_q), math.prod(same)),
    3: (visible.size, visible.size - visible.sum()),
    4: (2 * 8) ** 2 / 8**2,
    5: np.abs(normed - other).max().round(3),
    6: len([as_one_matrix]),
    7: layers.sinusoids(jnp.array(0), 8)[:4],
    8: counted(longer) - counted(base),  # positions are computed, not learned
    9: -math.log(1 / 37_000),
    10: -next(adam_by_hand([1e-6], 0.001)),  # nearly the learning rate
}
check_each(quiz, solutions)

# %% [markdown]
# ## What to read next
#
# - `transformer/model/encoder_decoder.py` is Figure 1, in the order of this page.
# - `tests/model/test_encoder_decoder.py` checks that no gradient comes from later positions, that
#   padding changes nothing, and more.
# - `03_train_a_translator` trains a translator.
