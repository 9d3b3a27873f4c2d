"""The adapter against MuJoCo Playground itself."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

package = pytest.importorskip("mujoco_playground")

from mujoco_playground._src.dm_control_suite import cartpole  # noqa: E402

from spo.environments import make  # noqa: E402
from spo.environments._adapters import jit_foreign  # noqa: E402
from spo.environments.playground import names, time_limit  # noqa: E402
from spo.types import ContinuousActions  # noqa: E402


@pytest.mark.parametrize(
    "name",
    ["CartpoleSwingup", *(pytest.param(name, marks=pytest.mark.slow) for name in ("FingerTurnEasy", "HopperHop"))],
)
def test_plays_like_playground(name):
    """The reduced state loses nothing: Playground steps its whole state, and both stay the same."""
    env = make(f"playground/{name}").train
    raw = package.dm_control_suite.load(name, config_overrides={"impl": "jax"})
    step, raw_step = jax.jit(env.step), jit_foreign(raw.step)
    key = jax.random.key(1)
    (state, timestep), theirs = jax.jit(env.reset)(key), jit_foreign(raw.reset)(key)
    for index in range(30):
        action = jax.random.uniform(jax.random.fold_in(key, index), (raw.action_size,), minval=-1.0)
        state, timestep = step(jax.random.key(index), state, action)
        theirs = raw_step(theirs, action)
        np.testing.assert_allclose(timestep.observation, theirs.obs, rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(timestep.reward, theirs.reward, rtol=1e-3, atol=1e-3)
    assert set(timestep.metrics) == set(theirs.metrics)


class NoisyCartpole(cartpole.Balance):
    """Adds noise to the observation with the key in `info`, and writes into `info`, as some tasks of Playground do."""

    def __init__(self, **arguments):
        super().__init__(swing_up=False, sparse=False, **arguments)

    def reset(self, rng):
        state = super().reset(rng)
        state.info["last_action"] = jnp.zeros(1)
        return state

    def step(self, state, action):
        key, state.info["rng"] = jax.random.split(state.info["rng"])
        state.info["last_action"] = action
        state = super().step(state, action)
        return state.replace(obs=state.obs + jax.random.normal(key, state.obs.shape))


@pytest.fixture
def noisy(monkeypatch):
    suite = package.dm_control_suite
    monkeypatch.setitem(suite._envs, "Noisy", NoisyCartpole)
    monkeypatch.setitem(suite._cfgs, "Noisy", cartpole.default_config)
    return make("playground/Noisy").train


def test_noise_comes_from_the_key_of_the_step(noisy):
    """A search draws other noise than the real environment, although it starts from the same state."""
    step = jax.jit(noisy.step)
    state, _ = jax.jit(noisy.reset)(jax.random.key(0))
    assert "rng" not in state.inner.info
    seen = [step(jax.random.key(seed), state, jnp.ones(1))[1].observation for seed in (0, 0, 1)]
    np.testing.assert_array_equal(seen[0], seen[1])
    assert np.abs(seen[0] - seen[2]).min() > 1e-3


def test_a_step_does_not_write_into_the_state_that_it_is_given(noisy):
    state, _ = jax.eval_shape(noisy.reset, jax.random.key(0))
    before = dict(state.inner.info)
    after, _ = jax.eval_shape(noisy.step, jax.random.key(0), state, jnp.ones(1))
    assert state.inner.info == before
    assert after.inner.info is not state.inner.info


def test_specs_and_size():
    env = make("playground/CheetahRun").train
    assert env.observation_spec.shape == (17,)
    assert env.action_spec == ContinuousActions(6)
    assert time_limit("CheetahRun") == 1000
    assert {"CartpoleBalance", "WalkerWalk", "HumanoidRun"} <= set(names())
    state, _ = jax.eval_shape(env.reset, jax.random.key(0))
    assert sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state)) < 200  # of 8208


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("CartpoleBalanc", {}, "no environment 'CartpoleBalanc'. Did you mean 'playground/CartpoleBalance'"),
        ("ReacherEasy", {}, "uses a function that MuJoCo has removed"),
        ("Go1JoystickFlatTerrain", {}, "is a robot, whose model Playground downloads"),
        ("CheetahRun", {"impl": "warp"}, "no option 'impl': it takes .*time_limit"),
        ("CheetahRun", {"time_limit": 0}, "at least one step"),
    ],
)
def test_bad_arguments(name, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        make(f"playground/{name}", **options)


@pytest.mark.slow
@pytest.mark.parametrize("name", names())
def test_every_task_can_be_traced(name):
    env = make(f"playground/{name}").train
    state, timestep = jax.eval_shape(env.reset, jax.random.key(0))
    action = jnp.zeros(env.action_spec.size)
    assert jax.tree.structure(jax.eval_shape(env.step, jax.random.key(0), state, action)) == jax.tree.structure(
        (state, timestep)
    )
