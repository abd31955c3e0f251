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
# # The family
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/)
#
# The translator has two stacks. Without the encoder, the decoder is a language model, as GPT is;
# without the decoder, the encoder is a masked model, as BERT is. The code of the model stays the
# same. This notebook shows both: the next word, the probability of a sentence, sampling, masked
# words, a classifier from few labels, sparse attention, and the sizes of BERT-large and GPT-3.
#
# Two small models of German sentences are loaded from `notebooks/weights` (`make weights` trains
# them: about ten minutes each on two CPU cores). You need no German: figures and texts have the
# English words in brackets. The notebook runs in one to two minutes on two CPU cores.

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
from dataclasses import replace
from functools import partial
from itertools import islice

import jax
import matplotlib.pyplot as plt
import numpy as np

from notebooks.exercises import check, check_each
from transformer.interchange.model import load_plain
from transformer.machine import devices
from transformer.model.batch import BOS, EOS, Batch
from transformer.model.encoder_decoder import predict
from transformer.model.layers import attention, causal_mask
from transformer.model.params import count_params, init_params
from transformer.viewing.plots import draw_weights

devices.configure_devices("any")  # 32 bits; compiled programs are kept for the next time
jax.config.update("jax_default_matmul_precision", "highest")  # 32 bits on accelerators too
np.set_printoptions(precision=3, suppress=True)

# %%
weights = Path("notebooks/weights")
language, masked = load_plain(weights / "lm_quickstart"), load_plain(weights / "mlm_quickstart")
for name, run in {"language model": language, "masked model": masked}.items():
    shape = run.config.model
    print(
        f"{name}: {shape.encoder_layers} encoder layers, {shape.decoder_layers} decoder layers, "
        f"{shape.num_heads} heads, width {shape.d_model}, {count_params(run.params):,} parameters"
    )
assert language.params.encoder is None
assert masked.params.decoder is None

config, params, tokenizer = language.config, language.params, language.tokenizers.target
V = tokenizer.vocab_size

# %% [markdown]
# The next cell only prepares translations: a dictionary from German to English, from the lexicon
# that the training sentences are generated from, with verbs in the infinitive. A token may also be
# the beginning of a longer word: "wir" (we) begins "wirklich" (really).

# %%
from transformer.data.datasets.phrasebook.grammar import LEXICON

ENGLISH = {
    "ist": "is", "sind": "are", "bin": "am", "bist": "are", "war": "was", "waren": "were",
    "hat": "has", "haben": "have", "habe": "have", "den": "the", "die": "the", "das": "the",
    "dem": "the", "keine": "no", "kein": "no", "keinen": "no", "nicht": "not", "ihr": "her",
    "ich": "I", "du": "you", "er": "he", "sie": "they", "es": "it", "wir": "we", "ihnen": "them",
    "gestern": "yesterday", "abend": "evening", "uhr": "o'clock", "um": "at", "im": "in the",
    "über": "about", "mit": "with", "an": "at", "von": "of", "zu": "to", "gehört": "belong",
}  # fmt: skip
for row in LEXICON["noun"]:
    ENGLISH |= {row.german_plural: row.plural, row.german: row.english}
for section in ("adjective", "determiner"):
    for row in LEXICON[section]:
        stem = getattr(row, "stem", "") or row.german
        forms = (row.german, *(stem + ending for ending in ("", "e", "en", "er", "es", "em")))
        ENGLISH = dict.fromkeys(forms, row.english) | ENGLISH
for row in LEXICON["modal"]:
    *forms, past = row.german.split()
    forms += [past + "e", past + "en"]
    ENGLISH = dict.fromkeys(forms, f"{row.english.split()[0]} {row.rest}".strip()) | ENGLISH
for row in LEXICON["verb"]:
    forms = row.german.replace("|", "").split()[:5]
    ENGLISH = dict.fromkeys(forms, row.english.split()[0]) | ENGLISH
for section in ("adverb", "manner", "intensifier", "preposition", "numeral", "opener"):
    ENGLISH = {row.german: row.english for row in LEXICON[section]} | ENGLISH


# %%
def label(piece):
    """A token with its English in brackets, if the dictionary has it."""
    word = piece.removeprefix("\u2581")
    if word in ENGLISH:
        return f"{word} ({ENGLISH[word]})"
    return word if any(map(str.isalnum, word)) else f'"{word}"'


def word_by_word(text):
    """The text with every word of the dictionary replaced by its English."""

    def english(match):
        return ENGLISH.get(match[0], ENGLISH.get(match[0].lower(), match[0]))

    return re.sub(r"\w+", english, text)


print(label("\u2581Hund"), "-", word_by_word("Der Hund hat den Brief gelesen."))

# %% [markdown]
# ## 1. A decoder alone: which word comes next?
#
# After every token, a language model gives each token of its vocabulary a probability. `predict`
# computes the logits of all positions at once; softmax makes probabilities of them, and these sum
# to one. The causal mask hides later tokens, so that padding after the text changes nothing: all
# texts are padded to one length, and the program is compiled only once.


# %%
@partial(jax.jit, static_argnums=0)
def all_logits(model, params, tokens):
    return predict(model, params, Batch(None, tokens[None], None))[0]


def next_logits(text):
    """The logits after BOS and after each token of the text, [tokens + 1, V]."""
    ids = [BOS, *tokenizer.encode([text])[0]]
    padded = np.pad(ids, (0, 40 - len(ids))).astype(np.int32)
    return np.asarray(all_logits(config.model, params, padded))[: len(ids)]


