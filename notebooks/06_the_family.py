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
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github)
#
# The translator has two stacks. Leave out the encoder, and the decoder is a language model, as GPT
# is; leave out the decoder, and the encoder is a masked model, as BERT is. Not a line of the model
# changes. Here are both: next words and whole sentences, sampling, blanks, what pre-training is
# worth, attention that is sparse, and how large the famous ones are.
#
# Two small models of the phrasebook's German are trained first, some ten minutes each on two CPU
# cores; runs that are finished already are only looked at.

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
from functools import partial

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

from transformer.config import GenerateConfig
from transformer.config.files import load_config
from transformer.decoding.fill_mask import fill_mask
from transformer.decoding.generator import continuations, make_generator
from transformer.machine import devices
from transformer.model.batch import BOS, EOS, Batch
from transformer.model.encoder_decoder import predict
from transformer.model.layers import attend, causal_mask
from transformer.model.params import count_params, init_params
from transformer.runs.load import load_run
from transformer.viewing.plots import draw_weights


def train(*words, **others):
    """Trains a run, or goes on with it; shows its validations and the last line."""
    command = [sys.executable, "train.py", *words]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    training, said = subprocess.Popen(command, env=os.environ | others, **pipes), [""]
    for line in training.stdout:
        said.append(line)
        if line.startswith("update") and ": validation" in line:
            print(line, end="")
    assert training.wait() == 0, "".join(said)
    print(said[-1].partition(";")[0].strip())


def load(run):
    """The config of a run, its weights and its vocabulary."""
    loaded = load_run(Path(run))
    print(f"{run}, {loaded.label}, {count_params(loaded.params):,} parameters")
    return loaded.config, loaded.params, loaded.tokenizers


train("configs/lm_quickstart.py")
train(
    "configs/mlm_quickstart.py", "--run", "runs/mlm_notebook",
    "--data.batch-tokens", "2048", "--train.steps", "1500",
)  # fmt: skip

devices.configure_devices("any")  # numbers of 32 bits; what is compiled is kept
np.set_printoptions(precision=3, suppress=True)
language = load("runs/lm_quickstart")

# %% [markdown]
# ## 1. A decoder alone: which word comes next?
#
# A language model gives each word of its vocabulary a probability, given those before. The shares
# of all words sum to one.


# %%
@partial(jax.jit, static_argnums=0)
def next_probabilities(model, params, tokens):
    """Of each token of the vocabulary, after each of the tokens: [T, V]."""
    return jax.nn.softmax(predict(model, params, Batch(None, tokens[None], None))[0])


def tokens_of(tokenizers, text):
    return jnp.array([BOS, *tokenizers.target.encode([text])[0]])


config, params, tokenizers = language
beginnings = ["Der", "Der Hund", "Der Hund hat den", "Die Kinder"]
figure, axes = plt.subplots(1, 4, figsize=(13, 3), layout="constrained")
for text, ax in zip(beginnings, axes):
    after = next_probabilities(config.model, params, tokens_of(tokenizers, text))[-1]
    best = np.argsort(-after)[:8]
    ax.barh(
        [piece.replace("\u2581", "") for piece in tokenizers.target.pieces(best.tolist())],
        after[best],
    )
    ax.invert_yaxis()
    ax.set(xlim=(0, 0.5), xlabel="probability", title=f"{text} ...")
    print(f"{text!r}: the shares of all {len(after):,} sum to {after.sum():.4f}")
plt.show()

# %% [markdown]
# After "Der" comes a noun, after "Der Hund" a verb in the third person (or a comma), after "Die
# Kinder" one in the plural: to guess the next word well, a model has to learn grammar.
#
# ## 2. How likely is a sentence?
#
# The chain rule: the probability of a sentence is that of its first word, times that of its second
# given the first, and so on. In logarithms the product is a sum, and one pass through the decoder
# gives all the terms.


# %%
def chain(text):
    """Each token of a sentence, EOS too, and its log-probability given those before."""
    tokens = tokens_of(tokenizers, text)
    shares = next_probabilities(config.model, params, tokens)
    written = [*tokens[1:].tolist(), EOS]
    return tokenizers.target.pieces(written), np.log(
        shares[np.arange(len(written)), np.array(written)]
    )


pieces, terms = chain("Wir haben das Kind gesehen.")
for piece, term, total in zip(pieces, terms, np.cumsum(terms)):
    print(f"{piece:10} p = {np.exp(term):.3f}   log p = {term:7.3f}   sum {total:8.3f}")

print()
for text in (
    "Wir haben das Kind gesehen.",
    "Wir haben der Kind gesehen.",
    "Wir hat das Kind gesehen.",
    "Wir haben gesehen das Kind.",
):
    print(f"{chain(text)[1].sum():8.2f}  {text}")

# %% [markdown]
# A wrong article, a wrong verb and a wrong order each cost much. Nobody told the model what is
# right: it has only read.
#
# ## 3. Sampling
#
# To write, draw a token, append it, and ask again. Logits divided by a temperature below one make
# likely tokens likelier, and above one all more alike; at zero the likeliest is always taken. (The
# number above each plot is exp(entropy): so many tokens of equal share would be as uncertain.)

