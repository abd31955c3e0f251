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
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github)
#
# Figure 1 of ["Attention Is All You Need"](https://arxiv.org/abs/1706.03762), built up on one
# sentence from the functions that train our translators. `01_attention` says what attention is.
# Nothing is trained here, and all runs in a minute or two on a CPU.
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

# %%
import math
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

from transformer.config import ModelConfig
from transformer.config.files import load_config
from transformer.data.corpus import read_pairs
from transformer.data.tokenizer import train_tokenizer
from transformer.machine import devices
from transformer.model import encoder_decoder as model
from transformer.model import layers
from transformer.model.batch import BOS, EOS, UNK, Batch
from transformer.model.params import by_name, count_params, init_params, output_layer, unstack

devices.configure_devices("any")  # numbers of 32 bits; what is compiled is kept
jax.config.update("jax_default_matmul_precision", "highest")  # 32 bits on accelerators too
np.set_printoptions(precision=3, suppress=True, linewidth=100)

# %% [markdown]
# ## 1. Text becomes numbers: words, subwords, characters
#
# A vocabulary of words is short to read, but it has never seen most words. Characters know
# everything, and make long sequences of which each says little. Subwords (section 5.1) are
# between: frequent words stay whole, others fall into pieces. We train all three on the same
# sentences; `▁` stands for a blank.

# %%
data = load_config("configs/quickstart.py").data
english = [source for source, _ in read_pairs(data, "train")]
sizes = {"word": 1000, "bpe": 500, "char": 100}
tokenizers = {kind: train_tokenizer(english, kind, size) for kind, size in sizes.items()}

sentence = "Tomorrow the gardener wants to visit the supermarket."
for kind, tokenizer in tokenizers.items():
    [ids] = tokenizer.encode([sentence])
    print(f"{kind}: {len(ids)} tokens of {tokenizer.vocab_size:,}, {ids.count(UNK)} unknown")
    print("   ", *tokenizer.pieces(ids))

# %% [markdown]
# The price of small pieces is length, and attention costs its square:

# %%
for kind, tokenizer in tokenizers.items():
    lengths = np.array([len(ids) for ids in tokenizer.encode(english[:2000])])
    squared = np.square(lengths).mean()
    print(f"{kind:5} {lengths.mean():5.1f} tokens a sentence, squared {squared:7.0f}")

# %% [markdown]
# ## 2. Numbers become vectors
#
# An id could be a vector with a single one (one-hot). That times a matrix E is a row of E, so we
# take the row and never build the vector.

# %%
tokenizer = tokenizers["bpe"]
[ids] = tokenizer.encode([sentence])
V, D = tokenizer.vocab_size, 64
E = jax.random.normal(jax.random.key(0), (V, D))
one_hot = jax.nn.one_hot(jnp.array(ids), V)
print("one-hot", one_hot.shape, "times E", E.shape, "is", (one_hot @ E).shape)
print("the same as the rows of E:", bool(jnp.array_equal(one_hot @ E, E[jnp.array(ids)])))

# %% [markdown]
# ## 3. Figure 1, step by step
#
# A small model with random weights, and one sentence pair. The letters: B sentences, S source and
# T target positions, D width, H heads, K width of a head, V vocabulary.
#
# The decoder reads the target shifted right (`target_in`: it begins with a token for "begin", and
# lacks the last), and is to predict the target itself (`target_out`, which ends with one for
# "end"): at each position the token that comes next.

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
)
params = init_params(config, jax.random.key(1))
target = "The gardener is there."  # any text will do for shapes
[target_ids] = tokenizer.encode([target])
batch = Batch(
    source=jnp.array([[*ids, EOS]]),
    target_in=jnp.array([[BOS, *target_ids]]),
    target_out=jnp.array([[*target_ids, EOS]]),
)


def show(name, array):
    print(f"{name:44} {array.shape}")


show("source: token ids [B, S]", batch.source)
positions = jnp.arange(batch.source.shape[1])[None]
x = model.embed_source(config, params.embedding, batch.source, positions)
show("embeddings * sqrt(D) + positions [B, S, D]", x)
mask = layers.padding_mask(batch.source)
show("mask: who may be looked at [B, 1, 1, S]", mask)

