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
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/)
#
# This notebook looks inside a trained translator from English to German: where its attention goes,
# which heads it needs, how beam search grows a tree, what its embeddings have learned, and how a
# fact in a feed-forward layer can be changed. The trained weights come with the project, in
# `notebooks/weights/quickstart`; `03_train_a_translator` shows how they were trained. No German is
# needed: German words have their English meaning beside them. Five exercises and a quiz have folded
# solutions. All runs in about a minute on two CPU cores.
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
import re
from collections import Counter
from dataclasses import replace
from functools import partial
from itertools import islice

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from matplotlib import patheffects

from notebooks.exercises import check, check_each
from transformer.data.batching import pad, pad_sources
from transformer.data.corpus import read_pairs
from transformer.data.datasets.phrasebook.grammar import LEXICON
from transformer.decoding.alignment import word_attention, word_weights
from transformer.decoding.scoring import log_probabilities, score_pairs, shifted
from transformer.decoding.translator import best_hypotheses, make_translator, translate
from transformer.interchange.model import load_plain
from transformer.machine import devices
from transformer.model import encoder_decoder as model
from transformer.model import layers
from transformer.model.batch import BOS, EOS
from transformer.model.params import init_params, tables, unstack
from transformer.viewing.attention import attention_maps
from transformer.viewing.beam import beam_steps
from transformer.viewing.plots import draw_beam, draw_heads, draw_weights
from transformer.viewing.widgets import attention_widget, beam_widget

# %%
devices.configure_devices("any")  # compiled programs are kept for the next start
jax.config.update("jax_default_matmul_precision", "highest")  # 32 bits on accelerators too
np.set_printoptions(precision=3, suppress=True)
trained = load_plain(Path("notebooks/weights/quickstart"))
config, params, tokenizers = trained.config, trained.params, trained.tokenizers
translator = make_translator(config, params, tokenizers)

sentence = "We know that the girl bought a new book yesterday."
[found] = best_hypotheses(translator, [sentence])
print(sentence)
print(found.text)

# %% [markdown]
# ## What attends to what
#
# A model has three kinds of attention: one in each layer of the encoder, two in each layer of the
# decoder. Each of them has four heads here, and each head computes its own weights, with the
# softmax of equation 1 (`attend` in `transformer/model/layers.py`):
#
# $$A = \mathrm{softmax}\left(\frac{Q K^\top}{\sqrt{d_k}}\right)$$
#
# A row of $A$ belongs to a query and says how the query divides its attention among the keys. Each
# row therefore sums to 1. `▁` marks the beginning of a word: the small vocabulary splits rare words
# into pieces.
#
# **Encoder**: each English piece attends to all pieces, before and after it.


# %%
def show_heads(attention, layer, rows="query: the piece that attends"):
    """Every head of a layer, side by side."""
    figure = plt.figure(figsize=(15, 5), layout="compressed")
    draw_heads(figure, attention, layer)
    figure.suptitle("Attention weights, from 0 (white) to 1")
    figure.supxlabel("key: the piece that is attended to")
    figure.supylabel(rows)
    plt.show()


encoder, masked, cross = attention_maps(config.model, params, tokenizers, sentence, found.text)
for attention in (encoder, masked, cross):
    np.testing.assert_allclose(attention.weights.sum(-1), 1, atol=1e-5)
show_heads(encoder, -1)
later = np.triu(encoder.weights, 1).sum() / encoder.weights.sum()
print(f"share of the attention that goes to later pieces: {later:.0%}")
assert later > 0.1

# %% [markdown]
# **Masked self-attention**: each German piece attends to itself and to the pieces before it. The
# mask makes every weight above the diagonal exactly zero.

# %%
show_heads(masked, -1)
print("the largest weight above the diagonal:", np.triu(masked.weights, 1).max())
assert np.triu(masked.weights, 1).max() == 0

# %% [markdown]
# **Cross-attention**: where the decoder looks in the English sentence while it predicts each German
# piece: columns are English pieces, rows are German pieces that are about to be written. (The query
# of a row comes from the piece before it.) The last layer, which is drawn, is sharper than the
# first one: its rows have larger weights (the numbers below the figure).

# %%
show_heads(cross, -1, rows="the German piece that is about to be written")
sharpness = cross.weights.max(-1).mean((1, 2))
print("mean of the largest weight in each row, layer by layer:", sharpness)
assert sharpness[-1] > sharpness[0]

# %% [markdown]
# ### A sentence of your own
#
# Change the sentence. Below it, two heads stand side by side, and you choose the model, the kind of
# attention, the layer and the head of each; at first the same head before training, when all
# weights are random, and after it. Point at a cell to read its weight. The model knows the everyday
# words of its phrasebook, and makes nonsense of words that it has never seen.

# %%
own_sentence = "My brother is reading a letter because he is happy."

[translation] = translate(translator, [own_sentence])
print(own_sentence)
print(translation)
untrained = jax.jit(partial(init_params, config.model))(jax.random.key(0))
attention_widget(
    {
        name: attention_maps(config.model, weights, tokenizers, own_sentence, translation)
        for name, weights in {"before training": untrained, "after training": params}.items()
    }
)

# %% [markdown]
# ### What a head of cross-attention reads
#
# The queries of cross-attention come from the decoder, the keys and values from the encoder. We
# compute the input of the first cross-attention with the functions of the model: `states`, one row
# for each German position, and `memory`, one row for each English position. (This model is
# pre-norm: `layer_norm` comes before each sublayer, see section 6 of `02_transformer`. Its
# positions are rotary, see section 5 there: self-attention rotates queries and keys,
# cross-attention does not.)


# %%
def after_self_attention(layer, x, context):
    """The residual stream of a layer after its first sublayer."""
    y = layers.layer_norm(config.model, layer.self_attention_norm, x)
    kv = layers.key_value(layer.self_attention, y, context.positions)
    attended, _ = layers.multi_head_attention(
        layer.self_attention, y, kv, context.mask, positions=context.positions
    )
    return x + attended


@jax.jit
def inputs_of_cross_attention(params, source, target_in):
    """The states [T, D] and the memory [S, D] that the first cross-attention reads."""
    memory = model.encode(config.model, params, source)
    context = model.context_of(layers.causal_mask(target_in.shape[1]))
    x = model.embed_target(config.model, params.embedding, target_in, context.positions)
    first = unstack(params.decoder)[0]
    x = after_self_attention(first, x, context)
    return layers.layer_norm(config.model, first.cross_attention_norm, x)[0], memory.states[0]