def next_probabilities(text):
    """The probabilities of the token that follows the text, by piece."""
    pieces = tokenizer.pieces(list(range(V)))
    return dict(zip(pieces, np.asarray(jax.nn.softmax(next_logits(text)[-1]))))


alone, followed = next_logits("Der"), next_logits("Der Hund")
np.testing.assert_allclose(followed[: len(alone)], alone, atol=1e-4)
print("the logits after 'Der' are the same, whatever follows")

# %%
beginnings = {
    "Der": "The",
    "Der Hund": "The dog",
    "Die Kinder": "The children",
    "Morgen will ich den Hund": "Tomorrow I want to ... the dog",
}
after = {text: next_probabilities(text) for text in beginnings}

figure, axes = plt.subplots(1, 4, figsize=(13, 3), layout="constrained")
for ax, (text, english) in zip(axes, beginnings.items()):
    likeliest = sorted(after[text], key=after[text].get, reverse=True)[:8]
    ax.barh([label(piece) for piece in likeliest], [after[text][piece] for piece in likeliest])
    ax.invert_yaxis()
    ax.set(xlabel="probability of the next token", xlim=(0, 0.5))
    ax.set_title(f"{text} ...\n({english} ...)", fontsize=9)
    np.testing.assert_allclose(sum(after[text].values()), 1, rtol=1e-4)
plt.show()

nouns = sum(p for piece, p in after["Der"].items() if re.match("\u2581[A-ZÄÖÜ]", piece))
print(f"after 'Der', words with a capital letter have {nouns:.0%} of the probability")
assert nouns > 0.5
is_, are = "\u2581ist", "\u2581sind"
for text in ("Der Hund", "Die Kinder"):
    print(f"after '{text}': is {after[text][is_]:.4f}, are {after[text][are]:.4f}")
assert after["Der Hund"][is_] > 10 * after["Der Hund"][are]
assert after["Die Kinder"][are] > 10 * after["Die Kinder"][is_]

# %% [markdown]
# After "Der" (the) a noun is likely: German nouns begin with a capital letter. After "Der Hund"
# (the dog) "ist" (is) is more than ten times as likely as "sind" (are), and after "Die Kinder" (the
# children) it is the other way round. To predict the next word, a model has to learn grammar.
#
# ## 2. How likely is a sentence?
#
# The chain rule: the probability of a sentence of tokens $w_1, \dots, w_T$ is that of its first
# token, times that of the second one given the first, and so on.
#
# $$P(w_1, \dots, w_T) = \prod_{t=1}^{T} P(w_t \mid w_1, \dots, w_{t-1}), \qquad
# \ln P(w_1, \dots, w_T) = \sum_{t=1}^{T} \ln P(w_t \mid w_1, \dots, w_{t-1})$$
#
# One pass through the decoder computes all factors. The last token, EOS, ends the sentence.


# %%
def chain(text):
    """The tokens of a sentence, EOS included, and the log-probability of each, in nats."""
    ids = [*tokenizer.encode([text])[0], EOS]
    log_probs = np.asarray(jax.nn.log_softmax(next_logits(text)))
    return tokenizer.pieces(ids), log_probs[np.arange(len(ids)), ids]


sentence = "Wir haben das Kind gesehen."  # We have seen the child.
pieces, terms = chain(sentence)
for piece, term, total in zip(pieces, terms, np.cumsum(terms)):
    print(f"{piece:10} p = {np.exp(term):.4f}   ln p = {term:8.3f}   sum {total:8.3f}")
np.testing.assert_allclose(np.log(np.prod(np.exp(terms))), terms.sum(), rtol=1e-3)

print()
sums = {}
for text, remark in {
    sentence: "correct: We have seen the child.",
    "Wir haben der Kind gesehen.": "wrong article",
    "Wir hat das Kind gesehen.": "wrong verb: We has ...",
    "Wir haben gesehen das Kind.": "the words in English order",
}.items():
    sums[text] = chain(text)[1].sum()
    print(f"{sums[text]:8.2f}  {text:30} {remark}")
assert all(sums[text] < sums[sentence] - 2 for text in sums if text != sentence)

# %% [markdown]
# Each mistake makes the sentence far less likely: a difference of 5 is a factor of
# $e^5 \approx 150$. The model never got a rule of grammar: it was trained on correct sentences
# alone.
#
# ### Perplexity and bits per byte
#
# Longer sentences are less likely, so models are compared by the mean over tokens. Perplexity is
# its exponential (`perplexity` in `transformer/training/validation.py`):
#
# $$\mathrm{PPL} = \exp\Bigl(-\frac{1}{T} \sum_{t=1}^{T} \ln P(w_t \mid w_1, \dots, w_{t-1})\Bigr)$$
#
# A model that gives all $V$ tokens the same probability has perplexity $V$. Perplexity depends on
# how the text is cut into tokens. Bits per byte do not: the whole sum, in bits, divided by the
# number of bytes $B$ of the text (`estimates` in the same file; the end of a line is one byte).
#
# $$\text{bits per byte} = -\frac{1}{B \ln 2} \sum_{t=1}^{T} \ln P(w_t \mid w_1, \dots, w_{t-1})$$

# %%
from transformer.data.batching import pad, paired
from transformer.data.corpus import read_pairs
from transformer.training.validation import estimates, losses_of, perplexity, sentence_sums


