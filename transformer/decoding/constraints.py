"""Constraints of a search: prefixes, no repeated n-grams, least lengths, penalties."""

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Int

from transformer.config import DecodeConfig
from transformer.model.batch import EOS, PAD


def has_constraints(config: DecodeConfig) -> bool:
    """Whether there are constraints that hold at every token."""
    return bool(config.repetition_penalty != 1 or config.no_repeat_ngram or config.min_length)


def apply_constraints(
    config: DecodeConfig,
    tokens: Int[Array, "B W L"],
    position: Int[Array, "B"],
    log_probs: Float[Array, "B W V"],
) -> Float[Array, "B W V"]:
    """The log-probabilities of the next token, minus infinity where it may not be chosen.

    The first `position` of `tokens` have been chosen. The others keep their log-probabilities, so
    scores are the model's, except for `decode.repetition_penalty`.
    """
    vocab = log_probs.shape[-1]
    if config.repetition_penalty != 1:
        repeated = present(tokens, tokens != PAD, vocab)
        log_probs = jnp.where(repeated, log_probs * config.repetition_penalty, log_probs)
    if config.no_repeat_ngram:
        ends, found = repeated_ends(tokens, position, config.no_repeat_ngram)
        log_probs = jnp.where(present(ends, found, vocab), -jnp.inf, log_probs)
    if config.min_length:
        too_early = (position < config.min_length)[:, None]
        log_probs = log_probs.at[..., EOS].add(jnp.where(too_early, -jnp.inf, 0))
    return log_probs


def next_forced(prefix: Int[Array, "B P"], position: Int[Array, "B"]) -> Int[Array, "B"]:
    """The next token of each prefix, PAD after its end."""
    place = position[:, None]
    return jnp.take_along_axis(prefix, place, axis=1, mode="fill", fill_value=PAD)[:, 0]


def force_prefix(
    token: Int[Array, "B"],
    given: Float[Array, "B W"],
    totals: Float[Array, "B N"],
    origins: Int[Array, "B N"],
    tokens: Int[Array, "B N"],
) -> tuple[Float[Array, "B N"], Int[Array, "B N"], Int[Array, "B N"]]:
    """The best continuations; where a token is forced, each hypothesis with this token alone, of
    the log-probability `given`."""
    beam = given.shape[1]
    alone = jnp.full_like(totals, -jnp.inf).at[:, :beam].set(given)
    each = jnp.broadcast_to(jnp.arange(totals.shape[1]) % beam, origins.shape)
    is_given = (token != PAD)[:, None]
    return (
        jnp.where(is_given, alone, totals),
        jnp.where(is_given, each, origins),
        jnp.where(is_given, token[:, None], tokens),
    )


def repeated_ends(
    tokens: Int[Array, "B W L"], position: Int[Array, "B"], order: int
) -> tuple[Int[Array, "B W L"], Bool[Array, "B W L"]]:
    """The last token of every n-gram of this order, and whether it begins with the tokens that the
    next one would follow: chosen once more, it would repeat the n-gram (Paulus et al., 2018)."""
    length = tokens.shape[-1]
    places, position = jnp.arange(length), position[:, None, None]
    found = jnp.broadcast_to(places < position, tokens.shape)
    for back in range(1, min(order, length)):
        before = jnp.take(tokens, jnp.maximum(places - back, 0), axis=-1)
        latest = jnp.take_along_axis(tokens, jnp.maximum(position - back, 0), axis=-1)
        found &= (before == latest) & (places >= back)
    return tokens, found & (position >= order)


def present(
    tokens: Int[Array, "B W L"], counts: Bool[Array, "B W L"], vocab: int
) -> Bool[Array, "B W V"]:
    """Which tokens of the vocabulary are among `tokens`, where `counts` is true."""

    def of_one(tokens, counts):
        return jnp.zeros(vocab, bool).at[tokens].max(counts)

    return jax.vmap(jax.vmap(of_one))(tokens, counts)
