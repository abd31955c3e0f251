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
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github)
#
# Why a network for sentences needs it, what it computes, and why it has the form of equation 1 of
# ["Attention Is All You Need"](https://arxiv.org/abs/1706.03762): $\mathrm{Attention}(Q, K, V) =
# \mathrm{softmax}(Q K^\top / \sqrt{d_k})\,V$.
#
# Every statement is computed by the cell below it, with the functions that train our translators
# (`transformer/model/layers.py`). No trained model is needed; all runs in a minute on a CPU.
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
import time

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

from transformer.model.layers import (
    attend,
    causal_mask,
    key_value,
    multi_head_attention,
    sinusoids,
)
from transformer.model.params import Attention
from transformer.viewing.plots import draw_weights

jax.config.update("jax_default_matmul_precision", "highest")  # 32 bits on accelerators too
np.set_printoptions(precision=3, suppress=True)
print(f"jax {jax.__version__} on {jax.devices()[0].device_kind}")

# %% [markdown]
# ## 1. Why not a fully connected layer?
#
# A short hotel review of 37 words. With 1,024 numbers a word the network reads 37,888 numbers. A
# layer that maps them to as many outputs has a weight for every pair of input and output; it also
# wants exactly 37 words, and has to learn about "clean" at place 9 and at place 29 separately.

# %%
review = (
    "We came late on Friday because the train had stopped twice, but the woman at the desk waited "
    "for us and she gave us the room above the garden. It was small, it was quiet and clean."
)
words = review.split()
length, width = len(words), 1024
inputs = length * width
print(f"{length} words of {width:,} numbers are {inputs:,} inputs")
print(f"one fully connected layer:     {inputs**2:>13,} weights, for {length} words only")
print(
    f"the same matrix at each word:  {width**2:>13,} weights, for any number; no word sees another"
)
print(f"attention, four such matrices: {4 * width**2:>13,} weights, for any number; each sees all")

# %% [markdown]
# A layer that uses the same weights at every word is small, and does not care where a word stands.
# What it lacks is a way for words to look at each other.
#
# ## 2. Why not a recurrent network?
#
# A recurrent network, $h_t = \tanh(W h_{t-1} + U x_t)$, has shared weights too, and reads any
# length. But what the last state knows of an earlier word has come through every state in between:
# the path is as long as the distance, and the gradient shrinks (or explodes) at each step. In
# attention every word is one step from every other.

# %%
steps, units = 60, 64
keys = jax.random.split(jax.random.key(0), 6)
xs = jax.random.normal(keys[0], (steps, units))
W = jax.random.orthogonal(keys[1], units)  # as gentle as a random matrix can be
U = jax.random.normal(keys[2], (units, units)) / math.sqrt(units)


def last_state(xs):
    return jax.lax.scan(lambda h, x: (jnp.tanh(W @ h + U @ x), None), jnp.zeros(units), xs)[0]


def last_output(xs):
    q, k, v = (xs @ jax.random.normal(key, (units, units)) / math.sqrt(units) for key in keys[3:])
    everything = jnp.ones((1, 1, 1, steps), bool)
    return attend(q[None, None, -1:], k.T[None, None], v[None, None], everything)[0][0, 0, 0]


distances = np.arange(steps)
for name, function in {"recurrent network": last_state, "attention": last_output}.items():
    sizes = jnp.sqrt((jax.jacobian(function)(xs) ** 2).sum((0, 2)))[::-1]
    plt.semilogy(distances, sizes, label=name)
    print(f"{name:18} gradient at distance 1: {sizes[1]:.1e}, at distance 50: {sizes[50]:.1e}")
plt.xlabel("distance of the word from the last one")
plt.ylabel("size of the gradient")
plt.title("How much the last output depends on a word")
plt.legend()
plt.show()

# %% [markdown]
# ## 3. One word, one vector?
#
# An embedding table gives "it" the same numbers in every sentence. Below it means an animal once
# and a street once. A vector that depends on the context has to take something from the words
# around.
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
    return jnp.array([TABLE[word] for word in sentence], jnp.float32)


print("it, in both sentences:", embedded(tired)[3], embedded(wide)[3])

# %% [markdown]
# ## 4. First try: an average, weighted by similarity
#
# Let each word become an average of all words, and let those count more that are similar. Similar
# is what has a large scalar product; softmax makes weights of them that are positive and sum to
# one.