def scored(texts):
    """The losses of at most 64 texts, as training validates them."""
    rows = [[*ids, EOS] for ids in tokenizer.encode(texts)]
    batch = paired(np.zeros((64, 0)), pad(rows, 64, 40), None)
    return losses_of(partial(sentence_sums, config.model), params, [batch])


losses = scored([*sums])
np.testing.assert_allclose(-losses.nll, list(sums.values()), rtol=1e-3)
uniform = -np.log(np.full(10, 1 / V)).mean()
assert np.isclose(perplexity(uniform), V)
print(f"the same probability for all tokens: perplexity {perplexity(uniform):,.0f}")

tests = [text for _, text in islice(read_pairs(config.data, "test"), 64)]
losses = scored(tests)
found = estimates(losses, num_bytes=sum(len(text.encode()) + 1 for text in tests))
print(f"{len(tests)} test sentences, {losses.tokens.sum():.0f} tokens:", *found, sep="\n    ")
assert perplexity(losses.loss[0]) < V / 20

# %% [markdown]
# ### Exercise 1: perplexity and bits per byte by hand
#
# First without a computer: a model gives the four tokens of a text the probabilities 1/2, 1/4, 1/8
# and 1/4. What is the perplexity? Then compute both quantities for `sentence` from `terms`, the
# log-probabilities of its tokens, with numpy. You learn that perplexity is the inverse of the
# geometric mean of the probabilities.

# %% tags=["exercise"]
by_hand = ...  # a number
of_sentence = ...  # the perplexity of `sentence`
bits_per_byte = ...  # of `sentence`, with one byte more for the end of the line

[nll] = scored([sentence]).nll
of_text = {
    "by hand": perplexity(-np.log([1 / 2, 1 / 4, 1 / 8, 1 / 4]).mean()),
    "of the sentence": perplexity(nll / len(terms)),
    "bits per byte": nll / np.log(2) / (len(sentence.encode()) + 1),
}
answers = {"by hand": by_hand, "of the sentence": of_sentence, "bits per byte": bits_per_byte}
check_each(answers, of_text)

# %% cellView="form" jupyter={"source_hidden": true} tags=["solution", "hide-input"]
# @title Solution
by_hand = (1 / 2 * 1 / 4 * 1 / 8 * 1 / 4) ** (-1 / 4)  # 2^8 to the power of 1/4
of_sentence = np.exp(-terms.mean())
bits_per_byte = -terms.sum() / np.log(2) / (len(sentence.encode()) + 1)
answers = {"by hand": by_hand, "of the sentence": of_sentence, "bits per byte": bits_per_byte}
check_each(answers, of_text)

# %% [markdown]
# ## 3. Sampling
#
# To write a text, draw a token, append it, and predict again. Logits $z_i$ are divided by a
# temperature $\tau$ first:
#
# $$p_i = \frac{\exp(z_i / \tau)}{\sum_j \exp(z_j / \tau)}$$
#
# Below one the likely tokens become likelier, above one all become more alike; at zero the
# likeliest token is always taken. `restricted` in `transformer/decoding/sampling.py` does that for
# `draw`. The title of each plot has $\exp(H)$, with the entropy $H = -\sum_i p_i \ln p_i$: that
# number of equally likely tokens would be as uncertain.

# %%
from transformer.decoding.sampling import Choice, restricted


@jax.jit
def distribution(logits, temperature=1.0, top_k=0, top_p=1.0):
    """The probabilities of the tokens in the draw, [V]; `draw` leaves out PAD and BOS too."""
    choice = Choice(temperature, top_k, top_p, EOS)
    return jax.nn.softmax(restricted(choice, logits[None, None]))[0, 0]


logits = next_logits("Der Hund")[-1]  # The dog ...
uncertain = {}
figure, axes = plt.subplots(1, 3, figsize=(13, 3), layout="constrained", sharey=True)
for temperature, ax in zip((0.5, 1.0, 2.0), axes):
    p = np.asarray(distribution(logits, temperature))
    np.testing.assert_allclose(p, jax.nn.softmax(logits / temperature), atol=1e-5)
    uncertain[temperature] = np.exp(-(p * np.log(np.maximum(p, 1e-30))).sum())
    ax.bar(range(1, 31), np.sort(p)[::-1][:30])
    ax.set(title=f"temperature {temperature}: exp(entropy) = {uncertain[temperature]:.1f}")
    ax.set(xlabel=f"rank of the token (the first 30 of {V:,})", xticks=(1, 10, 20, 30))
axes[0].set_ylabel("probability")
plt.show()
assert uncertain[0.5] < uncertain[1.0] < uncertain[2.0]

# %% [markdown]
# The draw can be restricted to likely tokens. `top_k` keeps the $k$ likeliest ones. `top_p` keeps
# the smallest set $S$ of likeliest tokens with
#
# $$\sum_{i \in S} p_i \ge p, \qquad \text{and then} \qquad
# p'_i = \begin{cases} p_i / \sum_{j \in S} p_j & i \in S \\ 0 & \text{otherwise} \end{cases}$$
#
# Both come after the temperature. Below is the mean log-probability per token, before the
# temperature, of 16 texts that begin with "Gestern" (yesterday), and two of the texts, each with
# its English word by word.

# %%
from transformer.config import GenerateConfig
from transformer.decoding.generator import continuations, make_generator

