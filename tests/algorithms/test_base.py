"""Tests of the functions that all algorithms share: updates, optimisers, splits over devices."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spo.acting import init_worker, rollout, stack_alike, unstack_alike
from spo.algorithms.base import per_device, vmap_over
from spo.algorithms.minibatches import values_over_time
from spo.algorithms.updates import adam, run_updates
from spo.environments.tiny import tiny
from spo.keys import numbered_keys
from spo.types import DEVICE_AXIS


def divide(learner: dict, divisor: jax.Array) -> tuple[dict, dict]:
    """An update whose result is not finite for a divisor of 0."""
    learner = {"x": learner["x"] + 1.0 / divisor, "count": learner["count"] + 1}
    return learner, {"loss": learner["x"]}


START = {"x": jnp.float32(0.0), "count": jnp.int32(0)}


def test_updates_run_in_order_and_metrics_are_their_means():
    learner, metrics = run_updates(divide, START, jnp.array([1.0, 0.5, 0.25]), skip_nonfinite=False)
    assert (float(learner["x"]), int(learner["count"])) == (7.0, 3)
    assert set(metrics) == {"loss"}
    np.testing.assert_allclose(metrics["loss"], (1 + 3 + 7) / 3)


def test_a_nonfinite_update_is_not_hidden():
    learner, metrics = run_updates(divide, START, jnp.array([1.0, 0.0, 0.5]), skip_nonfinite=False)
    assert np.isinf(learner["x"])
    assert np.isinf(metrics["loss"])


def test_a_nonfinite_update_is_skipped_on_request():
    updates = jax.jit(functools.partial(run_updates, divide, skip_nonfinite=True))
    learner, metrics = updates(START, jnp.array([1.0, 0.0, 0.5, 0.0]))
    assert (float(learner["x"]), int(learner["count"])) == (3.0, 2)
    assert float(metrics["skipped_updates"]) == 2.0
    np.testing.assert_allclose(metrics["loss"], (1 + 3) / 2)


def test_metrics_are_nan_if_all_updates_are_skipped():
    learner, metrics = run_updates(divide, START, jnp.zeros(2), skip_nonfinite=True)
    assert float(learner["x"]) == 0.0
    assert np.isnan(metrics["loss"]), "training stops at a NaN"


def test_adam_clips_and_decays():
    """Adam's first change is its learning rate, for any gradient; later changes follow the schedule."""
    optimiser = adam(0.1, 0.5, decay_updates=2)
    params = jnp.zeros(2)
    state = optimiser.init(params)
    sizes = []
    for _ in range(3):
        change, state = optimiser.update(jnp.array([30.0, 40.0]), state, params)
        sizes.append(float(jnp.abs(change[0])))
    np.testing.assert_allclose(sizes, [0.1, 0.05, 0.0], atol=1e-6)


def test_adam_clips_to_a_norm():
    """A huge gradient has the same effect on Adam's state as a gradient of the clipped norm."""
    changes = []
    for first in ([3e4, 4e4], [0.3, 0.4]):  # both have the norm 0.5 after clipping
        optimiser = adam(0.1, 0.5)
        state = optimiser.init(jnp.zeros(2))
        _, state = optimiser.update(jnp.array(first), state)
        changes.append(optimiser.update(jnp.array([0.1, 0.1]), state)[0])
    np.testing.assert_allclose(changes[0], changes[1], rtol=1e-5)


def test_a_split_over_devices_is_even():
    assert per_device("num_envs", 32, 4) == 8
    with pytest.raises(ValueError, match=r"num_envs \(30\) must be divisible by the number of devices \(4\)"):
        per_device("num_envs", 30, 4)


def test_vmap_over_several_axes():
    x = np.arange(24.0).reshape(2, 3, 4)
    np.testing.assert_allclose(vmap_over(jnp.sum, 2)(x), x.sum(axis=2))


def test_vmap_over_keeps_arguments_that_are_not_mapped():
    x, y = {"a": np.arange(6.0).reshape(2, 3), "b": np.ones((2, 3, 4))}, np.arange(4.0)

    def function(tree: dict, vector: jax.Array) -> dict:
        return {"sum": tree["a"] + jnp.sum(vector * tree["b"]), "same": tree["b"]}

    results = vmap_over(function, 2, in_axes=(0, None))(x, y)
    np.testing.assert_allclose(results["sum"], x["a"] + 6.0)
    np.testing.assert_allclose(results["same"], x["b"])


