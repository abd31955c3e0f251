"""The schedule of equation 3, and Adam."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from transformer.config import Config, ModelConfig, OptimizerConfig, TrainConfig
from transformer.training.optimizer import learning_rate, make_optimizer


def config_with(steps=100_000, **optimizer):
    return Config(
        model=ModelConfig(d_model=512),
        optimizer=OptimizerConfig(**optimizer),
        train=TrainConfig(steps=steps),
    )


def equation_3(step, warmup=4000):
    return 512**-0.5 * min(step**-0.5, step * warmup**-1.5)


@pytest.mark.parametrize("step", [1, 2, 100, 3999, 4000, 4001, 8000, 100_000])
def test_schedule_equals_equation_3_with_steps_counted_from_1(step):
    rate = learning_rate(config_with())  # optax counts from 0
    assert float(rate(step - 1)) == pytest.approx(equation_3(step), rel=1e-5)


def test_schedule_peaks_at_the_end_of_the_warm_up():
    rates = np.asarray(learning_rate(config_with(warmup_steps=40))(jnp.arange(200)))
    assert rates.argmax() == 39
    assert (np.diff(rates[:40]) > 0).all() and (np.diff(rates[39:]) < 0).all()


def test_scale_multiplies_the_schedule():
    rate = learning_rate(config_with(scale=2.5))
    assert float(rate(99)) == pytest.approx(2.5 * equation_3(100), rel=1e-5)


def test_cooldown_leaves_the_rest_alone_and_falls_to_nearly_nothing_in_a_straight_line():
    rate = learning_rate(config_with(steps=1000, cooldown_steps=100, warmup_steps=10))
    factor = [float(rate(step - 1)) / equation_3(step, 10) for step in range(1, 1001)]
    np.testing.assert_allclose(factor[:900], 1, rtol=1e-5)
    assert 0 < factor[-1] < 0.011
    np.testing.assert_allclose(np.diff(factor[901:]), -0.01, atol=1e-5)


def gradients_of_three_updates():
    generator = np.random.default_rng(0)
    return [{"w": generator.normal(size=(3, 2)), "b": generator.normal(size=4)} for _ in range(3)]


def run(optimizer, gradients):
    params = {"w": jnp.ones((3, 2)), "b": jnp.zeros(4)}
    state = optimizer.init(params)
    for gradient in gradients:
        gradient = jax.tree.map(lambda g: jnp.asarray(g, jnp.float32), gradient)
        updates, state = optimizer.update(gradient, state, params)
        params = optax.apply_updates(params, updates)
    return params


def test_adam_equals_the_algorithm_written_out():
    moments = {"w": [0, 0], "b": [0, 0]}
    expected = {"w": np.ones((3, 2)), "b": np.zeros(4)}
    for step, gradient in enumerate(gradients_of_three_updates(), start=1):
        for name, g in gradient.items():
            m = 0.9 * moments[name][0] + 0.1 * g
            v = 0.98 * moments[name][1] + 0.02 * g**2
            moments[name] = [m, v]
            m, v = m / (1 - 0.9**step), v / (1 - 0.98**step)
            expected[name] = expected[name] - equation_3(step, 5) * m / (np.sqrt(v) + 1e-9)
    ours = run(make_optimizer(config_with(warmup_steps=5)), gradients_of_three_updates())
    for name, value in ours.items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-5, atol=1e-6)


def test_adam_equals_optaxs_with_other_settings():
    config = config_with(warmup_steps=5, beta_1=0.8, beta_2=0.9, epsilon=1e-3)
    ours = run(make_optimizer(config), gradients_of_three_updates())
    theirs = run(
        optax.adam(learning_rate(config), b1=0.8, b2=0.9, eps=1e-3), gradients_of_three_updates()
    )
    jax.tree.map(np.testing.assert_array_equal, ours, theirs)


def test_clipping_shortens_long_gradients_to_the_limit_and_leaves_short_ones():
    config = config_with(warmup_steps=5, epsilon=1.0)  # a large epsilon: length matters to Adam
    long = gradients_of_three_updates()[:1]
    norm = np.sqrt(sum((g**2).sum() for g in long[0].values()))
    short = [jax.tree.map(lambda g: g / norm * 0.5, long[0])]
    clipped = make_optimizer(replace(config, optimizer=replace(config.optimizer, clip_norm=0.5)))
    free = make_optimizer(config)

    def close(a, b):
        return all(np.allclose(a[name], b[name], rtol=1e-5, atol=1e-7) for name in a)

    assert close(run(clipped, long), run(free, short))
    assert close(run(clipped, short), run(free, short))
    assert not close(run(clipped, long), run(free, long))