[source_ids] = tokenizers.source.encode([sentence])
[target_ids] = tokenizers.target.encode([found.text])
both = jnp.array([[*source_ids, EOS]]), jnp.array([[BOS, *target_ids]])
states, memory = inputs_of_cross_attention(params, *both)
first = unstack(params.decoder)[0].cross_attention
w_q, w_k, w_v = first.w_q[:, 0], first.w_k[:, 0], first.w_v[:, 0]
print("states", states.shape, "memory", memory.shape, "W^Q, W^K, W^V of head 1", w_q.shape)

# %% [markdown]
# ### Exercise 1: one head of cross-attention, by yourself
#
# Multiply `states` and `memory` by the matrices of the first head, `w_q`, `w_k` and `w_v`, call
# `layers.attention(q, k, v)` (equation 1), which returns outputs and weights, and compare your
# weights with those of the first layer (`cross.weights[0, 0]`). You learn which side each matrix
# belongs to.

# %% tags=["exercise"]
weights_of_head_1 = ...

check(weights_of_head_1, cross.weights[0, 0])

# %% cellView="form" jupyter={"source_hidden": true} tags=["solution", "hide-input"]
# @title Solution
_, weights_of_head_1 = layers.attention(states @ w_q, memory @ w_k, memory @ w_v)
check(weights_of_head_1, cross.weights[0, 0])

# %% [markdown]
# ## Which noun does "it" mean?
#
# German has three genders, and "it" is *er* for a masculine noun, *sie* for a feminine one and *es*
# for a neuter one: the key is *der Schlüssel*, the lamp *die Lampe*, the picture *das Bild*. To
# translate "it" a model has to know which noun it stands for. We put one noun after the other into
# the same sentence. (`LEXICON` has the words from which the training sentences were made.)

# %%
PRONOUNS = {"m": "er", "f": "sie", "n": "es"}


def token(word):
    """The id of a word that is a piece of its own, or None."""
    [ids] = tokenizers.source.encode([word])
    return ids[0] if len(ids) == 1 else None


def share_right(translated):
    """The share of the translations that have the pronoun of the right gender."""
    pairs = zip(things, translated)
    return np.mean([f" weil {PRONOUNS[noun.gender]} " in text for noun, text in pairs])


nouns = [noun for noun in LEXICON["noun"] if token(noun.english) is not None]
things = [noun for noun in nouns if "thing" in noun.classes.split()]
with_it = [f"The woman sold the {noun.english} because it was old." for noun in things]

# %%
decode_greedily = replace(config.decode, beam_size=1, max_extra_length=10)
greedy = replace(config, decode=decode_greedily)  # likeliest token each time, at most 10 too many
translations = best_hypotheses(make_translator(greedy, params, tokenizers), with_it)
for text, one in list(zip(with_it, translations))[:3]:
    print(text, "|", one.text)
right_pronouns = share_right([one.text for one in translations])
print(f"the right pronoun in {right_pronouns:.0%} of {len(with_it)} sentences")
assert right_pronouns > 0.9

# %% [markdown]
# Which heads attend to the noun? The left panel below shows the row of "it" in the encoder, and the
# middle one the row of cross-attention that predicts the pronoun. The right one is the same row of
# the decoder's masked self-attention. It sums the weights of the German words before the article of
# the noun, of the article, of the noun and of the words after it. All are means over the sentences.

# %%
source = pad_sources(tokenizers.source.encode(with_it), len(with_it), 16)
target = pad([one.tokens for one in translations], len(with_it), 24)
run_encoder, decode = (jax.jit(partial(f, config.model)) for f in (model.run_encoder, model.decode))
encoded, encoder_weights = run_encoder(params, source)
_, _, decoder_weights = decode(params, encoded, shifted(target))

pieces = tokenizers.source.pieces([int(n) for n in source[0] if n])
noun_at, it_at = pieces.index(f"▁{things[0].english}"), pieces.index("▁it")
known = [tokenizers.target.encode([pronoun])[0][0] for pronoun in PRONOUNS.values()]
pronoun_at = [max(np.flatnonzero(np.isin(row, known))) for row in target]

every = np.arange(len(with_it))  # the sentences
of_it = np.asarray(encoder_weights.own)[:, :, :, it_at].mean(1)
of_pronoun = np.asarray(decoder_weights.cross)[:, every, :, pronoun_at].mean(0)

[hat], [sold] = tokenizers.target.encode(["hat", "verkauft"])  # the object stands between them
own_weights = np.asarray(decoder_weights.own)[:, every, :, pronoun_at]  # [B, layers, H, T]
sums = []
for german, weights in zip(shifted(target).tolist(), own_weights):
    article = german.index(hat) + 1
    begins = [0, article, article + 1, german.index(sold)]
    sums.append(np.add.reduceat(weights, begins, axis=-1))
of_words = np.mean(sums, 0)  # before, article, noun, after

_, untrained_weights = run_encoder(untrained, source)
of_it_before = np.asarray(untrained_weights.own)[:, :, :, it_at].mean(1)
print(f"most attention of 'it' to the noun: {of_it[..., noun_at].max():.2f} by one head;", end=" ")
print(f"before training {of_it_before[..., noun_at].max():.2f}")
assert of_it_before[..., noun_at].max() < 0.3

# %%
columns = [*pieces[:noun_at], "NOUN", *pieces[noun_at + 1 : -1], "<end>"]
rows = [f"layer {n + 1}, head {m + 1}" for n, m in np.ndindex(of_it.shape[:2])]
WORDS = ["before", "article", "NOUN", "after"]
shown = {
    "encoder": (of_it[..., : len(columns)], columns),
    "cross-attention": (of_pronoun[..., : len(columns)], columns),
    "masked self-attention": (of_words, WORDS),
}
widths = [len(words) for _, words in shown.values()]
figure, panels = plt.subplots(
    1, 3, figsize=(15, 5), sharey=True, layout="compressed", width_ratios=widths
)
for axes, (title, (weights, words)) in zip(panels, shown.items()):
    draw_weights(axes, weights.reshape(len(rows), -1), rows, words, title)
    axes.set(xlabel="key", ylabel="head")