# %%
logits = predict(config.model, params, Batch(None, tokens_of(tokenizers, "Der Hund")[None], None))[
    0, -1
]
figure, axes = plt.subplots(1, 3, figsize=(13, 3), layout="constrained", sharey=True)
for temperature, ax in zip((0.5, 1.0, 2.0), axes):
    shares = np.sort(jax.nn.softmax(logits / temperature))[::-1]
    entropy = -(shares * np.log(np.maximum(shares, 1e-30))).sum()
    ax.bar(range(30), shares[:30])
    ax.set(
        title=f"temperature {temperature}: {np.exp(entropy):.1f}", xlabel="tokens, likeliest first"
    )
axes[0].set_ylabel("probability")
plt.show()


# %%
def write(text, **settings):
    generator = make_generator(
        config, GenerateConfig(max_tokens=30, **settings), params, tokenizers
    )
    return [one.text for one in continuations(generator, [text])[0]]


for temperature in (0.0, 0.7, 1.0, 2.0):
    print(f"temperature {temperature}")
    for text in write("Gestern", samples=3, temperature=temperature, seed=1):
        print(f"    {text}")
print("temperature 2, among the 5 likeliest tokens")
print(
    *(f"    {text}" for text in write("Gestern", samples=3, temperature=2.0, top_k=5, seed=1)),
    sep="\n",
)
print("temperature 2, among the likeliest that make up nine tenths")
print(
    *(f"    {text}" for text in write("Gestern", samples=3, temperature=2.0, top_p=0.9, seed=1)),
    sep="\n",
)

# %% [markdown]
# What is drawn can be bounded as well: `top_k` leaves the k likeliest tokens in the draw, `top_p`
# the fewest that make up so much of the probability. Both come after the temperature: at 2 nine
# tenths are so many tokens that the last texts are no better than those without a bound.
#
# The same from the command line: `echo Gestern | python generate.py runs/lm_quickstart
# --temperature 0.7`.
#
# ## 4. An encoder alone: which word is missing?
#
# An encoder has no mask: every position sees those before and behind. So it cannot be trained to
# predict the next word, which it would see. Instead some words are hidden, and it has to find them.

# %%
masked = load("runs/mlm_notebook")

# %%
texts = [
    "Morgen will ich __ Hund füttern.",
    "Morgen will ich __ Katze füttern.",
    "Morgen will ich __ Pferd füttern.",
    "Die Kinder __ müde.",
]
figure, axes = plt.subplots(1, 4, figsize=(13, 2.6), layout="constrained")
for text, [guesses], ax in zip(texts, fill_mask(*masked, texts, 6), axes):
    ax.barh([one.word for one in guesses], [one.probability for one in guesses])
    ax.invert_yaxis()
    ax.set(xlim=(0, 1), title=text, xlabel="probability")
    ax.title.set_fontsize(8)
plt.show()

# %% [markdown]
# (What begins with ## is no word of its own: it goes on with the word before.)
#
# The article in front of a noun depends on what comes behind: "Hund" is masculine, "Katze"
# feminine, "Pferd" neuter. The masked model sees that; the language model, which reads from left to
# right, has to guess:

# %%
articles = ["den", "die", "das"]
ids = np.array([tokenizers.target.encode([word])[0][0] for word in articles])
after = next_probabilities(config.model, params, tokens_of(tokenizers, "Morgen will ich"))[-1]
print(f"{'':34}" + "".join(f"{word:>8}" for word in articles))
print(f"{'language model, Morgen will ich':34}" + "".join(f"{share:8.3f}" for share in after[ids]))
for text, [guesses] in zip(texts[:3], fill_mask(*masked, texts[:3], 1000)):
    shares = {one.word: one.probability for one in guesses}
    print(f"{text:34}" + "".join(f"{shares.get(word, 0):8.3f}" for word in articles))

# %% [markdown]
# ## 5. What has been learned can be taken along
#
# A classifier of sentences, of which kind their first noun is (an animal, a drink, a vehicle, ...),
# is the encoder with one linear layer on the mean of its states. Only 200 labelled sentences are
# there to learn from: once from random weights, once from those of the masked model.

# %%
import json
import tempfile

from benchmarks.pretraining import write_tables