first, second = unstack(params.encoder)
kv = layers.key_value(first.self_attention, x)
show("keys of every head, transposed [B, H, K, S]", kv.k)
show("values of every head [B, H, S, K]", kv.v)
attended, weights = layers.multi_head_attention(first.self_attention, x, kv, mask)
show("attention weights [B, H, S, S]", weights)
show("self-attention [B, S, D]", attended)
x = layers.layer_norm(config, first.self_attention_norm, x + attended)
inner = layers.feed_forward(config, first.feed_forward, x)
show("feed-forward, at each position alone", inner)
x = layers.layer_norm(config, first.feed_forward_norm, x + inner)
show("the first encoder layer", x)

# %% [markdown]
# The second layer is the same again, and the decoder's layers have two things more: a mask that
# hides what comes later, and cross-attention, whose queries come from the target and whose keys
# and values come from the encoder. `run_layer` is a layer of either kind:

# %%
context = model.context_of(mask)  # where the tokens are, and what each may look at
x, _, _ = model.run_layer(config, second, x, context)
memory = model.Memory(x, mask, None)
show("what the encoder hands on [B, S, D]", memory.states)

context = model.context_of(layers.causal_mask(batch.target_in.shape[1]))
show("causal mask [1, 1, T, T]", context.mask)
y = model.embed_target(config, params.embedding, batch.target_in, context.positions)
show("target embeddings [B, T, D]", y)
for layer in unstack(params.decoder):
    seen = model.layer_memory(layer, memory)
    y, _, looked = model.run_layer(config, layer, y, context, memory=seen)
show("masked self-attention weights [B, H, T, T]", looked.own)
show("cross-attention weights [B, H, T, S]", looked.cross)
show("the decoder's states [B, T, D]", y)
logits = model.logits(output_layer(params), y)
show("logits [B, T, V]", logits)
show("probabilities of the next token [B, T, V]", jax.nn.softmax(logits))

# %% [markdown]
# That was all of the model. The function that training calls gives the same numbers:

# %%
np.testing.assert_allclose(model.predict(config, params, batch), logits, atol=1e-5)
print("predict: the same", logits.shape, "logits")

# %% [markdown]
# ## 4. The residual stream
#
# No sublayer replaces x; each adds to it. So there is a straight way from the embeddings to the
# top, along which gradients come back. How much is left of the embeddings after each layer, with
# and without the additions? (An encoder with random weights, normalised before each sublayer, of
# which section 6 says more; the cosine of each position's vector with where it began, averaged.)

# %%
deep = replace(config, encoder_layers=12, norm="pre")
deep_params = init_params(deep, jax.random.key(2))
start = model.embed_source(deep, deep_params.embedding, batch.source, positions)


def without_residual(layer, x):
    """The same sublayers, each in the place of x."""
    x = layers.layer_norm(deep, layer.self_attention_norm, x)
    kv = layers.key_value(layer.self_attention, x)
    x, _ = layers.multi_head_attention(layer.self_attention, x, kv, mask)
    x = layers.layer_norm(deep, layer.feed_forward_norm, x)
    return layers.feed_forward(deep, layer.feed_forward, x)


def cosine(a, b):
    return ((a * b).sum(-1) / jnp.linalg.norm(a, axis=-1) / jnp.linalg.norm(b, axis=-1)).mean()


kept = {"with residual connections": [1.0], "without": [1.0]}
x = y = start
context = model.context_of(mask)
for layer in unstack(deep_params.encoder):
    x, _, _ = model.run_layer(deep, layer, x, context)
    y = without_residual(layer, y)
    kept["with residual connections"].append(float(cosine(x, start)))
    kept["without"].append(float(cosine(y, start)))
for name, values in kept.items():
    plt.plot(values, "o-", label=name)
    print(f"{name:26} after layer 1: {values[1]:.2f}, after layer 12: {values[-1]:.2f}")
plt.axhline(0, color="grey", linewidth=0.5)
plt.xlabel("layers")
plt.ylabel("cosine with the embedding")
plt.title("What is left of a word's own vector")
plt.legend()
plt.show()

# %% [markdown]
# ## 5. Positions: sinusoids
#
# Attention does not see order (`01_attention`), so section 3.5 adds a vector for each position:
# pairs of sine and cosine, from fast waves to slow ones.