# %%
x = embedded(tired)
similarity = x @ x.T
weights = jax.nn.softmax(similarity)
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
draw_weights(left, similarity / similarity.max(), tired, tired, "similarity $x_i \\cdot x_j$")
draw_weights(right, weights, tired, tired, "weights: softmax of each row")
plt.show()
print("the similarity is symmetric:", bool((similarity == similarity.T).all()))
print("what a word takes from itself:", np.diag(weights))
print("what it takes from animal and from street:", weights[3, [0, 2]])

# %% [markdown]
# Two things go wrong. All words but one are most similar to themselves, so they stay what they are
# ("crossed", whose numbers are small, becomes animal and street). And similarity is symmetric: if
# "it" is to ask "animal", then "animal" has to ask "it" as much. Asking and being asked are
# different things.
#
# So each word gets three vectors, by three matrices that are learned: a **query** (what do I look
# for?), a **key** (what can I be found by?), and a **value** (what do I tell?).
#
# Two layers of that are enough for "it", with matrices written down by hand; training finds its
# own. In the first a pronoun looks for an adjective, and is told of what kind it is. In the second
# it knows that, and looks for a word of that kind. After each, the old vector is added (a residual
# connection), so that a word stays what it was.


# %%
def layer(x, w_q, w_k, w_v):
    """x + Attention(x W_q, x W_k, x W_v), and the weights."""
    q, k, v = (x @ jnp.array(w, jnp.float32) for w in (w_q, w_k, w_v))
    everything = jnp.ones((1, 1, 1, len(x)), bool)
    y, weights = attend(q[None, None], k.T[None, None], v[None, None], everything)
    return x + y[0, 0], weights[0, 0]


# rows: living thing, place, pronoun, adjective, said of living things
asks_for_adjectives = [[0], [0], [3], [0], [0]]
is_an_adjective = [[0], [0], [0], [1], [0]]
tells_of_what_kind = np.diag([0, 0, 0, 0, 1])
asks_for_its_kind = [[0, 0], [0, 0], [0, 0], [0, 0], [3, -3]]
is_living_or_a_place = [[1, 0], [0, 1], [0, 0], [0, 0], [0, 0]]
tells_what_it_is = np.diag([1, 1, 0, 0, 0])

figure, axes = plt.subplots(2, 2, figsize=(8, 7), layout="constrained")
for row, sentence in zip(axes, (tired, wide)):
    x, first = layer(embedded(sentence), asks_for_adjectives, is_an_adjective, tells_of_what_kind)
    x, second = layer(x, asks_for_its_kind, is_living_or_a_place, tells_what_it_is)
    draw_weights(row[0], first, sentence, sentence, "first layer")
    draw_weights(row[1], second, sentence, sentence, "second layer")
    print(f"it, where something is {sentence[-1]}:", x[3])
plt.show()

# %% [markdown]
# "It" now carries the animal in one sentence and the street in the other. Its row in the second
# layer differs from its column: asking is not being asked. (In the first layer all other words ask
# for nothing in particular: their queries are zero, their weights all alike, and so each was told a
# little of the kind. Therefore they too look at the animal or the street in the second.)
#
# ## 5. Attention is a soft lookup table
#
# A dictionary gives the value whose key equals the query. Attention gives every value as much
# weight as its key is like the query. The larger the numbers, the more it is like a dictionary.

# %%
keys_of_table = jnp.eye(3)
values_of_table = jnp.array([[10.0], [20.0], [60.0]])
everything = jnp.ones((1, 1, 1, 3), bool)
sharpness = np.linspace(0, 12, 60)
found = []
for factor in sharpness:
    query = factor * keys_of_table[1]
    y, weights = attend(
        query[None, None, None],
        keys_of_table.T[None, None],
        values_of_table[None, None],
        everything,
    )
    found.append([*weights[0, 0, 0], y[0, 0, 0, 0]])
found = np.array(found)

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
for number, style in enumerate(("-", "-", "--")):
    left.plot(sharpness, found[:, number], style, label=f"key {number + 1}")