means = {}
for restriction in (
    {"temperature": 0.0},
    {"temperature": 0.5},
    {"temperature": 1.0},
    {"temperature": 2.0},
    {"temperature": 2.0, "top_k": 5},
    {"temperature": 2.0, "top_p": 0.9},
):
    asked = GenerateConfig(max_tokens=30, samples=16, seed=1, **restriction)
    generator = make_generator(config, asked, params, language.tokenizers)
    [texts] = continuations(generator, ["Gestern"])
    name = ", ".join(f"{key} {value}" for key, value in restriction.items())
    means[name] = sum(one.log_prob for one in texts) / sum(len(one.tokens) for one in texts)
    print(f"{name}: {means[name]:.2f} nats per token")
    print(*(f"    {one.text}\n        {word_by_word(one.text)}" for one in texts[:2]), sep="\n")
    if not restriction["temperature"]:
        assert len({one.text for one in texts}) == 1

assert means["temperature 0.5"] > means["temperature 2.0"] + 1
assert means["temperature 2.0, top_k 5"] > means["temperature 2.0"] + 1
assert means["temperature 2.0, top_k 5"] > means["temperature 2.0, top_p 0.9"]

# %%
in_draw = {
    temperature: int((distribution(logits, temperature, top_p=0.9) > 0).sum())
    for temperature in (0.5, 1.0, 2.0)
}
for temperature, kept in in_draw.items():
    print(f"temperature {temperature}: top_p 0.9 keeps {kept} of {V:,} tokens")
assert in_draw[0.5] <= in_draw[1.0] < in_draw[2.0]
assert in_draw[2.0] > 5 * in_draw[1.0]

# %% [markdown]
# A high temperature makes texts that the model itself finds unlikely, and `top_k` prevents most of
# that. `top_p` 0.9 helps less at temperature 2: nine tenths of the probability are then spread over
# many tokens.
#
# On the command line, a run folder generates texts (`python train.py configs/lm_quickstart.py`
# makes one): `echo Gestern | python generate.py runs/lm_quickstart --temperature 0.7`.

# %% [markdown]
# ### Exercise 2: temperature, top-k and top-p in numpy
#
# Write the distribution of the draw without the project's functions, from `logits` [V], first for
# temperature 2 and top-k 5, then for top-p 0.9 at temperature 1. You learn that both are a sort, a
# cut and a division. (`np.sort(x)[::-1]` sorts from the largest to the smallest.)

# %% tags=["exercise"]
of_top_k = ...  # the probabilities of all V tokens, 0 for those that are not in the draw
of_top_p = ...

by_project = {
    "top-k": distribution(logits, 2.0, top_k=5),
    "top-p": distribution(logits, 1.0, top_p=0.9),
}
check_each({"top-k": of_top_k, "top-p": of_top_p}, by_project, tolerance=1e-3)

# %% cellView="form" jupyter={"source_hidden": true} tags=["solution", "hide-input"]
# @title Solution
z = logits / 2
z = np.where(z >= np.sort(z)[::-1][4], z, -np.inf)
of_top_k = np.exp(z - z.max()) / np.exp(z - z.max()).sum()

p = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
sorted_p = np.sort(p)[::-1]
size = np.argmax(np.cumsum(sorted_p) >= 0.9) + 1  # the first sum that is large enough
of_top_p = np.where(p >= sorted_p[size - 1], p, 0)
of_top_p = of_top_p / of_top_p.sum()

check_each({"top-k": of_top_k, "top-p": of_top_p}, by_project, tolerance=1e-3)

# %% [markdown]
# ### Prompt injection
#
# A chatbot has a hidden prompt of its developer, to which the text of a visitor is appended. The
# model reads one row of tokens, and no token says who wrote it. If the visitor's text is an
# instruction, the model may follow it instead of the developer's: a prompt injection.
#
# Our model knows no instructions, only sentences. But the mechanism is the same. The developer's
# prompt is "Morgen will ich" (tomorrow I want to); visitors should add an animal, and the program
# uses the verb that follows. The second visitor adds "schlafen, weil der Hund" (sleep, because the
# dog).

# %%
developer = "Morgen will ich"
expected, injected = "den Hund", "schlafen, weil der Hund"
followed = {text: next_probabilities(f"{developer} {text}") for text in (expected, injected)}
for text, p in followed.items():
    likeliest = sorted(p, key=p.get, reverse=True)[:6]
    print(f"{developer} | {text}:")
    print("    " + ", ".join(f"{label(piece)} {p[piece]:.2f}" for piece in likeliest))

p, q = (np.array(list(of.values())) for of in followed.values())
changed = np.abs(p - q).sum() / 2
feed = [of["\u2581füttern"] for of in followed.values()]
print(f"{changed:.0%} of the probability has moved to other tokens")
print(f"'füttern' (feed) has {feed[0]:.3f} with the first text, {feed[1]:.5f} with the second")
assert changed > 0.5
assert feed[0] > 10 * feed[1]

moved = next_logits("Morgen will ich schlafen, weil" + " " + "der Hund")  # another author
np.testing.assert_array_equal(moved, next_logits(developer + " " + injected))

repeated = next_probabilities("Hund Katze Hund Katze Hund")  # dog cat dog cat dog
cat = repeated["\u2581Katze"]
print(f"after 'Hund Katze Hund Katze Hund', 'Katze' (cat) has {cat:.4f}")
assert cat < 0.1

# %% [markdown]
# The text of the visitor decides how the sentence continues, and the logits are the same, whoever
# wrote which part of it. Our model is too small to show more: it does not even continue a pattern
# that the prompt repeats, since its training data have no such texts. Large models follow patterns
# and instructions in the prompt, and so a visitor's too.
#
# ## 4. An encoder alone: which word is missing?
#
# An encoder has no causal mask: every position attends to those before and after it. So it cannot
# be trained to predict the next token, which it would see. Instead, 15 % of the tokens are chosen:
# 80 % of these are replaced by a mask, 10 % by a random token, and 10 % stay (Devlin et al., 2019).
# The model predicts the original ones (`masked` in `transformer/data/masking.py`). In our texts,
# `__` is the mask:

