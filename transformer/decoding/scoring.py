"""Translations that are given, read in one go (teacher forcing): how likely they are, and where
each token looks."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int

from transformer.config import ModelConfig
from transformer.data.tags import read_source
from transformer.decoding.batches import longest_text, teacher_forced_batches
from transformer.decoding.ensemble import Ensemble, make_ensemble
from transformer.decoding.translator import Translator
from transformer.errors import UserError
from transformer.model.batch import BOS, EOS, PAD
from transformer.model.encoder_decoder import decode, encode, logits
from transformer.model.params import Params, output_layer


def log_probabilities(
    model: ModelConfig,
    params: Params,
    source: Int[np.ndarray, "B S"],
    target: Int[np.ndarray, "B T"],
) -> Float[np.ndarray, "B"]:
    """Natural log-probability of each target given its source, PAD apart."""
    ensemble = make_ensemble([(model, params)], "model")
    return token_log_probabilities(ensemble, source, target).sum(1)


def token_log_probabilities(
    ensemble: Ensemble, source: Int[np.ndarray, "B S"], target: Int[np.ndarray, "B T"]
) -> Float[np.ndarray, "B T"]:
    """Natural log-probability of each token of the targets, EOS included, given its source and the
    tokens before it; 0 at PAD."""
    found = _token_log_probs(ensemble.models, ensemble.params, source, shifted(target), target)
    return np.asarray(found)


def attention_to_source(
    ensemble: Ensemble, source: Int[np.ndarray, "B S"], target: Int[np.ndarray, "B T"]
) -> Float[np.ndarray, "B T S"]:
    """How much is looked at each token of the source while each token of the targets, with EOS, is
    predicted: the mean of all heads but those of the first layer, if there are more, and of the
    models."""
    return np.asarray(_attention(ensemble.models, ensemble.params, source, shifted(target)))


@partial(jax.jit, static_argnums=0)
def _token_log_probs(models, params, source, target_in, target) -> Float[Array, "B T"]:
    def log_probs(model, params):
        x, _, _ = decode(model, params, encode(model, params, source), target_in)
        every = jax.nn.log_softmax(logits(output_layer(params), x))
        return jnp.take_along_axis(every, target[..., None], axis=2)[..., 0]

    each = jnp.stack([log_probs(*member) for member in zip(models, params)])
    return jnp.where(target == PAD, 0, jax.nn.logsumexp(each, axis=0) - jnp.log(len(each)))


@partial(jax.jit, static_argnums=0)
def _attention(models, params, source, target_in) -> Float[Array, "B T S"]:
    def of_layers(model, params):
        _, _, weights = decode(model, params, encode(model, params, source), target_in)
        cross = [layer.cross for layer in weights]
        return jnp.stack(cross[min(1, len(cross) - 1) :])

    each = [of_layers(*member) for member in zip(models, params)]
    return sum(layers.mean((0, 2)) for layers in each) / len(each)


def shifted(target: Int[np.ndarray, "B T"]) -> Int[np.ndarray, "B T"]:
    """What is read where these tokens are to be predicted: BOS and all but the last."""
    return np.insert(target[:, :-1], 0, BOS, axis=1)


@dataclass(frozen=True)
class Scored:
    """A given translation: its tokens, EOS included, and the natural log-probability of each."""

    tokens: tuple[int, ...]
    log_probs: tuple[float, ...]

    @property
    def log_prob(self) -> float:
        """Of the whole translation: the chain rule. Minus infinity where the source is blank."""
        return sum(self.log_probs) if self.log_probs else -math.inf


def score_pairs(
    translator: Translator, sources: Sequence[str], targets: Sequence[str]
) -> list[Scored]:
    """How likely each translation is, given its source; blank sources have none.

    Raises UserError for a pair that is longer than the model or `decode.max_source_length` allows.
    """
    models, settings = translator.ensemble.models, translator.settings
    longest = longest_text(models, settings)
    source_side, target_side = translator.tokenizers
    tagged = ["".join(read_source(source_side, source)) for source in sources]
    read, given = source_side.encode(tagged), target_side.encode(list(targets))
    if (length := max(map(len, [*read, *given]), default=0)) > longest:
        raise UserError(
            f"the text or its translation has {length:,} tokens; at most {longest:,} can be scored "
            "(decode.max_source_length, or model.max_positions)"
        )
    ended = [[*target, EOS] for target in given]
    found = [Scored((), ())] * len(sources)
    for numbers, source, target in teacher_forced_batches(models, settings, read, ended):
        log_probs = token_log_probabilities(translator.ensemble, source, target)
        for number, of_one in zip(numbers, log_probs.tolist()):
            length = len(ended[number])
            found[number] = Scored(tuple(ended[number]), tuple(of_one[:length]))
    return found
