"""A translator of two recurrent networks, without attention (Cho et al., 2014; Sutskever et al.,
2014), with which notebook 01 compares the Transformer.

`make weights` trains it, on the pairs and with the vocabulary of weights/quickstart.
"""

import hashlib
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int
from sacrebleu.metrics import BLEU
from safetensors.numpy import load_file, save_file

from transformer.data.batching import Position, batches, pad_sources
from transformer.data.buckets import make_plan
from transformer.data.corpus import read_pairs
from transformer.data.token_store import encoded
from transformer.data.vocabularies import Tokenizers
from transformer.interchange.model import load_plain
from transformer.model.batch import BOS, EOS, PAD, Batch
from transformer.model.params import by_name
from transformer.runs.load import Run

WEIGHTS = Path(__file__).parent / "weights"
STORED = WEIGHTS / "recurrent" / "model.safetensors"
D, UPDATES, LEARNING_RATE = 192, 2400, 3e-3
LONGEST = 60
"""Most tokens of a translation."""


class Cell(NamedTuple):
    """A gated recurrent unit: weights of input and state for the gates r, z and the new state n."""

    w_x: Float[Array, "D 3 D"]
    w_h: Float[Array, "D 3 D"]
    b_x: Float[Array, "3 D"]
    b_h: Float[Array, "3 D"]


class Recurrent(NamedTuple):
    """Both networks share the embedding [V, D], which also gives the logits."""

    embedding: Float[Array, "V D"]
    encoder: Cell
    decoder: Cell


def init_recurrent(key: jax.Array, vocab_size: int) -> Recurrent:
    """Random weights of variance 1 / D."""
    keys = iter(jax.random.split(key, 5))
    draw = lambda *shape: jax.random.normal(next(keys), shape) / D**0.5  # noqa: E731
    cells = [Cell(draw(D, 3, D), draw(D, 3, D), *jnp.zeros((2, 3, D))) for _ in range(2)]
    return Recurrent(draw(vocab_size, D), *cells)


def next_state(cell: Cell, h: Float[Array, "B D"], x: Float[Array, "B D"]) -> Float[Array, "B D"]:
    """The state after one more input (Cho et al., 2014, equations 5 to 8, except that r multiplies
    the product with w_h instead of h)."""
    of_x = jnp.einsum("bd,dgk->gbk", x, cell.w_x) + cell.b_x[:, None]
    of_h = jnp.einsum("bd,dgk->gbk", h, cell.w_h) + cell.b_h[:, None]
    r, z = jax.nn.sigmoid(of_x[:2] + of_h[:2])
    n = jnp.tanh(of_x[2] + r * of_h[2])
    return (1 - z) * n + z * h


def context_vector(params: Recurrent, source: Int[Array, "B S"]) -> Float[Array, "B D"]:
    """The last state of the encoder, which reads the sentence backwards, so that its beginning is
    read last (Sutskever et al., 2014, section 3.3)."""

    def read(h, tokens):
        after = next_state(params.encoder, h, params.embedding[tokens])
        return jnp.where(tokens[:, None] == PAD, h, after), None

    start = jnp.zeros((len(source), D))
    return jax.lax.scan(read, start, source.T, reverse=True)[0]


def loss(params: Recurrent, batch: Batch) -> Float[Array, ""]:
    """The cross-entropy in nats per token."""
    inputs = params.embedding[batch.target_in].swapaxes(0, 1)
    context = context_vector(params, batch.source)
    step = lambda h, x: (next_state(params.decoder, h, x),) * 2  # noqa: E731
    _, states = jax.lax.scan(step, context, inputs)
    logits = jnp.einsum("tbd,vd->btv", states, params.embedding)
    nats = optax.softmax_cross_entropy_with_integer_labels(logits, batch.target_out)
    return jnp.sum(nats, where=batch.target_out != PAD) / (batch.target_out != PAD).sum()


@jax.jit
def greedy(params: Recurrent, source: Int[Array, "B S"]) -> Int[Array, "B L"]:
    """The likeliest token each time, LONGEST times."""

    def step(state, _):
        h, token = state
        h = next_state(params.decoder, h, params.embedding[token])
        token = (h @ params.embedding.T).argmax(-1)
        return (h, token), token

    start = context_vector(params, source), jnp.full(len(source), BOS)
    return jax.lax.scan(step, start, length=LONGEST)[1].T


def translate_recurrently(
    params: Recurrent, tokenizers: Tokenizers, sentences: Sequence[str]
) -> list[str]:
    """Translations by greedy search."""
    rows = tokenizers.source.encode(list(sentences))
    source = pad_sources(rows, len(rows), max(map(len, rows)) + 1)
    found = np.asarray(greedy(params, source)).tolist()
    return tokenizers.target.decode([row[: [*row, EOS].index(EOS)] for row in found])


def train(model: Run) -> Recurrent:
    """The weights after UPDATES batches of the pairs that this Transformer was trained on."""
    data = model.config.data
    pairs = encoded(data, model.tokenizers, read_pairs(data, "train"))
    schedule = optax.warmup_cosine_decay_schedule(0, LEARNING_RATE, 200, UPDATES)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(schedule, b2=0.98))

    @partial(jax.jit, donate_argnums=(0, 1))
    def update(params, state, batch):
        value, gradient = jax.value_and_grad(loss)(params, batch)
        updates, state = optimizer.update(gradient, state, params)
        return optax.apply_updates(params, updates), state, value

    params = init_recurrent(jax.random.key(0), model.config.model.target_vocab_size)
    state = optimizer.init(params)
    stream = batches(pairs, make_plan(pairs, data), 0, Position())
    for number, (batch, _) in zip(range(1, UPDATES + 1), stream):
        params, state, value = update(params, state, batch)
        if number % 200 == 0:
            print(f"update {number:,}/{UPDATES:,}  loss {value:.3f} nats per token", flush=True)
    return params


def save(params: Recurrent, path: Path) -> None:
    """Writes the weights, rounded to 16 bits."""
    save_file({name: np.asarray(leaf, np.float16) for name, leaf in by_name(params).items()}, path)


def load_recurrent(path: Path = STORED) -> Recurrent:
    """The weights in a file."""
    stored = load_file(path)
    shapes = jax.eval_shape(lambda: init_recurrent(jax.random.key(0), 1))
    leaves = [jnp.asarray(stored[name], jnp.float32) for name in by_name(shapes)]
    return jax.tree.unflatten(jax.tree.structure(shapes), leaves)


def make() -> dict:
    """Trains the networks and writes their weights; what weights.json says of them."""
    model = load_plain(WEIGHTS / "quickstart")
    STORED.parent.mkdir(parents=True, exist_ok=True)
    save(train(model), STORED)
    sources, references = zip(*read_pairs(model.config.data, "test"))
    found = translate_recurrently(load_recurrent(), model.tokenizers, sources)
    bleu = BLEU().corpus_score(found, [references]).score
    digest = hashlib.sha256(STORED.read_bytes()).hexdigest()
    command = "python notebooks/recurrent.py"
    return {"command": command, "scores": {"BLEU": round(bleu, 3)}, "sha256": digest}


if __name__ == "__main__":
    print(json.dumps(make(), indent=2))