# %%
width = 64
encoding = layers.sinusoids(jnp.arange(100), width)
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 3.5), layout="constrained")
image = left.imshow(encoding.T, aspect="auto", cmap="RdBu", vmin=-1, vmax=1)
left.set(xlabel="position", ylabel="dimension", title="the encoding of 100 positions")
figure.colorbar(image, ax=left)
for dimension in (0, 10, 20, 30):
    right.plot(encoding[:, dimension], label=f"dimension {dimension}")
right.set(xlabel="position", title="four of the waves")
right.legend(loc="upper left", bbox_to_anchor=(1, 1))
plt.show()

# %% [markdown]
# Why waves? "For any fixed offset k, PE(pos + k) can be represented as a linear function of
# PE(pos)", the paper says. Each pair of sine and cosine turns by a fixed angle, so the function is
# a matrix of rotations that is the same for all positions:


# %%
def shift(k):
    """The matrix M with PE(pos + k) = PE(pos) M, for every pos."""
    angles = k * 10000 ** (-jnp.arange(0, width, 2) / width)
    matrix = np.zeros((width, width))
    for pair, angle in enumerate(angles):
        rows = slice(2 * pair, 2 * pair + 2)
        c, s = math.cos(angle), math.sin(angle)
        matrix[rows, rows] = [[c, -s], [s, c]]  # (sin, cos) of the sum of two angles
    return matrix


for k in (1, 5, 30):
    off = np.abs(encoding[:-k] @ shift(k) - encoding[k:]).max()
    print(f"k = {k:2}: off by {off:.1e} at most, at {len(encoding) - k} positions")

# %% [markdown]
# So a head can learn to look "three words back", wherever it stands. The products of two encodings
# depend on the distance alone, and are largest for neighbours:

# %%
products = np.asarray(encoding @ encoding.T) / (width / 2)
plt.plot(np.arange(-50, 50), products[50], label="from position 50")
plt.plot(np.arange(-20, 80), products[20], "--", label="from position 20")
plt.xlabel("distance")
plt.ylabel("product, 1 for the same position")
plt.legend()
plt.show()

# %% [markdown]
# ### Learned and relative positions
#
# Positions can also be a table that is learned, row by row (the paper's table 3, row E: as good),
# but it ends somewhere: there is no row for a place that training had not. Or each head learns a
# number for every distance, which is added to the scores (`model.positions = "relative"`): the
# same along each diagonal, and nothing is added to the words. Below a head that looks one word
# back, made by such numbers alone.

# %%
furthest = 4
numbers = jnp.zeros((1, 2 * furthest + 1)).at[0, furthest - 1].set(3.0)
distances = model.offsets_between(jnp.arange(8)[None], jnp.arange(8)[None])
bias = layers.offset_bias(numbers, distances)
silent = jnp.zeros((1, 1, 8, 4))
_, weights = layers.attend(
    silent, silent.swapaxes(2, 3), silent, jnp.ones((1, 1, 8, 8), bool), bias
)
figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.5), layout="constrained")
left.imshow(bias[0, 0], cmap="Blues")
left.set(title="what is added to the scores", xlabel="key", ylabel="query")
right.imshow(weights[0, 0], cmap="Blues", vmin=0, vmax=1)
right.set(title="attention weights", xlabel="key")
plt.show()

# %% [markdown]
# ## 6. Post-norm and pre-norm
#
# The paper normalises after each addition, LayerNorm(x + Sublayer(x)); most models since do it
# before the sublayer, x + Sublayer(LayerNorm(x)), and once at the end. At the start of training the
# gradients of a deep stack differ: with post-norm they are largest at the top and fade towards the
# foot, since each normalisation on their way back shrinks them; with pre-norm it is the other way
# round, and the top layers, which the loss reaches first, get small ones. Xiong et al. (2020,
# https://arxiv.org/abs/2002.04745) show that for this reason post-norm needs a warm-up of the
# learning rate, and pre-norm can do without.