figure.suptitle("Attention of 'it' and of its translation, from 0 (white) to 1")
plt.show()
on_noun = {"encoder": of_it[..., noun_at], "decoder": of_words[..., 1:3].sum(-1)}
assert min(weights.max() for weights in on_noun.values()) > 0.4
assert of_pronoun[..., noun_at].max() < 0.1 < 0.9 < of_pronoun[..., it_at].max()

# %% [markdown]
# Two heads of the encoder carry the noun to "it", where cross-attention fetches it: three of its
# heads in layer 2 go to "it", none to the noun. Two heads of masked self-attention go to the German
# article, which the model has already written: *den* is masculine, so the pronoun is *er*. Does the
# model need both ways? Attention weights alone do not tell; an experiment does. We remove heads:
# the rows of $W^O$ that belong to a head become zero, so that nothing of it is added to the
# residual stream. As a control, we remove the heads of both kinds that attend to the noun and its
# article least.


# %%
def without_head(params, stack, attention, layer, head):
    """The parameters with one head's part of W^O set to zero."""
    layers_of_stack = getattr(params, stack).layers
    theirs = getattr(layers_of_stack, attention)
    changed = theirs.replace(w_o=theirs.w_o.at[layer, head].set(0))
    changed = getattr(params, stack).replace(layers=layers_of_stack.replace(**{attention: changed}))
    return params.replace(**{stack: changed})


def heads_on_noun(stack, ranks):
    """Heads of self-attention, by their weight on the noun: those of these ranks."""
    weights = on_noun[stack]
    chosen = np.argsort(-weights, axis=None)[ranks]
    return [(stack, "self_attention", *np.unravel_index(n, weights.shape)) for n in chosen]


of_encoder, of_decoder = (heads_on_noun(stack, slice(2)) for stack in on_noun)
removals = {
    "nothing": [],
    "one head of the encoder": of_encoder[:1],
    "two heads of the encoder": of_encoder,
    "two heads of the decoder": of_decoder,
    "these four": of_encoder + of_decoder,
    "four others": [head for stack in on_noun for head in heads_on_noun(stack, slice(-2, None))],
}

# %%
shares = {}
for name, removed in removals.items():
    weakened = params
    for head in removed:
        weakened = without_head(weakened, *head)
    translated = translate(make_translator(greedy, weakened, tokenizers), with_it)
    shares[name] = share_right(translated)
    written = Counter(re.findall(r" weil (er|sie|es) ", " ".join(translated)))
    print(f"{name + ' removed':32} {shares[name]:4.0%} right: {dict(written)}")
assert min(shares.values()) == shares["these four"] < 0.5
assert all(share > 0.9 for name, share in shares.items() if name != "these four")

# %% [markdown]
# So there are two ways to the pronoun: from the English noun and from the German article. One of
# them suffices. Without both, the model writes *er* for every noun, which is right for the
# masculine ones. So a dark cell in a map of attention says that information *may* flow there. Only
# a removal shows whether the model depends on it.
#
# ## German verbs go to the end
#
# "bought" stands in the middle of the English sentence. In a German clause after *dass* (that), the
# participle and its auxiliary come last: *dass das Mädchen gestern ein neues Buch gekauft hat*
# (that the girl yesterday a new book bought has). We average cross-attention over the heads of all
# layers but the first; `word_weights` joins pieces to words. The English word with the largest
# weight is a link: where the German word comes from, as far as attention shows it.

# %%
mean = cross.weights[1:].mean((0, 1))  # [German pieces, English pieces]
word_table = word_weights(mean, cross.columns[:-1], cross.rows[:-1])  # without the end
english_words, german_words = sentence.split(), found.text.split()
links = word_table.argmax(1)
for german, place in zip(german_words, links):
    print(f"{german:10} from  {english_words[place]}")
figure, axes = plt.subplots(figsize=(5, 5), layout="constrained")
draw_weights(axes, word_table, german_words, english_words, "mean attention, 0 (white) to 1")
axes.set(xlabel="English word", ylabel="German word that is predicted")
plt.show()
assert found.text.endswith("dass das Mädchen gestern ein neues Buch gekauft hat.")
assert english_words[links[-2]] == "bought"
assert links[-2] < links[-3]  # back to the left

# %% [markdown]
# *gekauft* goes back to "bought". The auxiliary *hat* (has) has no English word of its own here, so
# that its link says little. Not every link is the one that a person would draw.
#
# Is that so in general? We take sentences of the test set whose translation ends in a participle
# and an auxiliary, and let the model read the given translation (`word_attention` does the above
# for many sentences). The lexicon knows the English verb of each participle, so that we can count
# how often the link is right; and how often the decoder goes back to the left, for the participle
# and for the words before it.

# %%
verbs = {}
for verb in LEXICON["verb"]:
    forms = verbs.setdefault(verb.german.split()[4], set())
    forms.update([*verb.english.split(), *verb.particle.split()])
AUXILIARIES = (" hat.", " haben.", " habe.", " hast.", " ist.", " sind.", " bin.", " bist.")
pairs = list(read_pairs(config.data, "test"))
encoded_pairs = [side.encode(texts) for side, texts in zip(tokenizers, zip(*pairs))]
ends = [
    (source, [*ids, EOS])
    for (source, target), *lengths, ids in zip(pairs, *encoded_pairs, encoded_pairs[1])
    if target.endswith(AUXILIARIES) and target.split()[-2] in verbs
    if all(16 <= len(row) < 24 for row in lengths)  # of one shape, so that one program suffices
]
print(len(ends), "sentences, for example:", ends[0][0])

# %%
is_right, back = [], {"the participle": [], "a word before it": []}
for [words] in word_attention(translator, *zip(*ends)):
    links, participle = words.weights.argmax(1), len(words.target) - 2
    is_right.append(words.source[links[participle]].strip(".,?") in verbs[words.target[participle]])
    moves = np.diff(links[: participle + 1]) < 0
    back["a word before it"] += [*moves[:-1]]
    back["the participle"].append(moves[-1])
print(f"the participle is linked to its verb in {np.mean(is_right):.0%}")
for name, went in back.items():
    print(f"{name} goes back to the left in {np.mean(went):.0%} of {len(went)} cases")
assert np.mean(is_right) > 0.9
assert np.mean(back["the participle"]) > 0.7 > 0.3 > np.mean(back["a word before it"])