folder = Path(tempfile.mkdtemp())
tables = write_tables(masked[0].data, folder, 200)
print(*(folder / "train.tsv").read_text(encoding="utf-8").splitlines()[:4], sep="\n")
SETTINGS = {
    "--train.steps": "200", "--train.validate-every": "100", "--train.best-by": "accuracy",
    "--data.batch-tokens": "1024", "--optimizer.warmup-steps": "50",
    "--optimizer.cooldown-steps": "100", "--optimizer.scale": "0.5",
}  # fmt: skip
ON_CPU = {"JAX_PLATFORMS": "cpu"}  # an accelerator is this notebook's by now
begins = {
    "random weights": ["--data.source-tokenizer", "runs/mlm_notebook/tokenizer/source.model"],
    "the masked model's": ["--from", "runs/mlm_notebook"],
}
for name, begin in begins.items():
    run = folder / name.replace(" ", "-").replace("'", "")
    settings = [word for setting in SETTINGS.items() for word in setting]
    train("configs/mlm_quickstart.py", "--run", str(run), *settings, *begin, *tables, **ON_CPU)
    scoring = [sys.executable, "eval.py", str(run)]
    subprocess.run(scoring, check=True, capture_output=True, env=os.environ | ON_CPU)
    [record] = (run / "eval").glob("*.json")
    losses = {one["name"]: one["value"] for one in json.loads(record.read_text())["losses"]}
    print(f"begun with {name}: {losses['accuracy']:.1%} of 1,200 test sentences are right\n")

# %% [markdown]
# (One seed, one learning rate. `python -m benchmarks.pretraining runs/mlm_notebook` tries several
# of both.)
#
# ## 6. Sparse attention is another mask
#
# Every position looking at every other costs the square of the length. GPT-3 lets every second
# layer look only at a band of the last positions; "strided" attention (Child et al., 2019) also at
# every so many-th position before. To `attend` that is nothing but another mask:

# %%
length, band = 16, 4
causal = causal_mask(length)
distance = jnp.arange(length)[:, None] - jnp.arange(length)
banded = causal & (distance < band)
strided = causal & ((distance < band) | (distance % band == 0))
names = [str(n) for n in range(length)]
figure, axes = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
for ax, mask, title in zip(axes, (causal, banded, strided), ("causal", "banded", "strided")):
    draw_weights(
        ax, np.asarray(mask[0, 0], float), names, names, f"{title}: {int(mask.sum())} pairs"
    )
plt.show()

q, k, v = jax.random.normal(jax.random.key(0), (3, 1, 2, length, 8))
values, weights = attend(q, k.swapaxes(-1, -2), v, banded)
print("rows sum to one:", bool(jnp.allclose(weights.sum(-1), 1)))
print("nothing outside of the band:", bool((weights[0, 0][~banded[0, 0]] == 0).all()))
short = attend(q, k.swapaxes(-1, -2), v, causal & (distance < length))[0]
full = attend(q, k.swapaxes(-1, -2), v, causal)[0]
print("a band as wide as the text is no band:", bool(jnp.allclose(short, full)))

# %% [markdown]
# One layer with a band of four sees four positions; two layers see seven, since what is looked at
# has looked back itself. After some layers everything is reached, and far pairs cost nothing in
# any of them:

# %%
reach = np.asarray(banded[0, 0])
seen = np.eye(length, dtype=bool)
for layer in range(1, 7):
    seen = (reach.astype(int) @ seen) > 0
    print(f"{layer} layers: the last position sees {seen[-1].sum():2} of {length}")
for long in (1_000, 10_000, 100_000):
    share = (256 * long - 256 * 255 / 2) / (long * (long + 1) / 2)
    print(f"{long:7,} positions: a band of 256 has {share:7.2%} of the pairs that causal ones have")

# %% [markdown]
# (Our kernels compute the masked pairs too: a mask makes attention sparse in what it sees, a kernel
# that skips them makes it cheap.)
#
# ## 7. How large the famous ones are
#
# The configs of BERT-large and GPT-3 are a few lines each. No weight is made here; their shapes are
# counted.

# %%
sizes = {
    "language model above": language[0],
    "masked model above": masked[0],
    "BERT-large": load_config("configs/bert_large.py"),
    "GPT-3": load_config("configs/gpt3.py"),
}


def count(model):
    return count_params(jax.eval_shape(partial(init_params, model), jax.random.key(0)))


print(f"{'':22}{'layers':>7}{'width':>8}{'heads':>6}{'parameters':>17}{'in 16 bits':>13}")
for name, of in sizes.items():
    model, layers = of.model, of.model.encoder_layers + of.model.decoder_layers
    shape = f"{layers:>7}{model.d_model:>8,}{model.num_heads:>6}"
    print(f"{name:22}{shape}{count(model):>17,}{2 * count(model) / 1e9:>10,.3f} GB")

gpt3 = sizes["GPT-3"].model
layer = (count(gpt3) - count(replace(gpt3, decoder_layers=1))) / (gpt3.decoder_layers - 1)
operations = 6 * count(gpt3) * 300e9
print(
    f"\na layer of GPT-3: {layer:,.0f} parameters; "
    f"12 times its width squared: {12 * gpt3.d_model**2:,}"
)
print(f"to train it on 300 billion tokens, at 6 operations a parameter: {operations:.2e}")

# %% [markdown]
# ## What to read next
#
# - `transformer/decoding/generator.py` writes texts, `fill_mask.py` beside it fills blanks.
# - `docs/language_models.md` has the commands, and `docs/benchmarks.md` the results.
