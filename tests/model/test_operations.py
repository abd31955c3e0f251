"""Operations of the model: those that XLA counts."""

import jax
import jax.numpy as jnp
import pytest

from transformer.model.batch import Batch
from transformer.model.encoder_decoder import predict
from transformer.model.operations import pair_operations
from transformer.model.params import init_params


@pytest.mark.parametrize(
    "changes",
    [{}, {"encoder_layers": 0}, {"decoder_layers": 0}, {"decoder_layers": 0, "classes": 3}],
)
def test_operations_are_those_that_xla_counts(small_model, changes):
    # One layer a stack: XLA counts the body of a loop once. Wide ones: products are nearly all.
    model = small_model(
        **({"encoder_layers": 1, "decoder_layers": 1} | changes),
        d_model=256, d_ff=512, num_heads=2,
    )  # fmt: skip
    params = jax.eval_shape(lambda: init_params(model, jax.random.key(0)))
    source = jnp.ones((1, 12), jnp.int32) if model.encoder_layers else None
    target = jnp.ones((1, 16), jnp.int32) if model.decoder_layers else None
    run = jax.jit(lambda params, s, t: predict(model, params, Batch(s, t, None)))
    counted = run.lower(params, source, target).cost_analysis()["flops"]
    expected = pair_operations(model, 12 if model.encoder_layers else 0, 16)
    if not model.decoder_layers:
        expected = pair_operations(model, 12, 0)
    assert expected == pytest.approx(counted, rel=0.05)