# %% [markdown]
# ## The beam as a tree
#
# Greedy search takes the likeliest token each time and cannot take it back. Beam search keeps the
# four likeliest beginnings after each token. It compares finished translations $y$ of different
# lengths by a normalised score, where `length_penalty` is the denominator and $\alpha = 0.6$:
#
# $$s(y) = \frac{\log P(y \mid x)}{\left((5 + |y|) / 6\right)^\alpha}, \qquad
# \log P(y \mid x) = \sum_t \log P(y_t \mid y_{<t}, x)$$
#
# We take the short sentences with the lowest greedy scores, and look for one where beam search
# finds a translation with a better score. (Even of these, most have the same translation.)

# %%
short = [pair for pair, ids in zip(pairs, encoded_pairs[0]) if len(ids) < 16][:320]
by_greedy = best_hypotheses(
    make_translator(greedy, params, tokenizers), [text for text, _ in short]
)
unsure = sorted(zip(short, by_greedy), key=lambda one: one[1].score)[:32]
better, same = [], 0
for (text, reference), of_greedy in unsure:
    [of_beam] = best_hypotheses(translator, [text])
    same += of_beam.text == of_greedy.text
    if of_beam.text != of_greedy.text and of_beam.score > of_greedy.score:
        better.append((of_beam.text != reference, len(text), text, of_greedy, of_beam))
print(f"{same} of {len(unsure)} translations are the same;", end=" ")
print(f"{len(better)} have a better score;", end=" ")
print(f"{sum(not is_other for is_other, *_ in better)} of these are the reference")
assert better and same > len(unsure) / 2
*_, question, of_greedy, of_beam = min(better, key=lambda one: one[:2])
print(question)
print(f"greedy {of_greedy.score:.2f}  {of_greedy.text}")
print(f"beam   {of_beam.score:.2f}  {of_beam.text}")

# %% [markdown]
# A better score is no promise: the model can be wrong about what is likely. The tree below has a
# column for each token, the likeliest beginning on top. A line leads from each beginning to its
# continuations; the translation is in bold and blue. (The end of a sentence is a token, too, and
# not drawn: finished translations are kept apart.)

# %%
steps = beam_steps(translator, question)
figure, axes = plt.subplots(figsize=(15, 3), layout="constrained")
draw_beam(
    axes,
    steps[: len(of_beam.tokens) - 1],  # the last token is the end
    lambda number: tokenizers.target.pieces([number])[0].replace("▁", "") or "▁",
    of_beam.tokens,
)
axes.set_title("The beam, token by token from left to right, the likeliest beginning on top")
plt.show()
print("kept after the third token, with their probabilities:")
for kept, log_prob in steps[2]:
    print(f"  {np.exp(log_prob):6.2%}  {tokenizers.target.decode([list(kept)])[0]}")
assert all(len(step) <= config.decode.beam_size for step in steps)

# %% [markdown]
# Or one token at a time:

# %%
beam_widget(steps, tokenizers.target, of_beam.tokens)

# %% [markdown]
# `score_pairs` reads a translation at once and returns the log-probability of each token, the end
# included:

# %%
scored = score_pairs(translator, [question] * 2, [of_greedy.text, of_beam.text])
log_probs = [np.array(one.log_probs) for one in scored]
for name, numbers in zip(("greedy", "beam"), log_probs):
    print(f"{name:6} {len(numbers)} tokens: {numbers}")

# %% [markdown]
# ### Exercise 2: the score of a translation, by hand
#
# Compute $s(y)$ of both translations from these numbers, with the formula above. You learn what the
# denominator is for: every token lowers the sum, and longer translations would lose by their length
# alone.

# %% tags=["exercise"]
scores = ...  # a list: of the greedy translation, of the beam's

check(scores, [of_greedy.score, of_beam.score])

# %% cellView="form" jupyter={"source_hidden": true} tags=["solution", "hide-input"]
# @title Solution
scores = [numbers.sum() / ((5 + len(numbers)) / 6) ** 0.6 for numbers in log_probs]
check(scores, [of_greedy.score, of_beam.score])

# %% [markdown]
# ### Exercise 3: a sentence that the model translates wrongly
#
# The model has learned from sentences of one grammar and some hundred words. Find an English
# sentence with one of the words below, whose translation lacks the German word for it. You learn
# what a small model cannot know.

# %% tags=["exercise"]
WORDS = {"dog": "Hund", "book": "Buch", "plays": "spielt", "king": "König", "ship": "Schiff"}
english = ...  # a sentence
word = ...  # the word of it, in English, that is missing in the translation


def is_missing(english, word):
    """Whether the translation of the sentence lacks the German word."""
    if ... in (english, word):
        return ...
    assert word in WORDS, f"{word} is not in the list: {', '.join(WORDS)}"
    assert word in re.findall(r"\w+", english.lower()), f"{word} is not in the sentence"
    [translation] = translate(translator, [english])
    print(f"{translation}\n{WORDS[word]} is", "in it" * (WORDS[word] in translation) or "missing")
    return WORDS[word] not in translation


check(is_missing(english, word), True)

# %% cellView="form" jupyter={"source_hidden": true} tags=["solution", "hide-input"]
# @title Solution
english, word = "The king loves the queen.", "king"
check(is_missing(english, word), True)

# %% [markdown]
# ## What embeddings have learned
#
# One table serves English and German (section 3.4 of the paper). Before training its rows are
# random. After training, the rows of words that are used alike lie in similar directions. The angle
# between two rows measures it:
#
# $$\cos\theta = \frac{a \cdot b}{\lVert a \rVert\,\lVert b \rVert}$$
#
# We divide every row by its length. Then the product of two rows is the cosine, and the nearest
# rows are those with the largest products.

# %%
rows = {
    "before": tables(untrained.embedding).source,
    "after": tables(params.embedding).source,
}
unit = {name: np.asarray(x / jnp.linalg.norm(x, axis=1, keepdims=True)) for name, x in rows.items()}


def neighbours(table, word, count=5):
    nearest = np.argsort(-table @ table[token(word)])[1 : count + 1]
    return " ".join(tokenizers.source.pieces([int(n) for n in nearest])).replace("▁", "")


for word in ("tomorrow", "green", "Anna", "mother", "kitchen"):
    for name, table in unit.items():
        print(f"{word:9} {name:7} {neighbours(table, word)}")


# %%
def angle(first, second):
    """The angle between two words after training, in degrees."""
    return np.degrees(np.arccos(unit["after"][token(first)] @ unit["after"][token(second)]))