left.set(xlabel="length of the query", title="weights, the query along key 2")
left.legend()
right.plot(sharpness, found[:, 3])
right.set(xlabel="length of the query", title="what is found, of 10, 20 and 60", ylim=(10, 60))
plt.show()
for place in (0, 10, -1):
    print(
        f"length {sharpness[place]:4.1f}: weights {found[place, :3]}, found {found[place, 3]:.2f}"
    )

# %% [markdown]
# At length 0 all keys count alike and the mean is found. The output is smooth in between, which is
# why it can be learned by gradients; a dictionary has none.
#
# ## 6. Attention routes
#
# With the weights at hand, the rest is a matrix product: row i says from where output i is taken.
# Three values, red, green and blue, sent to three places: to the next one, mixed, or all to all.

# %%
colours = jnp.eye(3)
routes = {
    "each to the next": [[0, 0, 1], [1, 0, 0], [0, 1, 0]],
    "first mixed of two": [[0.5, 0.5, 0], [0, 1, 0], [0, 0, 1]],
    "all the same": [[1 / 3] * 3] * 3,
}
figure, axes = plt.subplots(2, 3, figsize=(9, 4.6), layout="constrained")
places = ["1", "2", "3"]
for (name, route), (above, below) in zip(routes.items(), axes.T):
    # Scores whose softmax is the route: its logarithm. Queries of that form find keys that are unit
    # vectors; sqrt(3) undoes the scaling.
    q = jnp.log(jnp.array(route) + 1e-9) * math.sqrt(3)
    y, weights = attend(q[None, None], jnp.eye(3)[None, None], colours[None, None], everything)
    np.testing.assert_allclose(weights[0, 0], route, atol=1e-6)
    draw_weights(above, weights[0, 0], places, places, name)
    below.imshow(y[0], vmin=0, vmax=1)
    below.set(xticks=range(3), xticklabels=places, yticks=[], title="outputs")
plt.show()

# %% [markdown]
# ## 7. By hand
#
# One word of a sentence of four, with four numbers a word, and queries, keys and values of three.

# %%
x1 = np.array([3, 0, 1, -0.5])
w_q = np.array([[1.5, 1, 2], [3, -2, 5], [1, 2, -2], [9, 4, 2]])
w_k = np.array([[1, 0.5, 2], [-2, 0.5, 3], [0.5, 2, -3], [5, 3, 2]])
q1, k1 = x1 @ w_q, x1 @ w_k
print("query of word 1: x W^Q =", q1)
print("key of word 1:   x W^K =", k1)

k = np.array([k1, [3, 4, 3], [5, 2, 3], [3, 2, 1]])
scores = k @ q1
print("scores, one for each key:", scores)

d_k = 64
scaled = scores / math.sqrt(d_k)
print(f"divided by sqrt({d_k}):", scaled)

weights = np.exp(scaled) / np.exp(scaled).sum()
print("softmax:", weights, "which sum to", weights.sum())

v = np.array([[1, 0.5, -1], [4, 5, -2], [-3, 2, 2], [1, 1, 6]])
print("output: the values, averaged by these weights:", weights @ v)

# %% [markdown]
# (The example divides by $\sqrt{64}$ although its vectors have three numbers, as if the other 61
# were zero.) The function that our models call gives the same:


# %%
def with_zeros(rows):
    return jnp.pad(jnp.asarray(rows, jnp.float32), [(0, 0), (0, d_k - 3)])[None, None]


values = jnp.asarray(v, jnp.float32)[None, None]
everything = jnp.ones((1, 1, 1, 4), bool)
y, found = attend(with_zeros(q1[None]), with_zeros(k).swapaxes(2, 3), values, everything)
np.testing.assert_allclose(found[0, 0, 0], weights, rtol=1e-5)
np.testing.assert_allclose(y[0, 0, 0], weights @ v, rtol=1e-5)
print("attend:", y[0, 0, 0])

# %% [markdown]
# ## 8. Why divide by $\sqrt{d_k}$?
#
# The scalar product of two vectors of $d_k$ independent numbers of mean 0 and variance 1 has
# variance $d_k$, as is measured below. Undivided, the scores of wide heads lie so far apart that
# softmax gives nearly all weight to one key, and there its gradient is small: the wider the head,
# the less is learned. Divided, the gradient is the same at every width.