# %%
from transformer.decoding.fill_mask import fill_mask, logits_of, with_masks

texts = {
    "Morgen will ich __ Hund füttern.": "Tomorrow I want to feed __ dog.",
    "Morgen will ich __ Katze füttern.": "Tomorrow I want to feed __ cat.",
    "Morgen will ich __ Pferd füttern.": "Tomorrow I want to feed __ horse.",
    "Die Kinder __ müde.": "The children __ tired.",
}
predicted = fill_mask(masked.config, masked.params, masked.tokenizers, list(texts), V)
figure, axes = plt.subplots(1, 4, figsize=(13, 2.8), layout="constrained")
for (text, english), [words], ax in zip(texts.items(), predicted, axes):
    ax.barh([label(one.word) for one in words[:6]], [one.probability for one in words[:6]])
    ax.invert_yaxis()
    ax.set(xlim=(0, 1), xlabel="probability of the masked token")
    ax.set_title(f"{text}\n({english})", fontsize=9)
plt.show()
from transformer.data.masking import masked as mask_tokens

of_masked = masked.tokenizers.source
hidden = mask_tokens(
    pad(of_masked.encode(tests), 64, 40), of_masked.vocab_size, np.random.default_rng(0)
)
chosen = hidden.target_out > 0
share = chosen.sum() / (hidden.source > 0).sum()
replaced = (hidden.source != hidden.target_out)[chosen].mean()
print(f"{share:.1%} of the tokens are chosen, {replaced:.0%} of these are masked or random")
assert 0.12 < share < 0.18 and replaced > 0.8
children = {one.word: one.probability for one in predicted[3][0]}
assert children["sind"] > 5 * children["ist"]

# %% [markdown]
# The article in front of a noun depends on a word that comes later: "Hund" (dog) is masculine and
# needs "den", "Katze" (cat) is feminine and needs "die", "Pferd" (horse) is neuter and needs "das",
# all of them "the". The masked model attends to the noun. The language model has only read the
# words on the left, so that its probabilities are the same in all three sentences:

# %%
right = {"Hund": "den", "Katze": "die", "Pferd": "das"}
articles = list(right.values())
ids = [token for [token] in tokenizer.encode(articles)]
print("probability of" + " " * 25 + "".join(f"{article:>8}" for article in articles))
place = len(tokenizer.encode(["Morgen will ich"])[0])  # the position that predicts the article
read = []
for noun, [words] in zip(right, predicted):
    by_word = {one.word: one.probability for one in words}
    by_masked = np.array([by_word[article] for article in articles])
    logits_of_text = next_logits(f"Morgen will ich {right[noun]} {noun} füttern.")
    by_language = np.asarray(jax.nn.softmax(logits_of_text[place]))[ids]
    read.append(by_language)
    for name, shares in {"masked": by_masked, "language": by_language}.items():
        print(f"{noun:6} {name + ' model':32}" + "".join(f"{share:8.3f}" for share in shares))
    assert articles[by_masked.argmax()] == right[noun]
    assert by_masked.max() > by_masked.sum() / 2
np.testing.assert_allclose(read, [read[0]] * 3, atol=1e-5)

# %% [markdown]
# Among "den", "die" and "das", the masked model gives the right one more than half of the
# probability each time. (Other words fit as well, such as "eine" (a) for the cat, so that none of
# the three needs to be likely.) For the language model, the three rows are equal.

# %% [markdown]
# ### Exercise 3: the article of a letter
#
# "Brief" (letter) is masculine, "Zeitung" (newspaper) feminine, "Buch" (book) neuter. For each
# sentence below, compute with `fill_mask` the probability of the right article, divided by the sum
# of the probabilities of "den", "die" and "das". You learn to ask a masked model a question with
# few possible answers.
#
# `fill_mask(config, params, tokenizers, texts, V)` returns a list for each text, in it a list for
# each mask of the text, and in that the `V` likeliest words, each with `.word` and `.probability`:
# above, `predicted[3][0][0]` is the likeliest word at the first mask of "Die Kinder __ müde."

# %% tags=["exercise"]
questions = {
    "Wir haben __ Brief gelesen.": "den",  # We have read the letter.
    "Wir haben __ Zeitung gelesen.": "die",
    "Wir haben __ Buch gelesen.": "das",
}
shares = ...  # a list of three numbers


def expected_shares():
    """The same from the logits at the mask."""
    of_masked = masked.tokenizers.source
    ids = [token for [token] in of_masked.encode(articles)]
    rows, places = zip(*(with_masks(of_masked, text) for text in questions))
    for logits, [place], article in zip(
        logits_of(masked.config, masked.params, rows), places, questions.values()
    ):
        yield jax.nn.softmax(logits[place, ids])[articles.index(article)]


check(shares, list(expected_shares()))

# %% cellView="form" jupyter={"source_hidden": true} tags=["solution", "hide-input"]
# @title Solution
answers = fill_mask(masked.config, masked.params, masked.tokenizers, list(questions), V)
shares = []
for [words], (text, article) in zip(answers, questions.items()):
    by_word = {one.word: one.probability for one in words}
    shares.append(by_word[article] / sum(by_word[other] for other in articles))
    print(f"{text:30} {shares[-1]:.3f}")