for first, second in (("mother", "sister"), ("green", "grey"), ("mother", "green")):
    print(f"{first} and {second}: {angle(first, second):.0f} degrees")
assert max(angle("mother", "sister"), angle("green", "grey")) < angle("mother", "green") - 10

# %% [markdown]
# Nouns, adjectives and verbs can be seen in two dimensions: those in which the rows differ most
# (principal components: the first rows of $V^\top$ in the singular value decomposition of the
# centred table). Names lie among other words there; more dimensions separate them, too. We also
# count how often the four nearest neighbours of a word, among all words of the figure, are
# of its own class. (Words that the vocabulary splits into pieces, as most determiners, have no row
# of their own and are left out.)

# %%
CLASSES = {
    "nouns": [noun.english for noun in nouns],
    "adjectives": [row.english for row in LEXICON["adjective"]],
    "verbs": [row.english.split()[0] for row in LEXICON["verb"]],
    "names": [row.english for row in LEXICON["name"]],
    "times": ["yesterday", "today", "tomorrow", "now", "later", "Sunday", "Monday", "Friday"],
}
in_classes = [word for words in CLASSES.values() for word in set(words)]
of_class = {
    word: name
    for name, words in CLASSES.items()
    for word in words
    if token(word) is not None and in_classes.count(word) == 1
}

# %%
numbers, kinds = [token(word) for word in of_class], np.array([*of_class.values()])


def in_two_dimensions(vectors):
    centred = vectors - vectors.mean(0)
    return centred @ np.linalg.svd(centred, full_matrices=False)[2][:2].T


def label_some(axes, places, words):
    """The names of words that are not too close to each other."""
    scaled, named = (places - places.min(0)) / np.ptp(places, 0), []
    outline = [patheffects.withStroke(linewidth=2, foreground="white")]
    names = [*words]
    for number in np.random.default_rng(0).permutation(len(names)):
        gaps = np.abs(scaled[named] - scaled[number]) / (0.12, 0.05)  # width and height of a name
        if (gaps.max(-1) > 1).all() and len(named) < 25:
            named.append(number)
            offset = {"textcoords": "offset points", "xytext": (4, 4)}
            axes.annotate(names[number], places[number], **offset, fontsize=8, path_effects=outline)


def share_of_own_class(vectors):
    products = vectors @ vectors.T - 2 * np.eye(len(vectors))
    nearest = np.argsort(-products)[:, :4]
    return {name: (kinds[nearest] == name)[kinds == name].mean() for name in CLASSES}


# %%
LOOKS = dict(zip(CLASSES, zip(("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#000000"), "os^DX")))
figure, panels = plt.subplots(1, 2, figsize=(14, 5.5), layout="constrained")
for axes, (name, table) in zip(panels, unit.items()):
    places = in_two_dimensions(table[numbers])
    for kind, (colour, marker) in LOOKS.items():
        axes.scatter(*places[kinds == kind].T, s=30, color=colour, marker=marker, label=kind)
    label_some(axes, places, of_class)
    axes.set(xlabel="first component", ylabel="second component", title=f"{name} training")
    share = share_of_own_class(table[numbers])
    print(f"{name:7}", {kind: f"{one:.0%}" for kind, one in share.items()})
    assert (min(share.values()) > 0.7) if name == "after" else (np.mean([*share.values()]) < 0.4)
panels[1].legend()
plt.show()

# %% [markdown]
# ### English nouns with a German gender
#
# English nouns have no gender, but their translations do: *die Lampe*, *der Schlüssel*, *das Buch*.
# The translator has to know it for every article, adjective and pronoun. Its table shows this. The
# two components below are computed from the English nouns alone, without their genders; only the
# colours tell the gender of the German word.
#
# To count it, we guess the gender of each noun from the others: that of the nearest mean.


# %%
def guessed(vectors, genders):
    """For each row the gender whose mean, of all other rows, is nearest."""
    guesses = []
    for number, vector in enumerate(vectors):
        others = np.arange(len(vectors)) != number
        means = [vectors[others & (genders == gender)].mean(0) for gender in "mfn"]
        guesses.append("mfn"[np.argmin([np.linalg.norm(vector - mean) for mean in means])])
    return np.array(guesses)


genders = np.array([noun.gender for noun in nouns])
own_rows = [token(noun.english) for noun in nouns]
for name, table in unit.items():
    accuracy = np.mean(guessed(table[own_rows], genders) == genders)
    print(f"{name:7} the gender of {accuracy:.0%} of {len(nouns)} nouns is guessed right")
    assert accuracy > 0.85 if name == "after" else accuracy < 0.5

# %%
gender_names = {"m": "masculine (der)", "f": "feminine (die)", "n": "neuter (das)"}
figure, panels = plt.subplots(1, 2, figsize=(14, 5.5), layout="constrained")
for axes, (name, table) in zip(panels, unit.items()):
    places = in_two_dimensions(table[own_rows])
    for gender, (colour, marker) in zip("mfn", LOOKS.values()):
        where = places[genders == gender]
        axes.scatter(*where.T, s=30, color=colour, marker=marker, label=gender_names[gender])
    label_some(axes, places, [noun.english for noun in nouns])
    axes.set(xlabel="first component", ylabel="second component", title=f"{name} training")
panels[1].legend()
plt.show()

# %%
feminine_rows = unit["after"][own_rows][genders == "f"]
masculine_rows = unit["after"][own_rows][genders == "m"]
f, m = feminine_rows.mean(0), masculine_rows.mean(0)

# %% [markdown]
# ### Exercise 4: a direction for the gender
#
# Let $f$ be the mean of `feminine_rows` (`f`) and $m$ that of `masculine_rows` (`m`). The vector
# $f - m$ is a direction, and $(f + m) / 2$ is the middle. The distance of a row $x$ from the plane
# between both is
#
# $$\left(x - \frac{f + m}{2}\right) \cdot \frac{f - m}{\lVert f - m \rVert},$$
#
# positive on the feminine side. Compute it for all feminine rows, and then the share of all rows,
# feminine and masculine, that lie on their own side. You learn what a linear probe is. (The check
# uses the distances of each row to $f$ and to $m$. Why is that the same?)

# %% tags=["exercise"]
distances = ...  # of the feminine rows
share_on_own_side = ...

