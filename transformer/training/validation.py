"""Validation: the loss of a model on text that it is not trained on."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from transformer.config import ModelConfig
from transformer.model.batch import PAD, Batch
from transformer.model.encoder_decoder import token_log_probs
from transformer.model.params import Params
from transformer.training.loss import LossSums

Z = 1.96
"""Standard errors on either side of a mean that make a 95 % interval."""


@partial(jax.jit, static_argnums=0)
def sentence_sums(config: ModelConfig, params: Params, batch: Batch) -> LossSums:
    """The sums of each sentence, [B]; 0 for a row of padding."""
    log_probs, is_likeliest = token_log_probs(config, params, batch)
    real = batch.target_out != PAD
    nll = -log_probs.sum(1, where=real)
    correct, tokens = (is_true.sum(1, dtype=jnp.float32) for is_true in (is_likeliest & real, real))
    return LossSums(nll, nll, correct, tokens)


@dataclass(frozen=True)
class Losses:
    """The negative log-likelihood of each sentence in nats, its correctly predicted tokens, and all
    its tokens."""

    nll: np.ndarray
    correct: np.ndarray
    tokens: np.ndarray

    @property
    def loss(self) -> tuple[float, float]:
        """Nats per token, and the standard error."""
        return ratio(self.nll, self.tokens)

    @property
    def accuracy(self) -> tuple[float, float]:
        """The share of correctly predicted tokens, and the standard error."""
        return ratio(self.correct, self.tokens)

    @property
    def scores(self) -> dict[str, float]:
        """Loss in nats per token, perplexity and accuracy, which may choose checkpoints."""
        loss = self.loss[0]
        return {"loss": loss, "perplexity": perplexity(loss), "accuracy": self.accuracy[0]}


@dataclass(frozen=True)
class Estimate:
    """A score with its 95 % interval over sentences; None if there is one sentence, or all are
    alike."""

    name: str
    value: float
    interval: tuple[float, float] | None

    def __str__(self) -> str:
        if self.interval is None:
            return f"{self.name} {self.value:.4g}  (no interval: one sentence, or all alike)"
        low, high = self.interval
        return f"{self.name} {self.value:.4g}  (95 % interval {low:.4g} to {high:.4g})"


def estimates(losses: Losses, unit: str = "token", num_bytes: int | None = None) -> list[Estimate]:
    """Loss in several units, and accuracy; with `num_bytes` of the text, bits per byte too."""
    (mean, error), (share, share_error) = losses.loss, losses.accuracy
    nats = mean + Z * error * np.array([0, -1, 1])
    found = {
        f"nats/{unit}": nats,
        f"bits/{unit}": nats / math.log(2),
        "perplexity": np.array([perplexity(value) for value in nats]),
    }
    if num_bytes:
        found["bits/byte"] = nats / math.log(2) * losses.tokens.sum() / num_bytes
    found["accuracy"] = np.clip(share + Z * share_error * np.array([0, -1, 1]), 0, 1)
    return [
        Estimate(name, float(value), (float(low), float(high)) if low < high else None)
        for name, (value, low, high) in found.items()
    ]


def perplexity(nats: float) -> float:
    """exp of a mean loss in nats, at most e^700, so that it is finite."""
    return math.exp(min(nats, 700))


def ratio(values: np.ndarray, counts: np.ndarray) -> tuple[float, float]:
    """The sum of `values` over that of `counts`, and its standard error over sentences, 0 of one:
    that of a ratio of two sums by linearisation (Cochran, 1977, Sampling Techniques, 2.11)."""
    mean, n = values.sum() / counts.sum(), len(values)
    squares = np.square(values - mean * counts).sum() * n / max(n - 1, 1)
    return float(mean), float(np.sqrt(squares) / counts.sum())


def losses_of(
    compute: Callable[[Params, Batch], LossSums], params: Params, batches: Iterable[Batch]
) -> Losses:
    """The losses of all sentences of the batches; `compute` is `sentence_sums` with its config."""
    found = [jax.device_get(compute(params, batch)) for batch in batches]
    nll, correct, tokens = (
        np.concatenate([getattr(sums, name) for sums in found]).astype(np.float64)
        for name in ("nll", "correct", "tokens")
    )
    real = tokens > 0
    return Losses(nll[real], correct[real], tokens[real])
