"""What training costs: operations counted by XLA, hours and energy by hand."""

import jax
import jax.numpy as jnp
import pytest

from transformer.model.batch import Batch
from transformer.model.encoder_decoder import predict
from transformer.model.params import init_params
from transformer.runs.starts import Start
from transformer.viewing.cost import kilowatt_hours, pair_operations, unit_hours


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


def test_hours_are_those_of_each_start_until_the_next():
    starts = [Start(0, 0, "core", 2, "a"), Start(9, 3600, "device", 4, "b")]
    hours = unit_hours(starts, 5400)
    assert hours == {"core": 2.0, "device": 2.0}
    assert kilowatt_hours(hours) == pytest.approx(2 * 0.010 + 2 * 0.4)
    assert unit_hours([], 100) == {}
