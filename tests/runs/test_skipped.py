"""Updates that were skipped, kept so that they can be looked at."""

from functools import partial

import jax
import numpy as np

from transformer.runs.skipped import forget_skipped, keep_skipped, load_skipped
from transformer.training.step import init_state


def test_the_update_of_a_run_that_was_replaced_is_replaced_too(
    tmp_path, small_config, random_batch
):
    config = small_config(model={"encoder_layers": 1, "decoder_layers": 1, "d_ff": 8})
    make = jax.jit(partial(init_state, config))
    for seed in (0, 1):
        state = make(jax.random.key(seed))
        state, batch = state.replace(step=state.step + 10), random_batch()
        forget_skipped(tmp_path, 10)
        keep_skipped(tmp_path, config, state, batch, ["a sentence"])
        kept, read = load_skipped(tmp_path, config, 10)
        assert int(kept.step) == 9
        jax.tree.map(np.testing.assert_array_equal, kept.params, state.params)
        np.testing.assert_array_equal(read.source, batch.source)
