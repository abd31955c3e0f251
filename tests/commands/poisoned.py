"""train.py with something that is no number: poisoned.py WHAT FIRST LAST WORDS.

In the updates FIRST to LAST the last number of the last gradient is NaN, the loss being finite
("gradient", in a replay too), or there is nothing to predict ("data"), or from FIRST on a weight is
NaN ("weights").
"""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp

sys.path.insert(0, str(Path(__file__).parents[2]))

import train
from transformer.training import replay, sharding, step

what, first, last, *words = sys.argv[1:]
apply, next_gradients = step.apply, step.next_gradients


def spoilt(tree):
    leaves, structure = jax.tree.flatten(tree)
    leaves[-1] = leaves[-1].at[(-1,) * leaves[-1].ndim].set(jnp.nan)
    return jax.tree.unflatten(structure, leaves)


def chosen(state, bad, good):
    now = (state.step + 1 >= int(first)) & (state.step + 1 <= int(last))
    return jax.tree.map(lambda a, b: jnp.where(now, a, b), bad, good)


def apply_spoilt(config, numbers, state, grads, sums):
    return apply(config, numbers, state, chosen(state, spoilt(grads), grads), sums)


def weights_spoilt(config, numbers, state, grads, sums):
    state, told = apply(config, numbers, state, grads, sums)
    return state.replace(params=chosen(state, spoilt(state.params), state.params)), told


def of_nothing(config, parts, shards, numbers, state, batch):
    empty = jax.tree.map(jnp.zeros_like, batch)
    batch = chosen(state, batch.replace(target_out=empty.target_out), batch)
    return next_gradients(config, parts, shards, numbers, state, batch)


def replayed_spoilt(*arguments):
    grads, sums = next_gradients(*arguments)
    return spoilt(grads), sums


if what == "gradient":
    sharding.apply, replay.next_gradients = apply_spoilt, replayed_spoilt
if what == "weights":
    sharding.apply = weights_spoilt
if what == "data":
    sharding.next_gradients = of_nothing
train.run_command(lambda _: train.main(words))