# %%
def gradients_by_layer(norm, depth=24):
    """The size of the loss's gradient in each layer of an encoder's feed-forward networks."""
    config_of_norm = replace(config, encoder_layers=depth, norm=norm)
    weights = init_params(config_of_norm, jax.random.key(3))

    def loss(weights):
        scores = model.predict(config_of_norm, weights, batch)
        chosen = jnp.take_along_axis(jax.nn.log_softmax(scores), batch.target_out[..., None], -1)
        return -chosen.mean()

    found = jax.jit(jax.grad(loss))(weights).encoder.layers.feed_forward.w_1
    return jnp.sqrt((found**2).sum((1, 2)))


for norm in ("post", "pre"):
    sizes = gradients_by_layer(norm)
    plt.semilogy(range(1, 25), sizes, "o-", label=f"{norm}-norm")
    print(f"{norm}-norm: top layer {sizes[-1]:.1e}, bottom layer {sizes[0]:.1e}")
plt.xlabel("encoder layer, 24 at the top")
plt.ylabel("size of the gradient of W_1")
plt.legend()
plt.show()

# %% [markdown]
# ## 7. Tying: one table for three things
#
# The logits ask how much a state is like each token's vector: a product with every row of a table,
# "unembedding". Section 3.4 uses one table for source, target and output. How many weights that
# saves, in the paper's base model with 37,000 tokens:


# %%
def counted(config):
    """Parameters by shapes; no weight is made."""
    return count_params(jax.eval_shape(partial(init_params, config), jax.random.key(0)))


base = replace(
    load_config("configs/wmt14_base.py").model, source_vocab_size=37000, target_vocab_size=37000
)
for tying, meaning in {
    "all": "one table for all three",
    "target": "target and output share",
    "none": "three tables",
}.items():
    print(f"{meaning:26} {counted(replace(base, tying=tying)):>12,} parameters")

state = output_layer(params).table[ids[0]] * math.sqrt(D)  # a state like the first token's vector
scores = model.logits(output_layer(params), state[None, None])[0, 0]
print("a state that is a token's own vector is read as:", tokenizer.pieces([int(scores.argmax())]))
print("the token:                                      ", tokenizer.pieces(ids[:1]))

# %% [markdown]
# ## 8. Where the parameters are
#
# The same functions make the paper's two models, and, with one of the stacks left out, BERT-large
# and GPT-3. Only shapes are counted: GPT-3 would not fit here.

# %%
models = {
    "base": base,
    "big": replace(
        load_config("configs/wmt14_big.py").model, source_vocab_size=37000, target_vocab_size=37000
    ),
    "BERT-large": load_config("configs/bert_large.py").model,
    "GPT-3": load_config("configs/gpt3.py").model,
}
said = {
    "base": "65 million",
    "big": "213 million",
    "BERT-large": "340 million",
    "GPT-3": "175 billion",
}
columns = ("embedding", "self_attention", "cross_attention", "feed_forward")
print(f"{'':12}{'parameters':>17}  {'its paper says':14}" + "".join(f"{c:>17}" for c in columns))
shares = {}
for name, shape in models.items():
    weights = by_name(jax.eval_shape(partial(init_params, shape), jax.random.key(0)))
    total = sum(leaf.size for leaf in weights.values())
    shares[name] = [sum(w.size for n, w in weights.items() if c in n) / total for c in columns]
    print(f"{name:12}{total:>17,}  {said[name]:14}" + "".join(f"{s:>17.1%}" for s in shares[name]))

figure, axes = plt.subplots(figsize=(9, 2.6), layout="constrained")
before = np.zeros(len(models))
for column, part in zip(columns, np.array(list(shares.values())).T):
    axes.barh(list(models), part, left=before, label=column.replace("_", "-"))
    before += part
axes.invert_yaxis()
axes.set(xlim=(0, 1), title="share of the parameters")
axes.legend(ncols=4, loc="upper center", bbox_to_anchor=(0.5, -0.12))
plt.show()

# %% [markdown]
# Feed-forward networks hold most of a large model; attention, which the paper is named after,
# holds less. (65 and 213 million do not follow from the paper's own sizes; `python -m
# benchmarks.parameter_table` says how far off they are.)
#
# ## What to read next
#
# - `transformer/model/encoder_decoder.py` is Figure 1, in the order of this page.
# - `tests/model/test_encoder_decoder.py`: that no gradient comes from the future, that padding
#   changes nothing, and more.
# - `03_train_a_translator` trains one.
