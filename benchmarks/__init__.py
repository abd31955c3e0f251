"""Measurements of this project, most of them side by side with another system."""

import jax

# As in train.py, whatever JAX_ENABLE_X64 says.
jax.config.update("jax_enable_x64", False)