# %%
def random_scores(d_k):
    """Of 200 random queries, each for 32 random keys."""
    query, keys = jax.random.split(jax.random.key(d_k))
    queries, keys = jax.random.normal(query, (200, d_k)), jax.random.normal(keys, (200, 32, d_k))
    return jnp.einsum("nk,nsk->ns", queries, keys)


def gradient_size(scores):
    """The mean size of d weights / d scores, and the mean of the largest weights."""
    slopes = jax.vmap(jax.jacobian(jax.nn.softmax))(scores)
    return jnp.sqrt((slopes**2).sum((1, 2))).mean(), jax.nn.softmax(scores).max(-1).mean()


widths = [1, 4, 16, 64, 256, 1024]
for d_k in widths:
    print(f"d_k = {d_k:5,}: variance of the scores {random_scores(d_k).var():7.1f}")
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
for name, divided in {"divided by sqrt(d_k)": True, "not divided": False}.items():
    factors = [math.sqrt(d_k) if divided else 1 for d_k in widths]
    found = [gradient_size(random_scores(d_k) / factor) for d_k, factor in zip(widths, factors)]
    sizes, largest = zip(*found)
    left.loglog(widths, sizes, "o-", label=name)
    right.semilogx(widths, largest, "o-", label=name)
    print(f"{name:20} gradient at d_k = 4: {sizes[1]:.3f}, at 1,024: {sizes[-1]:.3f}")
left.set(xlabel="d_k", title="gradient of the softmax")
right.set(xlabel="d_k", title="largest of 32 weights", ylim=(0, 1))
left.legend()
plt.show()

# %% [markdown]
# ## 9. Attention does not see order
#
# Each row of weights sums to one, whatever the numbers. And if the words come in another order,
# the outputs are the same, in that order: "dog bites man" and "man bites dog" cannot be told
# apart.