nearer_f, nearer_m = (
    ((rows - m) ** 2).sum(1) - ((rows - f) ** 2).sum(1) for rows in (feminine_rows, masculine_rows)
)
of_plane = {
    "distances": nearer_f / 2 / np.linalg.norm(f - m),
    "share": np.mean([*(nearer_f > 0), *(nearer_m < 0)]),
}
check_each({"distances": distances, "share": share_on_own_side}, of_plane, tolerance=1e-3)

# %% cellView="form" jupyter={"source_hidden": true} tags=["solution", "hide-input"]
# @title Solution
direction = (f - m) / np.linalg.norm(f - m)
distances = (feminine_rows - (f + m) / 2) @ direction
of_masculine_rows = (masculine_rows - (f + m) / 2) @ direction
share_on_own_side = np.mean([*(distances > 0), *(of_masculine_rows < 0)])
print(f"{share_on_own_side:.0%}")
check_each({"distances": distances, "share": share_on_own_side}, of_plane, tolerance=1e-3)

# %% [markdown]
# Each row is a part of its own mean, so this share is too high: rows of random numbers reach most
# of it. The count above, which leaves each row out of the means, is the fair one.

# %%
random_rows = np.random.default_rng(0).normal(size=(len(genders), feminine_rows.shape[1]))
f_random, m_random = (random_rows[genders == gender].mean(0) for gender in "fm")
on_own_side = [
    (((row - f_random) ** 2).sum() < ((row - m_random) ** 2).sum()) == (gender == "f")
    for row, gender in zip(random_rows, genders)
    if gender in "fm"
]
print(f"random rows: {np.mean(on_own_side):.0%}")
assert 0.6 < np.mean(on_own_side) < share_on_own_side

# %% [markdown]
# ### What they have not learned
#
# Two properties that other embeddings are known for are missing here. *king - man + woman = queen*:
# this model has never read "king", which is even split into pieces. With pairs that it knows, such
# as *uncle - man + woman*, the nearest noun is seldom the right one ("aunt"), although it is
# feminine. The angle between a man and a woman does not say whether they are a pair, and the steps
# from him to her are far from parallel. And the nearest German noun of an English noun is hardly
# ever its translation.

# %%
PAIRS = "man woman, father mother, brother sister, son daughter, uncle aunt, waiter waitress"
family = [pair.split() for pair in PAIRS.split(", ")]
table, names = unit["after"], [noun.english for noun in nouns]
hits, feminine = [], []
for he, she in family:
    for other_he, other_she in family:
        if he != other_he:
            wanted = table[token(other_he)] - table[token(he)] + table[token(she)]
            products = table[own_rows] @ wanted
            products[[names.index(word) for word in (he, she, other_he)]] = -np.inf
            hits.append(names[products.argmax()] == other_she)
            feminine.append(genders[products.argmax()] == "f")
of_pairs = [angle(*pair) for pair in family]
unrelated = [angle(he, she) for he, _ in family for _, she in family if [he, she] not in family]
print(f"angles of the pairs: {min(of_pairs):.0f} to {max(of_pairs):.0f} degrees;", end=" ")
print(f"of other men and women: {min(unrelated):.0f} to {max(unrelated):.0f}")
assert min(unrelated) < max(of_pairs)  # the angle does not tell who belongs together
steps_between = np.array([table[token(she)] - table[token(he)] for he, she in family])
steps_between /= np.linalg.norm(steps_between, axis=1, keepdims=True)
cosines = (steps_between @ steps_between.T)[np.triu_indices(len(family), 1)]
print(
    f"cosine of the steps from he to she: {cosines.min():.2f} to {cosines.max():.2f} (parallel: 1)"
)
assert cosines.max() < 0.6
print("pieces of king:", tokenizers.source.pieces(tokenizers.source.encode(["king"])[0]))
print(f"analogies: {np.mean(hits):.0%} right, {np.mean(feminine):.0%} feminine, of {len(hits)}")

both = [noun for noun in nouns if token(noun.german) is not None]
english_rows, german_rows = (
    table[[token(getattr(noun, side)) for noun in both]] for side in ("english", "german")
)
translated = np.mean((english_rows @ german_rows.T).argmax(1) == np.arange(len(both)))
print(f"translations: {translated:.0%} right of {len(both)}, chance {1 / len(both):.1%}")
assert "king" not in [noun.english for noun in LEXICON["noun"]]
assert np.mean(hits) < 0.5 < np.mean(feminine) and translated < 0.1

# %% [markdown]
# The reason: nothing in the loss asks for it. An English row is read by the encoder alone. A German
# row is read by the decoder, and compared with its last states; nothing compares it with an English
# row. The layers between them translate.
#
# ## Feed-forward layers as memory
#
# Equation 2 (`feed_forward`) can be read as a memory. Each inner neuron $i$ has a key, its column
# of $W_1$, and a value, its row of $W_2$. The key says which states make the neuron active, and the
# value is what it then adds to the residual stream:
#
# $$\mathrm{FFN}(x) = \max(0, x W_1 + b_1)\,W_2 + b_2
# = \sum_i \max(0, x \cdot k_i + b_{1,i})\,v_i + b_2$$
#
# What are the keys? The neurons of the encoder's first layer read every English noun in the same
# sentence. For each neuron we count on which nouns it is active (its activation is above zero).
# Does one of them tell the gender of the German word?


# %%
@partial(jax.jit, static_argnums=2)
def activations(params, source, layer):
    """Of an encoder layer its inner activations [B, S, F] and its output [B, S, D]."""
    context = model.context_of(layers.padding_mask(source))
    x = model.embed_source(config.model, params.embedding, source, context.positions)
    *before, this = unstack(params.encoder)[: layer + 1]
    for one in before:
        x, _, _ = model.run_layer(config.model, one, x, context)
    x = after_self_attention(this, x, context)
    inner = layers.layer_norm(config.model, this.feed_forward_norm, x)
    inner = jax.nn.relu(inner @ this.feed_forward.w_1 + this.feed_forward.b_1)
    return inner, x + inner @ this.feed_forward.w_2 + this.feed_forward.b_2