@pytest.mark.parametrize(("shape", "at_once"), [((6, 1000), 3000), ((5, 1000), 1000), ((6, 5000), 5000), ((4, 3), 12)])
def test_values_over_time_are_computed_in_parts(shape: tuple[int, int], at_once: int):
    """The largest whole number of time steps with at most 4096 states, or one time step."""
    observations = {"x": np.random.default_rng(0).normal(size=(*shape, 2)).astype(np.float32)}

    def critic(observation: dict) -> jax.Array:
        return observation["x"] @ jnp.array([1.0, 2.0])

    values = functools.partial(values_over_time, critic)
    np.testing.assert_allclose(values(observations), observations["x"] @ np.array([1.0, 2.0]), rtol=1e-5, atol=1e-5)
    assert f"f32[{at_once}]" in str(jax.make_jaxpr(values)(observations))


def test_metrics_of_a_rollout_are_means_and_those_of_episodes_sums_over_devices():
    """In the chain of five states, action 0 ends an episode and action 1 moves on: here for 10 steps on two devices."""
    environment = tiny("chain").train

    def decide(_key, _env_state, timestep):
        metrics = {"by_env": jnp.array([0.0, 1.0, 5.0]), "number": jnp.int32(7), "matrix": timestep.action_mask}
        return jnp.array([0, 1, 1]), (), metrics

    def run(key):
        return rollout(environment, decide, init_worker(environment, 3, key), 10)[2]

    metrics = jax.vmap(run, axis_name=DEVICE_AXIS)(jax.random.split(jax.random.key(0), 2))
    expected = {"by_env": 2.0, "number": 7.0, "matrix": 1.0}
    expected |= {"episode/count": 2 * 14, "episode/length": 2 * 30, "episode/return": 2 * (10 * 0.1 + 4)}
    assert set(expected) <= set(metrics)
    for name, value in expected.items():
        np.testing.assert_allclose(metrics[name], [value] * 2, rtol=1e-6, err_msg=name)


def test_each_step_of_each_environment_has_its_own_key():
    """Environments of all devices draw rewards, none of which the key of a decision would give."""
    chain = tiny("chain").train

    def step(key, state, action):
        state, timestep = chain.step(key, state, action)
        return state, timestep._replace(reward=jax.random.uniform(key))

    def decide(key, _env_state, _timestep):
        keys = jax.vmap(jax.random.split)(numbered_keys(key, (3,)))[:, 0]  # `auto_reset` splits the key of a step
        return jnp.array([0, 1, 1]), jax.vmap(jax.random.uniform)(keys), {}

    def run(key):
        environment = chain._replace(step=step)
        return rollout(environment, decide, init_worker(environment, 3, key), 5)[1]

    experience = jax.vmap(run, axis_name=DEVICE_AXIS)(jax.random.split(jax.random.key(0), 2))
    drawn = np.concatenate([np.ravel(experience.reward), np.ravel(experience.extras)])
    assert len(np.unique(drawn)) == 2 * (2 * 5 * 3)


def test_a_decision_may_record_plain_numbers_and_keys():
    environment = tiny("chain").train

    def decide(key, _env_state, _timestep):
        extras = {"float": 0.5, "int": 3, "numpy": np.float64(0.25), "keys": jax.random.split(key, 3)}
        return jnp.array([0, 1, 1]), extras, {}

    def run(key):
        return rollout(environment, decide, init_worker(environment, 3, key), 4)[1].extras

    extras = jax.vmap(run, axis_name=DEVICE_AXIS)(jax.random.split(jax.random.key(0), 2))
    for name, value in {"float": 0.5, "int": 3, "numpy": 0.25}.items():
        np.testing.assert_array_equal(extras[name], np.full((2, 4), value))
    assert len(np.unique(jax.random.key_data(extras["keys"]).reshape(-1, 2), axis=0)) == 2 * 4 * 3


def test_leaves_of_one_shape_and_type_are_stored_as_one_array():
    """Three arrays for five leaves, one of which has the shape of two others and another type."""

    def make(step: jax.Array) -> dict:
        row = jnp.arange(3.0) + 10 * step
        return {
            "z": row,
            "pair": (row + 1, jnp.arange(3) + step),
            "a": {"matrix": row[:, None] * row[None, :]},
            "b": row + 2,
        }

    def scanned(step: jax.Array, _: None) -> tuple[jax.Array, dict]:
        return step + 1, stack_alike(make(step))

    _, stacks = jax.lax.scan(scanned, jnp.int32(0), length=4)
    assert len(stacks) == 3
    stored = unstack_alike(stacks, jax.eval_shape(make, jnp.int32(0)))
    jax.tree.map(np.testing.assert_array_equal, stored, jax.vmap(make)(jnp.arange(4)))