# %%
HEADS, WIDTH = 4, 32
keys = jax.random.split(jax.random.key(1), 4)
shape = (WIDTH, HEADS, WIDTH // HEADS)
w_q, w_k, w_v = (jax.random.normal(key, shape) / math.sqrt(WIDTH) for key in keys[:3])
w_o = jax.random.normal(keys[3], (HEADS, WIDTH // HEADS, WIDTH)) / math.sqrt(WIDTH)
heads = Attention(w_q=w_q, w_k=w_k, w_v=w_v, w_o=w_o)


def self_attention(x, mask):
    """Section 3.2.2 on one sentence: outputs [T, D] and weights [H, T, T]."""
    y, weights = multi_head_attention(heads, x[None], key_value(heads, x[None]), mask)
    return y[0], weights[0]


x = jax.random.normal(jax.random.key(2), (6, WIDTH))
everything = jnp.ones((1, 1, 6, 6), bool)
order = jnp.array([3, 0, 5, 1, 4, 2])
y, weights = self_attention(x, everything)
shuffled, _ = self_attention(x[order], everything)
print("rows of weights sum to one:", bool(jnp.allclose(weights.sum(-1), 1)))
print("shuffled words give shuffled outputs:", bool(jnp.allclose(shuffled, y[order], atol=1e-5)))

places = sinusoids(jnp.arange(6), WIDTH)
with_places, _ = self_attention(x + places, everything)
shuffled_with_places, _ = self_attention(x[order] + places, everything)
same = jnp.allclose(shuffled_with_places, with_places[order], atol=1e-5)
print("the same with positions added to the words:", bool(same))

# %% [markdown]
# So positions are added to the embeddings (section 3.5); `02_transformer` looks at them.
#
# ## 10. Looking back only
#
# A decoder predicts each word from those before. In training it reads all of them at once, so the
# mask has to hide what comes later: those scores become so low that softmax makes zeros of them.
# Did it work? The gradient of each output with respect to each word says what depends on what.


# %%
def dependence(mask):
    """[T, T]: the size of the gradient of output i with respect to word j."""
    slopes = jax.jacobian(lambda x: self_attention(x, mask)[0])(x)
    return jnp.sqrt((slopes**2).sum((1, 3)))


figure, axes = plt.subplots(1, 2, figsize=(8, 3.6), layout="constrained")
names = [f"word {number}" for number in range(1, 7)]
for place, (name, mask) in zip(axes, {"no mask": everything, "causal": causal_mask(6)}.items()):
    sizes = dependence(mask)
    draw_weights(place, sizes / sizes.max(), names, names, f"gradients, {name}")
plt.show()
later = dependence(causal_mask(6))[np.triu_indices(6, 1)]
print("the largest gradient from a later word:", float(later.max()))

# %% [markdown]
# ## 11. Many heads
#
# One head has one distribution over the words: if it looks at two of them it gets their average,
# and no longer knows which was which. Two heads look at two words and keep both. Below the words
# say 1, 2, 4 and 5, and the first two words and the last two words are asked for together.

# %%
said = jnp.array([[1.0], [2.0], [4.0], [5.0]])
everyone = jnp.ones((1, 1, 1, 4), bool)
for name, pair in {"first and last": (0, 3), "the two between": (1, 2)}.items():
    keys_of_words, query = jnp.eye(4), jnp.zeros(4).at[jnp.array(pair)].set(40.0)
    both = attend(query[None, None, None], keys_of_words[None, None], said[None, None], everyone)[0]
    # The batch axis for words, the head axis for heads: each head has a query of its own.
    each = 40.0 * jnp.eye(4)[jnp.array(pair)][None, :, None]
    two_heads = attend(each, keys_of_words[None, None], said[None, None], everyone)[0]
    print(f"{name:16} one head: {both.ravel()}  two heads: {two_heads.ravel()}")

# %% [markdown]
# One head cannot tell the two questions apart, two can. They need no more weights: $h$ heads have
# $d_k = D / h$ each, so the matrices are of the same size. Below them the weights of the four heads
# of section 9, whose matrices are random: each looks elsewhere.

# %%
for count in (1, 4, 16):
    sizes = [512 * count * (512 // count)] * 4
    print(f"{count:2} heads of width {512 // count:3}: {sum(sizes):,} weights")

figure, axes = plt.subplots(1, HEADS, figsize=(11, 3), sharey=True, layout="constrained")
for number, place in enumerate(axes):
    draw_weights(place, weights[number], names, names, f"head {number + 1}")
plt.show()

# %% [markdown]
# ## 12. What it costs
#
# Each word looks at each: twice the length is four times the scores. The rest of a layer works on
# each word alone, so its cost grows with the length. As long as a text is short, attention costs
# less than a feed-forward layer of equation 2; the longer it is, the larger attention's share.
# (Measured times grow somewhat less than the operations do, as long as there are few of them.)

# %%
D, F, H = 256, 1024, 4
lengths = [64, 128, 256, 512, 1024]


@jax.jit
def attention_alone(q, k, v):
    return attend(q, k, v, jnp.ones((1, 1, 1, 1), bool))[0]


@jax.jit
def feed_forward_alone(x, w_1, w_2):
    return jnp.maximum(x @ w_1, 0) @ w_2


def milliseconds(function, *arguments):
    """The best of five, after one that compiles."""
    jax.block_until_ready(function(*arguments))
    times = []
    for _ in range(5):
        start = time.perf_counter()
        jax.block_until_ready(function(*arguments))
        times.append(time.perf_counter() - start)
    return 1e3 * min(times)


measured = []
for T in lengths:
    q, v = (jax.random.normal(jax.random.key(n), (1, H, T, D // H)) for n in range(2))
    x = jax.random.normal(jax.random.key(2), (T, D))
    w_1, w_2 = jnp.ones((D, F)), jnp.ones((F, D))
    measured.append(
        [
            milliseconds(attention_alone, q, q.swapaxes(2, 3), v),
            milliseconds(feed_forward_alone, x, w_1, w_2),
        ]
    )
measured = np.array(measured)
plt.loglog(lengths, measured, "o-", label=["attention: scores and averages", "feed-forward layer"])
plt.xticks(lengths, [f"{T:,}" for T in lengths])
plt.minorticks_off()
plt.xlabel("words")
plt.ylabel("milliseconds")
plt.legend()
plt.show()
growth = measured[-1] / measured[-2]
print(f"from {lengths[-2]} to {lengths[-1]:,} words attention takes {growth[0]:.1f} times as long,")
print(f"the feed-forward layer {growth[1]:.1f} times")

# %% [markdown]
# ## What to read next
#
# - `transformer/model/layers.py`: `attend` is equation 1, `multi_head_attention` section 3.2.2.
# - `tests/model/test_layers.py` holds both against plain loops and against Flax.
# - `02_transformer` puts the pieces together to Figure 1.
