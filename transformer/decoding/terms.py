"""Terms that a translation must have: lexically constrained beam search.

Hypotheses are grouped by the number of tokens of terms that they have, and each group keeps its
best ones (Post and Vilar, 2018, https://aclanthology.org/N18-1119, as Hu et al., 2019,
https://aclanthology.org/N19-1090, compute it). Groups compete by log-probability, except the one
with the most, so that a term can come where it is likely.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array
from jaxtyping import Bool, Float, Int

from transformer.decoding.candidates import IMPOSSIBLE, without
from transformer.model.batch import BOS, EOS, PAD

COUNTS, LENGTHS = (4, 16, 64), (8, 32)
"""Forms of a sentence, and tokens of a form, to pad to, so that few shapes are compiled."""

Term = Sequence[Sequence[int]]
"""The forms of a term, each as tokens; a translation must have one of them."""


class TermTable(NamedTuple):
    """The terms of B sentences.

    forms      [B, F, L]  tokens of each form, then PAD; forms of PAD alone are padding
    numbers    [B, F]     the term that each form is of
    firsts     [B, F]     the first term with the same forms
    continues  [B, V]     tokens that continue a word
    """

    forms: Array | np.ndarray
    numbers: Array | np.ndarray
    firsts: Array | np.ndarray
    continues: Array | np.ndarray


class Terms(struct.PyTreeNode):
    """The terms of B sentences, and how much of them W hypotheses have.

    table    forms, numbers, firsts and tokens that continue a word
    matched  [B, W, F]  first tokens of each form that a hypothesis ends with
    met      [B, W, F]  whether it has a form of the same term
    ended    [B, W]     whether its last token ends a form, so that the word must end too
    """

    table: TermTable
    matched: Array
    met: Array
    ended: Array

    @property
    def lengths(self) -> Int[Array, "B F"]:
        """Tokens of each form."""
        return (self.table.forms != PAD).sum(-1)

    @property
    def are_met(self) -> Bool[Array, "B W"]:
        """Whether a hypothesis has all terms."""
        return self.met.all(-1)

    @property
    def same(self) -> Bool[Array, "B F F"]:
        """Which forms are of the same term."""
        return self.table.numbers[:, :, None] == self.table.numbers[:, None, :]

    @property
    def waits(self) -> Bool[Array, "B W F"]:
        """Whether a form is of a term that the sentence has a second time, and the first is not met
        yet: a form in a translation is of one of them."""
        firsts, numbers = self.table.firsts, self.table.numbers
        is_earlier = numbers[:, None] < numbers[:, :, None]
        before = is_earlier & (firsts[:, None] == firsts[:, :, None])
        return jnp.any(before[:, None] & ~self.met[:, :, None], -1)

    def counts(self) -> Int[Array, "B W"]:
        """Tokens of terms that each hypothesis has, those of begun forms included."""
        longest = (self.same * self.lengths[:, None, :]).max(-1)
        return self._sum(jnp.where(self.met, longest[:, None], self.matched))

    def most(self) -> Int[Array, "B"]:
        """The same for a hypothesis that has all terms."""
        return self._sum(self.lengths[:, None])[:, 0]

    def _sum(self, of_forms: Int[Array, "B W F"]) -> Int[Array, "B W"]:
        """The sum over the terms of the largest number of a form."""
        of_terms = (self.same[:, None] * of_forms[:, :, None]).max(-1)
        earlier = jnp.tril(jnp.ones(self.same.shape[1:], bool), -1)
        is_first = ~(self.same & earlier).any(-1)
        return (of_terms * is_first[:, None]).sum(-1)

    def next_tokens(self) -> Int[Array, "B W F"]:
        """The token after the matched ones of each form, PAD where its term is met or waits."""
        forms = jnp.broadcast_to(
            self.table.forms[:, None], (*self.matched.shape, self.table.forms.shape[-1])
        )
        found = jnp.take_along_axis(forms, self.matched[..., None], -1, mode="clip")[..., 0]
        return jnp.where(self.met | self.waits, PAD, found)

    def allowed(self, log_probs: Float[Array, "B W V"], is_soft: bool) -> Float[Array, "B W V"]:
        """The log-probabilities, minus infinity of what would continue the word of a form, and of
        an end without all terms, unless they are soft."""
        breaks = self.ended[..., None] & self.table.continues[:, None]
        log_probs = jnp.where(breaks, -jnp.inf, log_probs)
        if is_soft:
            return log_probs
        return log_probs.at[..., EOS].add(jnp.where(self.are_met, 0, -jnp.inf))

    def after(self, origins: Int[Array, "B N"], tokens: Int[Array, "B N"]) -> "Terms":
        """What the continuations of hypotheses by these tokens have. A form that begins twice
        before it goes on (a a b in a a a b) is not found."""
        before = self.take(origins)
        forms, token = self.table.forms, tokens[..., None]
        continued = before.next_tokens() == token
        is_first = forms[:, None, :, 0] == token
        matched = jnp.where(continued, before.matched + 1, is_first) * ~(before.met | before.waits)
        complete = (matched == self.lengths[:, None]) & (matched > 0)
        met = before.met | (complete[:, :, None] & self.same[:, None]).any(-1)
        return self.replace(matched=matched * ~met, met=met, ended=complete.any(-1))

    def take(self, origins: Int[Array, "B N"]) -> "Terms":
        """Those of the chosen hypotheses."""
        return self.replace(
            matched=jnp.take_along_axis(self.matched, origins[..., None], 1),
            met=jnp.take_along_axis(self.met, origins[..., None], 1),
            ended=jnp.take_along_axis(self.ended, origins, 1),
        )


def start_terms(table: TermTable, beam: int) -> Terms:
    """The terms before the first token."""
    batch, forms, _ = table.forms.shape
    is_padding = (table.forms != PAD).sum(-1) == 0
    return Terms(
        table=TermTable(*map(jnp.asarray, table)),
        matched=jnp.zeros((batch, beam, forms), jnp.int32),
        met=jnp.broadcast_to(jnp.asarray(is_padding)[:, None], (batch, beam, forms)),
        ended=jnp.zeros((batch, beam), bool),
    )


def count_terms(table: TermTable, tokens: Sequence[int] | Int[np.ndarray, "L"]) -> int:
    """Tokens of the terms of one sentence that a translation has, as a search counts them; PAD may
    follow its EOS. Compiled for each number of tokens."""
    return int(_count_terms(table, np.asarray(tokens, np.int32)))


@jax.jit
def _count_terms(table: TermTable, tokens: Int[Array, "L"]) -> Int[Array, ""]:
    origin = jnp.zeros((1, 1), jnp.int32)

    def read(found: Terms, token: Array) -> tuple[Terms, None]:
        return found.after(origin, token[None, None]), None

    found, _ = jax.lax.scan(read, start_terms(table, beam=1), tokens)
    return found.counts()[0, 0]


def with_terms(
    terms: Terms,
    totals: Float[Array, "B W"],
    log_probs: Float[Array, "B W V"],
    found: tuple[Float[Array, "B N"], Int[Array, "B N"], Int[Array, "B N"]],
    forbidden: Sequence[int],
) -> tuple[Float[Array, "B M"], Int[Array, "B M"], Int[Array, "B M"]]:
    """The best continuations, and after them for each hypothesis its end, its likeliest next token
    and the next token of each form. Log-probabilities of those that occur twice, or that are not
    allowed, are IMPOSSIBLE."""
    never = {PAD, BOS, *forbidden}
    every = jnp.arange(log_probs.shape[-1])
    likeliest = without(log_probs, every, {EOS, *never}).argmax(-1)
    of_all = jnp.stack([jnp.full_like(likeliest, EOS), likeliest], -1)
    added = jnp.concatenate([of_all, terms.next_tokens()], -1)
    given = totals[..., None] + jnp.take_along_axis(log_probs, added, -1)
    given = without(given, added, never)
    rows = jnp.broadcast_to(jnp.arange(added.shape[1])[:, None], added.shape)
    values, origins, tokens = (
        jnp.concatenate([first, second.reshape(len(first), -1)], 1)
        for first, second in zip(found, (given, rows, added))
    )
    equal = (origins[:, :, None] == origins[:, None]) & (tokens[:, :, None] == tokens[:, None])
    is_second = (equal & jnp.tril(jnp.ones(equal.shape[1:], bool), -1)).any(-1)
    return jnp.where(is_second, IMPOSSIBLE, jnp.maximum(values, IMPOSSIBLE)), origins, tokens


def preference(totals: Float[Array, "B N"], counts: Int[Array, "B N"]) -> Float[Array, "B N"]:
    """Larger for continuations that should be kept: first the best with the largest count, so that
    all terms are met in the end; then the best of each other count, by log-probability; then the
    second of each count, and so on."""
    size, place = totals.shape[1], jnp.arange(totals.shape[1])
    is_better = (totals[:, None] > totals[:, :, None]) | (
        (totals[:, None] == totals[:, :, None]) & (place < place[:, None])
    )
    rank = (is_better & (counts[:, None] == counts[:, :, None])).sum(-1)
    possible = totals > IMPOSSIBLE / 2
    most = jnp.where(possible, counts, -1).max(1, keepdims=True)
    keys = jnp.where((counts == most) & (rank == 0), 1, -rank * size - is_better.sum(-1))
    return jnp.where(possible, keys.astype(jnp.float32), IMPOSSIBLE)
