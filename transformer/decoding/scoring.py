"""How likely given translations are, read at once (teacher forcing)."""

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
from transformer.model.batch import BOS, EOS, PAD, Batch
from transformer.model.encoder_decoder import token_log_probs
from transformer.model.params import Params


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
    ensemble: Ensemble,
    source: Int[np.ndarray, "B S"],
    target: Int[np.ndarray, "B T"],
    temperature: float = 1.0,
) -> Float[np.ndarray, "B T"]:
    """Natural log-probability of each token of the targets, EOS included, given its source and the
    tokens before it; 0 at PAD. The logits are divided by the temperature."""
    found = _token_log_probs(ensemble.models, ensemble.params, source, target, temperature)
    return np.asarray(found)


@partial(jax.jit, static_argnums=0)
def _token_log_probs(models, params, source, target, temperature) -> Float[Array, "B T"]:
    batch = Batch(source, shifted(target), target)
    each = [token_log_probs(*member, batch, temperature)[0] for member in zip(models, params)]
    mean = jax.nn.logsumexp(jnp.stack(each), axis=0) - jnp.log(len(each))
    return jnp.where(target == PAD, 0, mean)


def shifted(target: Int[Array, "B T"]) -> Int[Array, "B T"]:
    """What the decoder reads to predict these tokens: BOS and all but the last."""
    return jnp.pad(target[:, :-1], ((0, 0), (1, 0)), constant_values=BOS)


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
