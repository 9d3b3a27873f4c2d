"""The adapter against gymnax itself."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

gymnax_package = pytest.importorskip("gymnax")

from spo.environments.gymnax import gymnax, names, time_limit  # noqa: E402
from spo.types import ContinuousActions, DiscreteActions  # noqa: E402

NAMES = ("CartPole-v1", "Pendulum-v1", "Breakout-MinAtar", "Catch-bsuite")


def _random_action(key, spec):
    if isinstance(spec, DiscreteActions):
        return jax.random.randint(key, (), 0, spec.num_actions)
    return jax.random.uniform(key, (spec.size,), minval=spec.low, maxval=spec.high)


@pytest.mark.parametrize("name", NAMES)
def test_plays_like_gymnax(name):
    """Against gymnax's own `step`, which resets at an end. Both are equal up to the end."""
    env = gymnax(name).train
    raw, params = gymnax_package.make(name)
    key = jax.random.key(2)
    state, timestep = env.reset(key)
    observation, raw_state = raw.reset(key, params)
    np.testing.assert_array_equal(timestep.observation, observation)
    step = jax.jit(env.step)
    for index in range(60):
        key_step = jax.random.fold_in(key, index)
        action = _random_action(jax.random.fold_in(key_step, 1), env.action_spec)
        # gymnax's `step` splits its key and steps with the first half.
        state, timestep = step(jax.random.split(key_step)[0], state, action)
        _, raw_state, reward, terminated, truncated, info = raw.step(key_step, raw_state, action, params)
        np.testing.assert_allclose(timestep.observation, info["final_observation"], rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(timestep.reward, jnp.squeeze(reward), rtol=1e-6)
        assert (bool(timestep.terminated), bool(timestep.truncated)) == (bool(terminated), bool(truncated))
        if timestep.ended:
            break
    assert index >= 3


@pytest.mark.parametrize("name", NAMES)
def test_layout_is_the_same_after_reset_and_step(name):
    env = gymnax(name).train
    start = jax.eval_shape(env.reset, jax.random.key(0))
    action = _random_action(jax.random.key(0), env.action_spec)
    after = jax.eval_shape(env.step, jax.random.key(1), start[0], action)
    assert jax.tree.structure(start) == jax.tree.structure(after)
    for before, then in zip(jax.tree.leaves(start), jax.tree.leaves(after), strict=True):
        assert (before.shape, before.dtype) == (then.shape, then.dtype)
        assert not before.weak_type
        assert not then.weak_type


def test_time_limit_truncates_and_nothing_resets():
    env = gymnax("Pendulum-v1", time_limit=3).train
    state, timestep = env.reset(jax.random.key(0))
    truncated = []
    for _ in range(4):
        state, timestep = env.step(jax.random.key(0), state, jnp.zeros(1))
        truncated.append(bool(timestep.truncated))
        assert not timestep.terminated
    assert truncated == [False, False, True, True]
    assert state.time == 4


def test_an_end_in_the_last_step_terminates():
    # If always pushed left, the pole falls after nine or ten steps. The time limit is set to that step.
    def length(**options):
        env = gymnax("CartPole-v1", **options).train
        state, timestep = env.reset(jax.random.key(0))
        count = 0
        while not timestep.ended:
            state, timestep = env.step(jax.random.key(0), state, 0)
            count += 1
        return count, bool(timestep.terminated), bool(timestep.truncated)

    steps, terminated, truncated = length()
    assert (terminated, truncated) == (True, False)
    assert length(time_limit=steps) == (steps, True, False)
    assert length(time_limit=steps - 1) == (steps - 1, False, True)


def test_specs():
    assert gymnax("CartPole-v1").train.action_spec == DiscreteActions(2)
    assert gymnax("Pendulum-v1").train.action_spec == ContinuousActions(1, -2.0, 2.0)
    assert gymnax("Breakout-MinAtar").train.observation_spec.shape == (10, 10, 4)
    assert time_limit("CartPole-v1") == 500
    assert set(NAMES) <= set(names())


def test_options_reach_gymnax():
    assert gymnax("DeepSea-bsuite", size=5).train.observation_spec.shape == (5, 5)

    def fall(gravity):
        env = gymnax("CartPole-v1", gravity=gravity).train
        state, _ = env.reset(jax.random.key(0))
        return env.step(jax.random.key(0), state, 0)[0].theta_dot

    assert fall(9.8) != fall(20.0)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"name": "CartPole"}, "no environment 'CartPole'.*CartPole-v1"),
        ({"name": "CartPole-v1", "mass": 3}, "no option 'mass': it takes .*masscart"),
        ({"name": "CartPole-v1", "time_limit": 0}, "at least one step"),
    ],
)
def test_bad_arguments(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        gymnax(**arguments)
