"""The schedule of equation 3, and Adam."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import optax.contrib
import pytest

from transformer.config import Config, ModelConfig, OptimizerConfig, TrainConfig
from transformer.training.optimizer import evaluation_params, learning_rate, make_optimizer


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
    assert float(learning_rate(config_with(), step)) == pytest.approx(equation_3(step), rel=1e-5)


def test_schedule_peaks_at_the_end_of_the_warm_up():
    rates = np.asarray(learning_rate(config_with(warmup_steps=40), np.arange(1, 201)))
    assert rates.argmax() == 39
    assert (np.diff(rates[:40]) > 0).all() and (np.diff(rates[39:]) < 0).all()


def test_the_rate_of_schedule_free_is_constant_after_warm_up():
    config = config_with(name="schedule_free", warmup_steps=40)
    rates = np.asarray(learning_rate(config, np.arange(1, 201)))
    expected = [equation_3(min(step, 40), 40) for step in range(1, 201)]
    np.testing.assert_allclose(rates, expected, rtol=1e-5)


def test_scale_multiplies_the_schedule():
    rate = learning_rate(config_with(scale=2.5), 100)
    assert float(rate) == pytest.approx(2.5 * equation_3(100), rel=1e-5)


def test_cooldown_leaves_the_rest_alone_and_falls_to_nearly_nothing_in_a_straight_line():
    config = config_with(steps=1000, cooldown_steps=100, warmup_steps=10)
    factor = [float(learning_rate(config, step)) / equation_3(step, 10) for step in range(1, 1001)]
    np.testing.assert_allclose(factor[:900], 1, rtol=1e-5)
    assert 0 < factor[-1] < 0.011
    np.testing.assert_allclose(np.diff(factor[901:]), -0.01, atol=1e-5)


def gradients_of_three_updates():
    generator = np.random.default_rng(0)
    return [{"w": generator.normal(size=(3, 2)), "b": generator.normal(size=4)} for _ in range(3)]


START = {"w": jnp.ones((3, 2)), "b": jnp.zeros(4)}


def updates_of(optimizer_of, config, gradients):
    """Parameters after updates by an optimizer of a learning rate, and its last state."""
    params, state = START, optimizer_of(0.0).init(START)
    for step, gradient in enumerate(gradients, start=1):
        gradient = jax.tree.map(lambda g: jnp.asarray(g, jnp.float32), gradient)
        optimizer = optimizer_of(learning_rate(config, step))
        updates, state = optimizer.update(gradient, state, params)
        params = optax.apply_updates(params, updates)
    return params, state


def ours(config, gradients):
    """Parameters after updates by these mean gradients, as `step.apply_gradients` makes them."""
    return updates_of(partial(make_optimizer, config.optimizer), config, gradients)[0]


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
    for name, value in ours(config_with(warmup_steps=5), gradients_of_three_updates()).items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-5, atol=1e-6)


def test_adam_equals_optaxs_with_other_settings():
    config = config_with(warmup_steps=5, beta_1=0.8, beta_2=0.9, epsilon=1e-3)
    expected, _ = updates_of(
        lambda rate: optax.adam(rate, b1=0.8, b2=0.9, eps=1e-3),
        config,
        gradients_of_three_updates(),
    )
    found = ours(config, gradients_of_three_updates())
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-6), found, expected)


def test_adamw_equals_optaxs_and_leaves_biases_alone():
    config = config_with(name="adamw", warmup_steps=5, weight_decay=0.3)
    expected, _ = updates_of(
        lambda rate: optax.adamw(
            rate, 0.9, 0.98, 1e-9, weight_decay=0.3, mask={"w": True, "b": False}
        ),
        config,
        gradients_of_three_updates(),
    )
    found = ours(config, gradients_of_three_updates())
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-6), found, expected)
    plain = ours(config_with(warmup_steps=5), gradients_of_three_updates())
    np.testing.assert_array_equal(found["b"], plain["b"])
    assert not np.allclose(found["w"], plain["w"])


@pytest.mark.parametrize(
    "nesterov, rms", [(True, 0.2), pytest.param(False, 0.0, marks=pytest.mark.slow)]
)
def test_muon_moves_each_matrix_of_each_layer_as_optaxs_does_and_all_else_as_adam(
    small_model, random_params, nesterov, rms
):
    settings = {"muon_nesterov": nesterov, "muon_rms": rms, "warmup_steps": 5}
    model = small_model(encoder_layers=2, decoder_layers=2)
    config, params = config_with(name="muon", **settings), random_params(model)
    gradients = [random_params(model, seed) for seed in (1, 2, 3)]

    def moved(optimizer_of, params, gradients):
        state = optimizer_of(0.0).init(params)
        for step, gradient in enumerate(gradients, start=1):
            optimizer = optimizer_of(learning_rate(config, step))
            updates, state = optimizer.update(gradient, state, params)
            params = optax.apply_updates(params, updates)
        return params

    found = moved(partial(make_optimizer, config.optimizer), params, gradients)
    adam = moved(lambda rate: optax.adam(rate, 0.9, 0.98, 1e-9), params, gradients)
    np.testing.assert_allclose(found.embedding.source, adam.embedding.source, rtol=1e-5)
    norm = "self_attention_norm"
    ours, theirs = (getattr(tree.encoder.layers, norm).scale for tree in (found, adam))
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)
    for name, inputs in {"w_q": 16, "w_o": 16}.items():

        def matrix(tree, name=name, inputs=inputs):
            return getattr(tree.decoder.layers.cross_attention, name)[1].reshape(inputs, -1)

        expected = moved(
            lambda rate: optax.contrib.muon(
                rate,
                ns_steps=3,
                preconditioning="aol",
                nesterov=nesterov,
                consistent_rms=rms or None,
            ),
            {"w": matrix(params)},
            [{"w": matrix(gradient)} for gradient in gradients],
        )
        np.testing.assert_allclose(matrix(found), expected["w"], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["muon", "schedule_free"])
def test_weight_decay_moves_all_weights_except_norms_and_biases(small_model, random_params, name):
    settings = OptimizerConfig(name=name, weight_decay=0.25)
    params = random_params(small_model(attention_bias=True))
    optimizer = make_optimizer(settings, 0.5)
    zeros = jax.tree.map(jnp.zeros_like, params)
    updates, _ = optimizer.update(zeros, optimizer.init(params), params)
    decayed = 0
    for (path, weight), update in zip(
        jax.tree_util.tree_leaves_with_path(params), jax.tree.leaves(updates)
    ):
        last = jax.tree_util.keystr(path[-1:], simple=True)
        is_decayed = last.startswith("w_") or last in ("source", "target")
        expected = -0.5 * 0.25 * weight if is_decayed else jnp.zeros_like(weight)
        np.testing.assert_allclose(update, expected, rtol=1e-5, atol=1e-6, err_msg=str(path))
        decayed += is_decayed
    assert decayed > 10


def test_the_length_of_gradients_does_not_change_the_updates_of_muon(small_model, random_params):
    params, gradient = random_params(small_model()), random_params(small_model(), 1)
    optimizer = make_optimizer(OptimizerConfig(name="muon"), 1.0)
    state = optimizer.init(params)
    of_any_length = [
        optimizer.update(jax.tree.map(lambda g: g * length, gradient), state, params)[0]
        for length in (1.0, 2.0**-18)
    ]
    np.testing.assert_allclose(
        *[found.decoder.layers.feed_forward.w_1 for found in of_any_length], rtol=1e-4, atol=1e-6
    )


def test_schedule_free_equals_optaxs_and_is_evaluated_at_its_average():
    config = config_with(name="schedule_free", warmup_steps=5)
    expected, state = updates_of(
        lambda rate: optax.contrib.schedule_free_adamw(rate, b1=0.9, b2=0.98, eps=1e-9),
        config,
        gradients_of_three_updates(),
    )
    found, own = updates_of(
        partial(make_optimizer, config.optimizer), config, gradients_of_three_updates()
    )
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-6), found, expected)
    average = optax.contrib.schedule_free_eval_params(state, expected)
    jax.tree.map(
        partial(np.testing.assert_allclose, rtol=1e-5), evaluation_params(own, found), average
    )
    assert (
        evaluation_params(make_optimizer(config_with().optimizer, 0.0).init(START), found) is found
    )


@pytest.mark.parametrize("limit, factor", [(0.0, 1.0), (3.0, 1.0), (1.0, 0.5)])
def test_a_gradient_longer_than_the_limit_is_shortened_to_it(limit, factor):
    optimizer = make_optimizer(config_with(clip_norm=limit).optimizer, 1.0)
    gradient = jax.tree.map(jnp.zeros_like, START) | {"b": jnp.asarray([0.0, 2.0, 0.0, 0.0])}
    _, state = optimizer.update(gradient, optimizer.init(START), START)
    np.testing.assert_allclose(optax.tree.get(state, "mu")["b"][1], 0.1 * 2 * factor, rtol=1e-6)
