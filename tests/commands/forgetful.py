"""train.py that forgets Adam's moments whenever it goes on: --verify-resume is to find it."""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp

sys.path.insert(0, str(Path(__file__).parents[2]))

import train
from transformer.runs import checkpoints

restore = checkpoints.restore


def restore_without_moments(folder, config):
    state, progress = restore(folder, config)
    return state.replace(opt_state=jax.tree.map(jnp.zeros_like, state.opt_state)), progress


checkpoints.restore = restore_without_moments
train.run_command(train.main)
