"""What a search may choose next: beginnings that are given, and what is not to be repeated."""

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Int

from transformer.config import DecodeConfig
from transformer.model.batch import EOS, PAD


def throughout(config: DecodeConfig) -> bool:
    """Whether a search is constrained at every token."""
    return bool(config.repetition_penalty != 1 or config.no_repeat_ngram or config.min_length)


def prefix_goes_on(prefix: Int[Array, "B P"], position: Int[Array, ""]) -> Bool[Array, ""]:
    """Whether the next token of some sentence is given."""
    return (position < prefix.shape[1]) & (_at(prefix, position) != PAD).any()


def constrained(
    config: DecodeConfig,
    tokens: Int[Array, "B W L"],
    position: Int[Array, ""],
    prefix: Int[Array, "B P"] | None,
    log_probs: Float[Array, "B W V"],
) -> Float[Array, "B W V"]:
    """The log-probabilities of the next token, out of reach where it may not be chosen.

    `tokens` are those chosen so far, `position` in number. What is out of reach keeps its share of
    the probability, so that scores are the model's, but for `decode.repetition_penalty`.
    """
    vocab, plain = log_probs.shape[-1], log_probs
    if config.repetition_penalty != 1:
        repeated = present(tokens, tokens != PAD, vocab)
        log_probs = jnp.where(repeated, log_probs * config.repetition_penalty, log_probs)
    if config.no_repeat_ngram:
        ends, found = repeated_ends(tokens, position, config.no_repeat_ngram)
        log_probs = jnp.where(present(ends, found, vocab), -jnp.inf, log_probs)
    if config.min_length:
        too_early = position < config.min_length
        log_probs = log_probs.at[..., EOS].add(jnp.where(too_early, -jnp.inf, 0))
    if prefix is None:
        return log_probs
    wanted = _at(prefix, position)
    is_given = (wanted != PAD) & (position < prefix.shape[1])
    alone = jnp.where(jnp.arange(vocab) == wanted[:, None, None], plain, -jnp.inf)
    return jnp.where(is_given[:, None, None], alone, log_probs)


def begun(
    prefix: Int[Array, "B P"],
    position: Int[Array, ""],
    log_probs: Float[Array, "B W V"],
    best: Float[Array, "B W C"],
    tokens: Int[Array, "B W C"],
) -> tuple[Float[Array, "B W C"], Int[Array, "B W C"]]:
    """The best tokens and their log-probabilities; where the next one is given (as long as
    `prefix_goes_on`), that alone."""
    wanted = _at(prefix, position)[:, None, None]
    is_given = wanted != PAD
    alone = jnp.full_like(best, -jnp.inf)
    alone = alone.at[..., 0].set(jnp.take_along_axis(log_probs, wanted, axis=-1)[..., 0])
    return jnp.where(is_given, alone, best), jnp.where(is_given, wanted, tokens)


def repeated_ends(
    tokens: Int[Array, "B W L"], position: Int[Array, ""], order: int
) -> tuple[Int[Array, "B W L"], Bool[Array, "B W L"]]:
    """The last token of every n-gram of this order, and whether it begins with the tokens that the
    next one would follow: chosen once more, it would repeat the n-gram (Paulus et al., 2018)."""
    length = tokens.shape[-1]
    places = jnp.arange(length)
    found = jnp.broadcast_to(places < position, tokens.shape)
    for back in range(1, min(order, length)):
        before = jnp.take(tokens, jnp.maximum(places - back, 0), axis=-1)
        latest = jnp.take(tokens, jnp.maximum(position - back, 0), axis=-1)[..., None]
        found &= (before == latest) & (places >= back)
    return tokens, found & (position >= order)


def present(
    tokens: Int[Array, "B W L"], counts: Bool[Array, "B W L"], vocab: int
) -> Bool[Array, "B W V"]:
    """Which tokens of the vocabulary are among those that count."""

    def of_one(tokens, counts):
        return jnp.zeros(vocab, bool).at[tokens].max(counts)

    return jax.vmap(jax.vmap(of_one))(tokens, counts)


def _at(prefix: Int[Array, "B P"], position: Int[Array, ""]) -> Int[Array, "B"]:
    return jnp.take(prefix, jnp.minimum(position, prefix.shape[1] - 1), axis=1)