check(shares, list(expected_shares()))

# %% [markdown]
# ## 5. What has been learned can be taken along
#
# A classifier is the encoder with one linear layer on the mean of its states. Here the class of a
# sentence is the kind of its first noun: an animal, a drink, a vehicle, and so on. Only 200
# labelled sentences are there for training, and more than a third of the nouns of the test
# sentences do not occur in them. The classifier is trained twice: from random weights, and from
# those of the masked model, which was trained on sentences without labels.

# %%
from benchmarks.pretraining import labelled_sentences

LENGTH = 16  # tokens, EOS included; longer sentences are left out


def table(split, count):
    """Sentences as ids [count, LENGTH], and their texts and classes."""
    pairs = labelled_sentences(masked.config.data, split, 3 * count)
    rows = [[*ids, EOS] for ids in masked.tokenizers.source.encode([text for text, _ in pairs])]
    short = [number for number, row in enumerate(rows) if len(row) <= LENGTH][:count]
    return pad([rows[n] for n in short], count, LENGTH), [pairs[n] for n in short]


train_ids, train_pairs = table("train", 200)
test_ids, test_pairs = table("test", 800)
print(
    *(f"{name:8} {text}\n{'':8} {word_by_word(text)}" for text, name in train_pairs[:3]), sep="\n"
)

# %%
classes = sorted({name for _, name in train_pairs})


def labels(pairs):
    """The class of each sentence, [count, 1]; 0 is padding."""
    return np.array([[classes.index(name) + 1] for _, name in pairs], np.int32)


train_labels, test_labels = labels(train_pairs), labels(test_pairs)
assert not {text for text, _ in train_pairs} & {text for text, _ in test_pairs}

nouns = {form for row in LEXICON["noun"] for form in (row.german, row.german_plural)}
in_train, in_test = (
    nouns & {word for text, _ in pairs for word in re.findall(r"\w+", text)}
    for pairs in (train_pairs, test_pairs)
)
new = len(in_test - in_train)
print(f"{new} of {len(in_test)} nouns of the test sentences are not in the training sentences")
assert new > len(in_test) / 3

# %% [markdown]
# `update` is the function that trains all models of this project: gradients of the loss of a batch,
# then one step of the optimiser (`transformer/training/step.py`). `with_classifier` replaces the
# output layer of the masked model by the new linear layer.

# %%
from transformer.model.params import with_classifier
from transformer.training.optimizer import learning_rate
from transformer.training.step import init_state, update

settings = replace(
    masked.config,
    # recompute: layers in a loop, which compiles faster
    model=replace(masked.config.model, classes=len(classes), dropout=0.0, recompute=True),
    train=replace(masked.config.train, steps=60),
    optimizer=replace(masked.config.optimizer, scale=0.5, warmup_steps=10, cooldown_steps=30),
)
begin, step = jax.jit(partial(init_state, settings)), jax.jit(partial(update, settings))


def fine_tune(params):
    """The parameters after 60 updates of 16 sentences each, and the loss at each update."""
    state, losses = begin(jax.random.key(0), params), []
    generator = np.random.default_rng(0)
    order = np.concatenate([generator.permutation(len(train_ids)) for _ in range(5)])  # epochs
    for number in range(1, settings.train.steps + 1):
        rows = order[16 * (number - 1) : 16 * number]
        batch = Batch(train_ids[rows], None, train_labels[rows])
        state, metrics = step(state, batch, learning_rate(settings, number))
        losses.append(float(metrics.sums.loss / metrics.sums.tokens))
    return state.params, losses


# %%
key = jax.random.key(0, impl="unsafe_rbg")  # random numbers whose program compiles fast
random = jax.jit(init_params, static_argnums=0)(settings.model, key)
starts = {
    "random weights": random,
    "weights of the masked model": with_classifier(masked.params, random.classifier),
}
figure, ax = plt.subplots(figsize=(7, 3), layout="constrained")
correct = {}
for (name, start), style in zip(starts.items(), ("--", "-")):
    fitted, losses = fine_tune(start)
    ax.plot(range(1, len(losses) + 1), losses, style, label=name)
    test = [Batch(test_ids, None, test_labels)]
    result = losses_of(partial(sentence_sums, settings.model), fitted, test)
    correct[name] = result.correct
    print(f"{name:28} {result.accuracy[0]:.1%} of {len(result.correct):,} test sentences correct")
ax.set(xlabel="update", ylabel="training loss in nats per sentence", title="200 labelled sentences")
ax.legend()
plt.show()

# %%
of_random, of_masked = correct.values()
margin = (of_masked - of_random).mean()
error = 1.96 * (of_masked - of_random).std() / np.sqrt(len(of_random))
low, high = 100 * (margin - error), 100 * (margin + error)
print(f"pre-training adds {100 * margin:.1f} points (95 % interval {low:.1f} to {high:.1f})")
assert low > 0

# %% [markdown]
# Pre-training helps: the whole interval is above zero. (One seed and one learning rate, and 60
# updates, after which the loss from random weights may still be higher. `python -m
# benchmarks.pretraining RUN` trains longer, with several of both, and finds a margin too: see
# [language models](../docs/language_models.md). RUN is a run folder of `configs/mlm_quickstart.py`,
# also one that `python convert.py from-safetensors notebooks/weights/mlm_quickstart RUN` makes.)
#
# ## 6. Sparse attention is another mask
#
# If every position attends to every earlier one, the number of pairs grows with the square of the
# length. In every second layer of GPT-3, a position attends only to a band of the last positions.
# For `attention`, equation 1 for one head and one sentence, that is another mask:

# %%
length, band = 16, 4
causal = np.asarray(causal_mask(length)[0, 0])
distance = np.arange(length)[:, None] - np.arange(length)
banded = causal & (distance < band)
assert causal.sum() == length * (length + 1) / 2

figure, axes = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
names = [str(position) for position in range(length)]
for ax, mask, title in zip(axes, (causal, banded), ("causal", f"band of {band}")):
    draw_weights(ax, mask.astype(float), names, names, f"{title}: {mask.sum()} pairs (blue)")
    ax.set(xlabel="position of the key", ylabel="position of the query")
plt.show()

q, k, v = np.random.default_rng(0).normal(size=(3, length, 8)).astype(np.float32)
values, weights = attention(q, k, v, banded)
np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-5)
assert (weights[~banded] == 0).all()
wide = attention(q, k, v, causal & (distance < length))[0]
np.testing.assert_allclose(wide, attention(q, k, v, causal)[0], atol=1e-6)
print("rows of the weights sum to 1, outside of the band they are 0;")
print("a band as wide as the text gives the same as the causal mask")

# %% [markdown]
# One layer with a band of four sees four positions. Two layers see seven, since each of these four
# has itself seen three earlier ones: after $n$ layers it is $3n + 1$. The pairs of a layer grow
# with the length and not with its square:

# %%
seen = np.eye(length, dtype=int)
for layer in range(1, 7):
    seen = ((banded.astype(int) @ seen) > 0).astype(int)
    print(f"{layer} layers: the last position sees {seen[-1].sum():2} of {length}")
    assert seen[-1].sum() == min(length, (band - 1) * layer + 1)


def pairs(length, band):
    """The pairs of a band, without making the mask."""
    return band * length - band * (band - 1) // 2


assert pairs(length, band) == banded.sum()
assert pairs(length, length) == causal.sum()
for long in (1_000, 10_000, 32_000, 100_000):
    share = pairs(long, 256) / pairs(long, long)
    print(f"{long:7,} positions: a band of 256 has {share:7.2%} of the pairs of the causal mask")

# %% [markdown]
# (Our functions also compute the masked pairs. The mask decides what attention sees; only a kernel
# that leaves the masked pairs out makes it faster.)

# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-input"]
# @title The right mask, for the check of exercise 4
rows = [[j <= i and (i - j < 4 or (i - j) % 4 == 0) for j in range(16)] for i in range(16)]
powers = (np.linalg.matrix_power(np.array(rows, int), n) for n in range(1, 16))
right_mask = {
    "mask": np.array(rows),
    "layers": next(n for n, power in enumerate(powers, start=1) if power[-1].all()),
}

# %% [markdown]
# ### Exercise 4: strided attention
#
# Child et al. (2019, https://arxiv.org/abs/1904.10509) add to the band every position whose
# distance from the query is a multiple of a stride. Make that mask for a band and a stride of four,
# and compute after how many layers the last of the 16 positions sees all of them. You learn how few
# pairs connect everything.

# %% tags=["exercise"]
strided = ...  # [16, 16], true where a query may attend to a key
layers_needed = ...  # a whole number

check_each({"mask": strided, "layers": layers_needed}, right_mask)

# %% cellView="form" jupyter={"source_hidden": true} tags=["solution", "hide-input"]
# @title Solution
strided = causal & ((distance < 4) | (distance % 4 == 0))
seen, layers_needed = np.eye(16, dtype=int), 0
while not seen[-1].all():
    seen, layers_needed = strided.astype(int) @ seen, layers_needed + 1
check_each({"mask": strided, "layers": layers_needed}, right_mask)
print(f"{strided.sum()} pairs, {banded.sum()} in the band alone, {causal.sum()} in the causal mask")

figure, ax = plt.subplots(figsize=(4, 4), layout="constrained")
draw_weights(ax, strided.astype(float), names, names, f"strided: {strided.sum()} pairs (blue)")
ax.set(xlabel="position of the key", ylabel="position of the query")
plt.show()

# %% [markdown]
# ## 7. How large the famous ones are
#
# The configs of BERT-large and GPT-3 have the same settings as ours, with other numbers. Only the
# shapes of their weights are computed here. (`02_transformer` has the shares of the parts, and says
# why our BERT-large has fewer parameters than the 340 million of its paper.)

# %%
from transformer.config.files import load_config
from transformer.model.operations import pair_operations


def count(model):
    return count_params(jax.eval_shape(partial(init_params, model), jax.random.key(0)))


bert, gpt3 = (load_config(f"configs/{name}.py") for name in ("bert_large", "gpt3"))
sizes = {
    "language model": config,
    "masked model": masked.config,
    "BERT-large": bert,
    "GPT-3": gpt3,
}
print(f"{'':16}{'layers':>7}{'width':>8}{'heads':>7}{'parameters':>17}{'in 16 bits':>14}")
for name, of in sizes.items():
    model, layers = of.model, of.model.encoder_layers + of.model.decoder_layers
    shape = f"{layers:>7}{model.d_model:>8,}{model.num_heads:>7}"
    print(f"{name:16}{shape}{count(model):>17,}{2 * count(model) / 1e9:>11,.3f} GB")
assert count(config.model) == count_params(params)
assert gpt3.model.d_model // gpt3.model.num_heads == 128
assert abs(count(gpt3.model) / 175e9 - 1) < 0.01

