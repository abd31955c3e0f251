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
from transformer.commands import replay
from transformer.training import programs, step

what, first, last, *words = sys.argv[1:]
apply_gradients, gradients, update = step.apply_gradients, step.gradients, step.update


def spoilt(tree):
    leaves, structure = jax.tree.flatten(tree)
    leaves[-1] = leaves[-1].at[(-1,) * leaves[-1].ndim].set(jnp.nan)
    return jax.tree.unflatten(structure, leaves)


def chosen(state, bad, good):
    now = (state.step + 1 >= int(first)) & (state.step + 1 <= int(last))
    return jax.tree.map(lambda a, b: jnp.where(now, a, b), bad, good)


def apply_spoilt(config, state, grads, *others):
    return apply_gradients(config, state, chosen(state, spoilt(grads), grads), *others)


def weights_spoilt(config, state, *others):
    state, metrics = apply_gradients(config, state, *others)
    return state.replace(params=chosen(state, spoilt(state.params), state.params)), metrics


def of_nothing(config, state, batch, learning_rate, layout):
    empty = jax.tree.map(jnp.zeros_like, batch)
    batch = chosen(state, batch.replace(target_out=empty.target_out), batch)
    return update(config, state, batch, learning_rate, layout)


def replayed_spoilt(*arguments, **more):
    grads, sums = gradients(*arguments, **more)
    return spoilt(grads), sums


if what == "gradient":
    step.apply_gradients, replay.gradients = apply_spoilt, replayed_spoilt
if what == "weights":
    step.apply_gradients = weights_spoilt
if what == "data":
    programs.update = of_nothing
train.run_command(lambda _: train.main(words))