# %%
with_noun = [f"The {noun.english} is old." for noun in nouns]
source = pad_sources(tokenizers.source.encode(with_noun), len(with_noun), 8)
assert np.array_equal(source[:, 1], own_rows)  # the noun is the second piece
_, by_sum = activations(params, source, 0)
embedded = model.embed_source(config.model, params.embedding, source, np.arange(8)[None])
context = model.context_of(layers.padding_mask(source))
of_layer, _, _ = model.run_layer(config.model, unstack(params.encoder)[0], embedded, context)
np.testing.assert_allclose(by_sum, of_layer, atol=1e-3)
for name, weights in {"before": untrained, "after": params}.items():
    is_active = np.asarray(activations(weights, source, 0)[0][:, 1]) > 0  # [nouns, F]
    for gender in "mfn":
        on_own, on_others = is_active[genders == gender], is_active[genders != gender]
        best = np.argmax(on_own.mean(0) - on_others.mean(0))
        own, others = on_own[:, best].mean(), on_others[:, best].mean()
        print(f"{name:6} training, {gender_names[gender]:15} neuron {best:3} is active on", end=" ")
        print(f"{own:4.0%} of these nouns and {others:3.0%} of the others")
        assert own - others > 0.6 if name == "after" else own - others < 0.5

# %% [markdown]
# Training has made detectors of a gender out of single neurons. Random weights have none.
#
# ### One fact changed
#
# If the layer is a memory, a fact in it can be changed. We make the model read "dog" as "cat" by an
# edit of one matrix, $W_2$ of the first encoder layer. Let $k$ be the mean inner activation at the
# piece "dog", and $\delta$ the difference between the mean outputs of the layer at "cat" and at
# "dog". We add a matrix of rank one, which adds $\delta$ wherever the inner activation is $k$ (Meng
# et al., 2022, https://arxiv.org/abs/2202.05262):
#
# $$W_2' = W_2 + u\,\delta^\top, \qquad u = \frac{C^{-1} k}{k^\top C^{-1} k}$$
#
# $C$ is the mean of $k' k'^\top$ over the inner activations $k'$ of other pieces. The choice of $u$
# makes $u \cdot k = 1$ and all other $u \cdot k'$ as small as possible in the mean square, so that
# other words stay nearly as they are.

# %%
read = [source for source, _ in islice(read_pairs(config.data, "train"), 3000)]
fitting = [ids for ids in tokenizers.source.encode(read) if len(ids) < 24]
with_animal = [ids for ids in fitting if token("dog") in ids or token("cat") in ids]
rows_read = with_animal + fitting[:500]
source = pad_sources(rows_read, len(rows_read), 24)
inner, output = (np.asarray(x)[source > 0] for x in activations(params, source, 0))
pieces_read = source[source > 0]
is_dog, is_cat = pieces_read == token("dog"), pieces_read == token("cat")

k = inner[is_dog].mean(0)
delta = output[is_cat].mean(0) - output[is_dog].mean(0)
others = inner[~is_dog]
C = others.T @ others / len(others)
C += 1e-3 * np.trace(C) / len(C) * np.eye(len(C))  # so that it has an inverse
u = np.linalg.solve(C, k)
u /= u @ k
print(f"{is_dog.sum()} dogs: u k is {(inner[is_dog] @ u).mean():.2f} in the mean")
print(f"{len(others)} other pieces: the mean size of u k is {np.abs(others @ u).mean():.2f}")
assert abs(u @ k - 1) < 1e-3 and np.abs(others @ u).mean() < 0.1

feed_forward = params.encoder.layers.feed_forward
changed = feed_forward.replace(w_2=feed_forward.w_2.at[0].add(np.outer(u, delta)))
stack = params.encoder.replace(layers=params.encoder.layers.replace(feed_forward=changed))
edited = make_translator(greedy, params.replace(encoder=stack), tokenizers)
unedited = make_translator(greedy, params, tokenizers)

# %% [markdown]
# Now the test set: sentences with "dog", and sentences without. *Hund* is a dog, *Katze* is a cat,
# *Hunde* and *Katzen* are dogs and cats.


# %%
not_long = [text for (text, _), ids in zip(pairs, encoded_pairs[0]) if len(ids) < 24]
dog = [text for text in not_long if "dog" in text.rstrip(".?").split()]
rest = [text for text in not_long if "dog" not in text][: 31 - len(dog)]
cat = [text.replace("dog", "cat") for text in dog]
before = translate(unedited, [*cat, *rest, "The dogs are old."])
after = translate(edited, [*dog, *rest, "The dogs are old."])
for text, line in list(zip(dog, after))[:3]:
    print(text, "|", line)
same = np.array(before) == np.array(after)
print(f"{len(dog)} sentences with dog: {np.mean(same[: len(dog)]):.0%} translated as with cat")
print(f"{len(rest)} other sentences: {np.mean(same[len(dog) : -1]):.0%} translated as before")
print("The dogs are old. |", before[-1], "|", after[-1])
assert np.mean(same[: len(dog)]) > 0.6 and np.mean(same[len(dog) : -1]) > 0.75
assert np.mean(["Katze" in line for line in after[: len(dog)]]) > 0.8
assert "Hunde" in before[-1] and "Katzen" in after[-1]
print("the pieces of dogs:", tokenizers.source.pieces(tokenizers.source.encode(["dogs"])[0]))

# %% [markdown]
# Articles, adjectives and pronouns follow: they are feminine now, as for every other cat. "dogs"
# has changed too, because the vocabulary splits it into "dog" and "s". A few sentences without any
# dog may change as well, since no key is quite apart from all others.
#
# ## What is a head worth?
#
# We take one head away, as above, and measure how much worse the model predicts the given
# translations: the rise of the cross-entropy, in nats per token (`log_probabilities` reads whole
# translations, so that no search is needed). For comparison, we also take away the feed-forward
# networks, one layer at a time.

# %%
chosen_pairs = [ids for ids in zip(*encoded_pairs) if max(map(len, ids)) < 24][:64]
read_ids, written_ids = (pad_sources(list(ids), 64, 24) for ids in zip(*chosen_pairs))


def loss(params):
    """Cross-entropy of 64 translations, in nats per token."""
    total = log_probabilities(config.model, params, read_ids, written_ids).sum()
    return -total / (written_ids > 0).sum()


def without_feed_forward(params, stack, layer):
    theirs = getattr(params, stack)
    old = theirs.layers.feed_forward
    new = old.replace(w_2=old.w_2.at[layer].set(0), b_2=old.b_2.at[layer].set(0))
    return params.replace(**{stack: theirs.replace(layers=theirs.layers.replace(feed_forward=new))})


