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
# # Looking inside
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github)
#
# What a trained translator looks at, word by word: self-attention in the encoder, masked attention
# and cross-attention in the decoder, the beam as a tree, what its embeddings have learned, and
# what each head is worth. The run of `03_train_a_translator` is taken if it is there, or trained
# (five to ten minutes on two CPU cores).
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
from dataclasses import replace

import jax
import matplotlib.pyplot as plt
import numpy as np

from transformer.data.corpus import read_pairs
from transformer.decoding.alignment import alignments
from transformer.decoding.translator import hypotheses, make_translator, translate
from transformer.evaluation.scores import bleu
from transformer.machine import devices
from transformer.model.params import init_params, tables
from transformer.runs.load import load_run
from transformer.viewing.attention import attention_maps
from transformer.viewing.beam import beam_steps
from transformer.viewing.plots import draw_beam, draw_heads, draw_weights

run = Path("runs/quickstart")
subprocess.run(
    [sys.executable, "train.py", "configs/quickstart.py"], check=True, stdout=subprocess.DEVNULL
)

devices.configure_devices("any")  # numbers of 32 bits; what is compiled is kept
np.set_printoptions(precision=3, suppress=True)
trained = load_run(run)
config, params, tokenizers = trained.config, trained.params, trained.tokenizers
translator = make_translator(config, params, tokenizers)

sentence = "I know that the girl has bought a new book."
[[found]] = hypotheses(translator, [sentence])
print(trained.label)
print(sentence)
print(found.text)

# %% [markdown]
# ## What attends to what
#
# There are three kinds of attention, one in each layer of the encoder and two in each layer of the
# decoder, and each has four heads. A row says how one piece of text divides its attention among the
# columns; the darker, the more.
#
# **Encoder**: each English piece looks at all of them, before and after.


# %%
def show_layers(attention):
    for layer in range(len(attention.weights)):
        draw_heads(plt.figure(figsize=(15, 4.5), layout="constrained"), attention, layer)
        plt.show()


encoder, masked, cross = attention_maps(config.model, params, tokenizers, sentence, found.text)
show_layers(encoder)

# %% [markdown]
# **Masked self-attention**: each German piece looks at itself and at those before. Above the
# diagonal all is exactly zero.

# %%
show_layers(masked)
above = np.triu(np.ones(masked.weights.shape[2:], bool), 1)
print("the largest weight above the diagonal:", masked.weights[..., above].max())

# %% [markdown]
# **Cross-attention**: where in the English sentence the decoder looks while it writes each German
# piece.

# %%
show_layers(cross)

# %% [markdown]
# ## German verbs go to the end
#
# "has bought" stands in the middle in English; in a German clause after "dass" it comes last.
# Averaged over heads and layers (but the first) and joined to words, cross-attention says from
# which word each comes. Words are what stands between blanks, so a full stop counts with its word;
# and not every link is the one that a person would draw:

# %%
[links] = alignments(translator, [sentence], [found.tokens])
source_words, target_words = sentence.split(), found.text.split()
table = np.zeros((len(target_words), len(source_words)))
for there, here in links:
    table[here, there] = 1
    print(f"{target_words[here]:12} from  {source_words[there]}")
figure, axes = plt.subplots(figsize=(4.5, 4.5), layout="constrained")
draw_weights(axes, table, target_words, source_words)
plt.show()

# %% [markdown]
# Is that so in general? Writing the next German word, the decoder mostly goes on to the right in
# the English sentence. We take the test set's translations that end in a clause with "dass" and
# "hat" or "haben", and count how often it goes back to the left: for the participle before "hat",
# and for all other words of these sentences.

# %%
pairs = list(read_pairs(config.data, "test"))
sources = [source for source, _ in pairs]
best = [found[0] for found in hypotheses(translator, sources)]
clauses = [
    (source, one)
    for source, one in zip(sources, best)
    if " dass " in one.text and one.text.endswith((" hat.", " haben."))
]
chosen_links = alignments(translator, [s for s, _ in clauses], [one.tokens for _, one in clauses])
back = {"the participle": [], "other words": []}
for (_, one), links in zip(clauses, chosen_links):
    origin = {here: there for there, here in links}
    participle = len(one.text.split()) - 2
    for here in range(1, participle + 1):
        name = "the participle" if here == participle else "other words"
        back[name].append(origin[here] < origin[here - 1])
for name, went in back.items():
    print(f"{name:15} goes back to the left in {np.mean(went):.0%} of {len(went)} cases")

# %% [markdown]
# ## The beam as a tree
#
# Beam search keeps the four likeliest beginnings after each token (a column, the likeliest on top)
# and forgets the others. A line leads from each to what it goes on from; the translation is in
# colour. (The end of a sentence is a token, too, and not drawn: what has ended is kept apart.)

# %%
short = "Tomorrow I want to visit my friend in the city."
[[chosen]] = hypotheses(translator, [short])
steps = beam_steps(translator, short)
figure, axes = plt.subplots(figsize=(15, 3), layout="constrained")
draw_beam(
    axes,
    steps[: len(chosen.tokens) - 1],  # the last one is the end
    lambda token: tokenizers.target.pieces([token])[0].replace("▁", ""),
    chosen.tokens,
)
plt.show()
print(short)
print(chosen.text)
print("kept after the third token:")
for tokens, log_prob in steps[2]:
    print(f"  {np.exp(log_prob):6.2%}  {tokenizers.target.decode([list(tokens)])[0]}")

# %% [markdown]
# ## What embeddings have learned
#
# One table serves English and German (section 3.4). Before training its rows are random.
# Afterwards words that are used alike are neighbours:

# %%
before = tables(init_params(config.model, jax.random.key(0)).embedding).source
after = tables(params.embedding).source
unit = {
    name: np.asarray(table / np.linalg.norm(table, axis=1, keepdims=True))
    for name, table in {"before": before, "after": after}.items()
}


def token(word):
    """The id of a word that is a piece of its own, or None."""
    [ids] = tokenizers.source.encode([word])
    return ids[0] if len(ids) == 1 else None


def neighbours(table, vector, without, count=4):
    order = np.argsort(-table @ vector)
    kept = [int(n) for n in order if int(n) not in without][:count]
    return " ".join(tokenizers.source.pieces(kept)).replace("▁", "")


words = ["tomorrow", "Monday", "kitchen", "friend", "yesterday", "can", "nicht", "Mutter"]
for word in [word for word in words if token(word) is not None]:
    for name, table in unit.items():
        number = token(word)
        print(f"{word:10} {name:7} {neighbours(table, table[number], {number})}")

# %% [markdown]
# And across the languages? Of these pairs of words and their translations (those that are pieces
# of their own), how often is the translation the nearest German word, of all in the list? What all
# words of a language have in common is taken away first: the mean of the list.

# %%
dictionary = [
    ("mother", "Mutter"), ("father", "Vater"), ("friend", "Freund"), ("teacher", "Lehrer"),
    ("book", "Buch"), ("house", "Haus"), ("garden", "Garten"), ("kitchen", "Küche"),
    ("child", "Kind"), ("woman", "Frau"), ("man", "Mann"), ("dog", "Hund"), ("cat", "Katze"),
    ("car", "Auto"), ("letter", "Brief"), ("doctor", "Arzt"), ("girl", "Mädchen"),
    ("new", "neu"), ("old", "alt"), ("and", "und"), ("not", "nicht"), ("tomorrow", "morgen"),
    ("today", "heute"), ("yesterday", "gestern"), ("because", "weil"), ("if", "wenn"),
]  # fmt: skip
known = [(token(a), token(b)) for a, b in dictionary]
known = [pair for pair in known if None not in pair]
english, german = map(list, zip(*known))


def centred(vectors):
    vectors = vectors - vectors.mean(0)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


for name, table in unit.items():
    nearest = (centred(table[english]) @ centred(table[german]).T).argmax(1)
    right = np.mean(nearest == np.arange(len(known)))
    print(f"{name:7} {right:.0%} of {len(known)} pairs; chance {1 / len(known):.0%}")

# %% [markdown]
# And analogies: the way from one word to its translation, walked from another word, should lead to
# the translation of that one. Of all such fours, how often is the nearest German word of the list
# the right one (not counting the one whose way was taken)?

# %%
for name, table in unit.items():
    hits, total = 0, 0
    theirs, ours = centred(table[english]), centred(table[german])
    for i in range(len(known)):
        for j in range(len(known)):
            if i != j:
                scores = ours @ (theirs[j] + ours[i] - theirs[i])
                scores[i] = -np.inf
                hits, total = hits + (scores.argmax() == j), total + 1
    print(f"{name:7} {hits / total:.0%} of {total} analogies; chance {1 / (len(known) - 1):.0%}")

# %% [markdown]
# Little more than chance, both: this model has seen few words, in sentences of one grammar, and
# nothing asks it to put "Mutter" where "mother" is; in the embedding a word is near those that can
# stand in its place.
#
# ## What is a head worth?
#
# Take one head away (its rows of W^O become zero, so what it found is not added), translate again,
# and see what BLEU loses. (300 sentences: a few tenths are chance.)

# %%
few = pairs[:300]
texts, references = [source for source, _ in few], [target for _, target in few]
greedy = replace(config, decode=replace(config.decode, beam_size=1))


def score_of(params):
    return bleu(translate(make_translator(greedy, params, tokenizers), texts), references, "de")


def without_head(stack, attention, layer, head):
    """The parameters with one head's part of W^O set to zero."""
    layers = getattr(params, stack).layers
    theirs = getattr(layers, attention)
    muted = theirs.replace(w_o=theirs.w_o.at[layer, head].set(0))
    changed = getattr(params, stack).replace(layers=layers.replace(**{attention: muted}))
    return params.replace(**{stack: changed})


whole = score_of(params)
kinds = {
    "encoder": ("encoder", "self_attention"),
    "masked": ("decoder", "self_attention"),
    "cross": ("decoder", "cross_attention"),
}
rows, losses = [], []
for name, (stack, attention) in kinds.items():
    for layer in range(getattr(config.model, f"{stack}_layers")):
        rows.append(f"{name}, layer {layer + 1}")
        losses.append(
            [
                whole - score_of(without_head(stack, attention, layer, head))
                for head in range(config.model.num_heads)
            ]
        )
losses = np.array(losses)
figure, axes = plt.subplots(figsize=(6, 4.2), layout="constrained")
axes.imshow(np.maximum(losses, 0), cmap="Reds")
for (row, column), loss in np.ndenumerate(losses):
    colour = "white" if loss > losses.max() / 2 else "black"
    axes.text(column, row, f"{loss:.1f}", ha="center", va="center", color=colour)
axes.set_yticks(range(len(rows)), rows)
axes.set_xticks(
    range(config.model.num_heads), [f"head {n + 1}" for n in range(config.model.num_heads)]
)
axes.set_title(f"BLEU lost, of {whole:.1f}")
plt.show()
least = np.sum(losses < 0.5)
print(f"{least} of {losses.size} heads can go alone for less than half a point;")
print(f"the one that is missed most costs {losses.max():.1f}")

# %% [markdown]
# ## What to read next
#
# - `transformer/viewing/` makes the maps and the plots; `transformer/decoding/alignment.py` the
#   links.
# - `python translate.py RUN --alignments` prints such links for a whole file.