batch = gpt3.data.batch_tokens
print(f"\na batch of GPT-3: {batch:,} tokens, {batch / gpt3.model.max_positions:,.0f} texts")

# %% [markdown]
# Training costs about six operations per parameter and token (two in the forward pass, four in the
# backward pass), $C \approx 6 N D$ for $N$ parameters and $D$ tokens. GPT-3 was trained on 300
# billion tokens:

# %%
operations = 6 * count(gpt3.model) * 300e9
texts = 300e9 / gpt3.model.max_positions
counted = 3 * pair_operations(gpt3.model, 0, gpt3.model.max_positions) * texts  # attention, too
assert 1 < counted / operations < 1.1
years = operations / 1e14 / (365 * 24 * 3600)
print(f"GPT-3: {operations:.2e} operations; at 10^14 per second, that is {years:.0f} years")
assert 3.1e23 < operations < 3.2e23
assert 90 < years < 110

# %% [markdown]
# ### Exercise 5: 175 billion by hand
#
# GPT-3 has 96 layers of width $d = 12288$. Each layer has four attention matrices of $d \times d$
# and two matrices of $d \times 4d$. Add a table of 50,257 tokens and one of 2,048 positions, both
# of width $d$. How many weights are that exactly, without biases and norms, and which share of them
# is in the layers? You learn where the parameters of a large language model are.

# %% tags=["exercise"]
total = ...
share_of_layers = ...

of_model = jax.eval_shape(partial(init_params, gpt3.model), jax.random.key(0))
matrices = [leaf.size for leaf in jax.tree.leaves(of_model) if leaf.size > 10**7]
in_tables = (gpt3.model.target_vocab_size + gpt3.model.max_positions) * gpt3.model.d_model
of_gpt3 = {"total": sum(matrices), "share": 1 - in_tables / sum(matrices)}
check_each({"total": total, "share": share_of_layers}, of_gpt3, tolerance=1e-3)

# %% cellView="form" jupyter={"source_hidden": true} tags=["solution", "hide-input"]
# @title Solution
d = 12288
in_layers = 96 * (4 * d * d + 2 * d * 4 * d)  # 12 d^2 per layer
total = in_layers + (50_257 + 2_048) * d
share_of_layers = in_layers / total
check_each({"total": total, "share": share_of_layers}, of_gpt3, tolerance=1e-3)
print(f"{total:,} weights, {share_of_layers:.1%} of them in the layers")

# %% [markdown]
# ## Quiz
#
# Write your answers in the cell below, and run it. Then run the folded cell: it says which of them
# are right, and how they are computed if you unfold it.
#
# 1. A model gives all 1,000 tokens the same probability. What is its perplexity?
# 2. A text of 100 bytes has 25 tokens, and the loss is 4 bits per token. How many bits per byte are
#    that?
# 3. Probabilities 0.5, 0.3, 0.1 and 0.1: what are they after `top_p` 0.75?
# 4. The same four: what are they after `top_k` 1, at any temperature?
# 5. The same four at temperature 0.5: what is the first one?
# 6. The last of five tokens changes. At how many of the five positions do the logits of our
#    language model change, and at how many those of our masked model?
# 7. How many pairs has the mask of a text of 5 tokens in an encoder, and in a decoder?
# 8. A band of 4: how many layers does the last of 100 positions need to see the first one?
# 9. How wide is a head of GPT-3?
# 10. How many accelerators of 80 GB does it take to hold the weights of GPT-3 in 16 bits?

# %%
quiz = {
    1: ...,
    2: ...,
    3: ...,  # four numbers, in parentheses and with commas
    4: ...,  # four numbers
    5: ...,
    6: ...,  # two numbers: language model, masked model
    7: ...,  # two numbers: encoder, decoder
    8: ...,
    9: ...,
    10: ...,
}

# %% cellView="form" jupyter={"source_hidden": true} tags=["solution", "hide-input"]
# @title Solution
pair = np.array([[4, 5, 6, 7, 8], [4, 5, 6, 7, 9]], np.int32)  # the last of five tokens differs
of_language = [all_logits(config.model, params, np.pad(ids, (0, 35))) for ids in pair]
of_masked = list(logits_of(masked.config, masked.params, [*pair.tolist()] * 2))
changed = [(abs(x[0] - x[1]).max(-1) > 1e-4)[:5].sum() for x in (of_language, of_masked)]
four = np.log(np.array([0.5, 0.3, 0.1, 0.1]))
band_of_100 = np.tril(np.triu(np.ones((100, 100)), -3))
solutions = {
    1: perplexity(-np.log(1 / 1000)),
    2: 25 * 4 / 100,
    3: distribution(four, top_p=0.75),
    4: distribution(four, top_k=1),
    5: distribution(four, temperature=0.5)[0],
    6: changed,
    7: (5 * 5, causal_mask(5).sum()),
    8: next(n for n in range(1, 100) if np.linalg.matrix_power(band_of_100, n)[-1, 0]),
    9: gpt3.model.d_model / gpt3.model.num_heads,
    10: np.ceil(2 * count(gpt3.model) / 80e9),
}
check_each(quiz, solutions)

# %% [markdown]
# ## What to read next
#
# - `transformer/decoding/generator.py` continues texts, and `fill_mask.py` beside it predicts
#   masked words and classes.
# - [Language models, masked models, classifiers](../docs/language_models.md) has the commands, and
#   [benchmarks](../docs/benchmarks.md) the results.
# - Images as sequences of patches are at the end of `01_attention`.
