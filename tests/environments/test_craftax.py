"""The adapter against Craftax itself. Its programs take half a minute to compile, so most tests only trace."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("craftax")

from craftax.craftax_env import make_craftax_env_from_name

from spo.environments import make
from spo.environments.registry import describe
from spo.types import DiscreteActions


@pytest.mark.parametrize(
    ("name", "length", "num_actions", "num_bytes", "limit"),
    [("classic", 1345, 17, 20_944, 10_000), ("full", 8268, 43, 273_268, 100_000)],
)
def test_specs(name, length, num_actions, num_bytes, limit):
    env, time_limit, score, physics = describe(f"craftax/{name}")
    assert env.observation_spec.shape == (length,)
    assert env.action_spec == DiscreteActions(num_actions)
    assert env.hidden == "the map beyond the view"
    assert (time_limit, score[:12], physics) == (limit, "return, in %", "-")
    state, _ = jax.eval_shape(env.reset, jax.random.key(0))
    assert state.state_rng is None
    assert sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state)) == num_bytes


@pytest.mark.slow
def test_plays_like_craftax_and_the_clock_truncates():
    env = make("craftax/classic", time_limit=3).train
    raw = make_craftax_env_from_name("Craftax-Classic-Symbolic-v1", auto_reset=False)
    params = raw.default_params.replace(max_timesteps=3)
    step, raw_step = jax.jit(env.step), jax.jit(lambda key, state, action: raw.step_env(key, state, action, params))
    key = jax.random.key(0)
    state, timestep = env.reset(key)
    observation, theirs = raw.reset_env(key, params)
    np.testing.assert_array_equal(timestep.observation, observation)
    for index, action in enumerate((5, 1, 2)):
        key_step = jax.random.fold_in(key, index)
        state, timestep = step(key_step, state, action)
        observation, theirs, reward, done, info = raw_step(key_step, theirs, action)
        np.testing.assert_array_equal(timestep.observation, observation)
        assert timestep.reward == reward
        assert bool(timestep.ended) == bool(done) == (index == 2)
    assert info["discount"] == 0  # as after death
    assert (bool(timestep.truncated), bool(timestep.terminated)) == (True, False)

    _, timestep = step(key, state.replace(timestep=jnp.int32(0), player_health=jnp.int32(0)), 0)
    assert (bool(timestep.truncated), bool(timestep.terminated)) == (False, True)
    _, timestep = step(key, state.replace(player_health=jnp.int32(0)), 0)  # both at once
    assert (bool(timestep.truncated), bool(timestep.terminated)) == (False, True)


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("clasic", {}, "Craftax has no environment 'clasic'. Did you mean 'craftax/classic'"),
        ("classic", {"max_timesteps": 5}, "no option 'max_timesteps': it takes .*time_limit"),
        ("classic", {"time_limit": 0}, "at least one step"),
    ],
)
def test_bad_arguments(name, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        make(f"craftax/{name}", **options)
