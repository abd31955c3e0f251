"""Attention alone: `attend` against the fused kernels that JAX knows, forwards and backwards.

    python -m benchmarks.attention
    python -m benchmarks.attention --lengths 32 --tokens 512 --rounds 2      tries the script

Needs nothing besides the project. On an NVIDIA GPU with bfloat16 one contestant is cuDNN's flash
attention; it has no dropout in JAX, and takes no 32-bit numbers. So this tells whether a fused
kernel behind `attend` would pay: where no attention weights are asked for and none are dropped.

Heads are those of the paper's base model (8 of 64), as many sentences as make `tokens` tokens. The
mask is a decoder's: causal, and no sentence looks at padding (the last quarter of each). A
repetition is the gradient, for queries, keys and values, of the sum of the output, weighted at
random; all are [B, T, H, K] as projections leave them. Before anything is timed, the gradients are
compared with those of `attend` in float32, and the largest difference is printed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from benchmarks.measure import alternate, machine, milliseconds, parse_lists, table, timed, versions
from transformer.commands.program import run_command
from transformer.config.settings import Count, Positive
from transformer.machine import devices
from transformer.model.layers import attend, causal_mask

HEADS, WIDTH = 8, 64
"""Of the paper's base model."""


@dataclass(frozen=True)
class Attention:
    """Measure attention alone."""

    lengths: tuple[Positive, ...] = (32, 64, 128, 512)
    """Tokens of a sentence."""
    tokens: Count = 0
    """Tokens together; 0: 25,000 on an accelerator, 2,048 on a CPU."""
    rounds: Positive = 20
    """Repetitions that are timed."""


def main(words: list[str]) -> None:
    command = parse_lists(Attention, words, "python -m benchmarks.attention")
    on_cpu = jax.default_backend() == "cpu"
    dtype = jnp.float32 if on_cpu else jnp.bfloat16
    tokens = command.tokens or (2048 if on_cpu else 25_000)
    print(f"{machine()}\n{devices.describe()}, {dtype.__name__}\n{versions('jax')}\n")
    rows = []
    for length in command.lengths:
        rows += compare(max(1, tokens // length), length, dtype, command.rounds)
    print(f"\n{command.rounds} rounds, contestants in turn\n\n{table(rows)}")


def compare(sentences: int, length: int, dtype: Any, rounds: int) -> list[dict[str, str]]:
    """A row for each contestant; ours is the first."""
    keys = jax.random.split(jax.random.key(length), 4)
    shape = (sentences, length, HEADS, WIDTH)
    *qkv, weight = (jax.random.normal(key, shape, dtype) for key in keys)
    mask = causal_mask(length) & (jnp.arange(length) < filled(length))
    expected = both_ways(ours)([x.astype(jnp.float32) for x in qkv], weight, mask)
    runs, first = {}, {}
    for name, attention in contestants(dtype).items():
        runs[name] = partial(finished, both_ways(attention), qkv, weight, mask)
        found, first[name] = timed(runs[name])
        print(f"{length} tokens, {name}: largest difference {difference(found, expected):.1e}")
    timings = alternate(runs, rounds)
    return [
        {
            "tokens": str(length),
            "sentences": str(sentences),
            "contestant": name,
            **milliseconds(timing),
            "compile s": f"{max(first[name] - timing.median, 0):.1f}",
            "time / ours": f"{timing.median / timings['ours'].median:.2f}",
        }
        for name, timing in timings.items()
    ]


def filled(length: int) -> int:
    """Tokens of a sentence that are not padding."""
    return max(1, length * 3 // 4)


def contestants(dtype: Any) -> dict[str, Callable[..., Array]]:
    """Functions of q, k, v [B, T, H, K] and a mask; cuDNN's only where it can run."""
    found = {"ours": ours, "jax.nn, xla": xla}
    if jax.default_backend() == "gpu" and dtype == jnp.bfloat16:
        found["jax.nn, cudnn"] = cudnn
    return found


def ours(q: Array, k: Array, v: Array, mask: Array) -> Array:
    """`attend`, between the transpositions of `multi_head_attention`."""
    values, _ = attend(q.swapaxes(1, 2), k.transpose(0, 2, 3, 1), v.swapaxes(1, 2), mask)
    return values.swapaxes(1, 2)


def xla(q: Array, k: Array, v: Array, mask: Array) -> Array:
    return jax.nn.dot_product_attention(q, k, v, mask=mask, implementation="xla")


def cudnn(q: Array, k: Array, v: Array, mask: Array) -> Array:
    """The same mask given as lengths: a boolean mask would get a gradient."""
    lengths = jnp.full(len(q), filled(q.shape[1]))
    return jax.nn.dot_product_attention(
        q,
        k,
        v,
        is_causal=True,
        query_seq_lengths=jnp.full_like(lengths, q.shape[1]),
        key_value_seq_lengths=lengths,
        implementation="cudnn",
    )


def both_ways(attention: Callable[..., Array]) -> Callable[..., Any]:
    """The gradients for queries, keys and values, by way of the output."""

    def weighted_sum(qkv, weight, mask):
        return jnp.vdot(attention(*qkv, mask), weight, preferred_element_type=jnp.float32)

    return jax.jit(jax.grad(weighted_sum))


def finished(function: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a function, once it is computed."""
    return jax.block_until_ready(function(*arguments))


def difference(found: list[Array], expected: list[Array]) -> float:
    """The largest between two lists, as a part of the largest number of each expected array."""
    return max(float(jnp.abs(a - b).max() / jnp.abs(b).max()) for a, b in zip(found, expected))


if __name__ == "__main__":
    run_command(main)