# %%
KINDS = {
    "encoder": ("encoder", "self_attention"),
    "masked": ("decoder", "self_attention"),
    "cross": ("decoder", "cross_attention"),
}
whole, heads = loss(params), range(config.model.num_heads)
rises = np.array(
    [
        [loss(without_head(params, *kind, layer, head)) - whole for head in heads]
        for kind in KINDS.values()
        for layer in range(config.model.encoder_layers)
    ]
)

# %%
rows = [
    f"{kind}, layer {layer + 1}" for kind in KINDS for layer in range(config.model.encoder_layers)
]
figure, axes = plt.subplots(figsize=(6.5, 4.2), layout="constrained")
image = axes.imshow(rises, cmap="Blues", vmin=0, aspect="auto")
for (row, column), rise in np.ndenumerate(rises):
    colour = "white" if rise > rises.max() / 2 else "black"
    axes.text(column, row, f"{rise:.3f}", ha="center", va="center", color=colour)
axes.set_yticks(range(len(rows)), rows)
axes.set_xticks(heads, [f"head {head + 1}" for head in heads])
axes.set(xlabel="head that is removed", ylabel="kind of attention")
axes.set_title(f"Rise of the loss, which is {whole:.3f} with all heads")
figure.colorbar(image, label="nats per token")
plt.show()

networks = {
    f"{stack}, layer {layer + 1}": loss(without_feed_forward(params, stack, layer)) - whole
    for stack in ("encoder", "decoder")
    for layer in range(config.model.encoder_layers)
}
print("without a feed-forward network:", {name: f"{rise:.3f}" for name, rise in networks.items()})
assert max(networks.values()) > 2 * rises.max()
assert rises[-1].mean() > 2 * rises[:2].mean()  # cross-attention, last layer; the encoder
assert rises.mean(1).argmax() == len(rises) - 1

# %% [markdown]
# Cross-attention of the last layer is missed most: through it the decoder reads the sentence. Of
# the other heads, most are missed little: compare with the loss of the whole model, in the title.
# Some feed-forward networks are worth far more than any head, but each of them also has many more
# weights.

# %% [markdown]
# ### Exercise 5: remove heads together
#
# If a head alone costs little, is it of no use? Remove all four heads of the last layer's
# cross-attention together, by four calls of `without_head`, and compute the rise of the loss.
# Compare it with the sum of the four single rises, `rises[-1].sum()`. You learn that heads stand in
# for each other.

# %% tags=["exercise"]
rise_together = ...

all_heads = slice(None)
check(rise_together, loss(without_head(params, *KINDS["cross"], -1, all_heads)) - whole)

# %% cellView="form" jupyter={"source_hidden": true} tags=["solution", "hide-input"]
# @title Solution
without_all = params
for head in heads:
    without_all = without_head(without_all, *KINDS["cross"], -1, head)
rise_together = loss(without_all) - whole
print(f"together {rise_together:.3f}, the sum of the single rises {rises[-1].sum():.3f}")
assert rise_together > 2 * rises[-1].sum()
check(rise_together, loss(without_head(params, *KINDS["cross"], -1, all_heads)) - whole)

# %% [markdown]
# ## Quiz
#
# Write your answers in the cell below, and run it. Then run the folded cell: it says which of them
# are right, and how they are computed if you unfold it.
#
# 1. How many maps of attention weights, one for each layer and head, does this model have in all?
# 2. A source has 10 pieces and its translation 12, the end tokens counted. Which shape has a map of
#    cross-attention?
# 3. How many weights of a map of masked self-attention over 12 pieces are not zero?
# 4. The scores of a query are 2, 2 and minus infinity. What are its weights?
# 5. How many numbers has a key of one head of this model?
# 6. Two embeddings are (3, 4) and (4, 3). What is the cosine of their angle?
# 7. "man" is (1, 0), "woman" is (0, 0) and "king" is (1, 1). Where would "queen" be, if the
#    analogy was exact?
# 8. A neuron has the key (1, -2), the bias 1 and the value (2, 4). What does it add to the
#    residual stream where the state is (1, 0.25)?
# 9. The edit adds $u\,\delta^\top$, with $u \cdot k = 1$. How many times is $\delta$ added where
#    the inner activation is $k / 2$?
# 10. $d_{model} = 128$ and $d_{ff} = 512$. How many times as large as $W^Q$, $W^K$, $W^V$ and $W^O$
#     together are $W_1$ and $W_2$ together?

# %%
quiz = {
    1: ...,
    2: ...,  # two numbers, in parentheses and with a comma
    3: ...,
    4: ...,  # three numbers
    5: ...,
    6: ...,
    7: ...,  # two numbers
    8: ...,  # two numbers
    9: ...,
    10: ...,
}

# %% cellView="form" jupyter={"source_hidden": true} tags=["solution", "hide-input"]
# @title Solution
ours = unstack(params.encoder)[0]
sizes = [
    sum(np.size(getattr(part, name)) for name in names.split())
    for part, names in ((ours.feed_forward, "w_1 w_2"), (ours.self_attention, "w_q w_k w_v w_o"))
]
a, b = np.array([3.0, 4.0]), np.array([4.0, 3.0])
_, of_cross = jax.eval_shape(layers.attention, *(np.ones((n, 32)) for n in (12, 10, 10)))
solutions = {
    1: sum(maps.weights.shape[0] * maps.weights.shape[1] for maps in (encoder, masked, cross)),
    2: of_cross.shape,
    3: layers.causal_mask(12).sum(),
    4: jax.nn.softmax(np.array([2, 2, -np.inf])),
    5: config.model.d_model // config.model.num_heads,
    6: a @ b / np.linalg.norm(a) / np.linalg.norm(b),
    7: np.array([1, 1]) - np.array([1, 0]) + np.array([0, 0]),
    8: max(0, np.array([1, 0.25]) @ np.array([1, -2]) + 1) * np.array([2, 4]),
    9: u @ (k / 2),
    10: sizes[0] / sizes[1],
}
assert (config.model.d_model, config.model.d_ff) == (128, 512)
check_each(quiz, solutions)

# %% [markdown]
# ## What to read next
#
# - `transformer/viewing/` makes the maps and the plots; `transformer/decoding/alignment.py` the
#   links.
# - `python translate.py RUN --alignments` prints such links for a whole file.
# - `06_the_family` looks at models with a decoder or an encoder alone.
