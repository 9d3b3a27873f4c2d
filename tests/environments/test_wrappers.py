"""Wrappers on a counting environment, whose states, rewards and initial states are all known."""

import os
import subprocess
import sys
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spo.environments.own import with_masks
from spo.environments.tiny import tiny
from spo.environments.wrappers import auto_reset, episode_limit
from spo.types import Array, DiscreteActions, Environment, Starts, Task, TimeStep


class CountingState(NamedTuple):
    tag: Array
    count: Array


def counting(end: int, noted_resets: list | None = None) -> Environment:
    """Returns an environment that counts its steps, pays the count, and terminates at `end`.

    Each episode has a random number as its tag.
    """

    def observe(state: CountingState, reward: Array) -> tuple[CountingState, TimeStep]:
        return state, TimeStep(
            observation={"tag": state.tag, "count": state.count.astype(jnp.float32)},
            reward=reward,
            terminated=state.count >= end,
            truncated=jnp.zeros((), bool),
            action_mask=jnp.stack([state.count == 0, jnp.ones((), bool)]),
            metrics={"count": state.count},
        )

    def reset(key):
        if noted_resets is not None:
            # The callback has no mapped arguments: resets that are computed in one batch are noted once.
            jax.debug.callback(lambda: noted_resets.append(1))
        return observe(CountingState(jax.random.uniform(key), jnp.zeros((), jnp.int32)), jnp.zeros((), jnp.float32))

    def step(key, state, action):
        state = state._replace(count=state.count + 1)
        return observe(state, state.count.astype(jnp.float32))

    spec = {"tag": jax.ShapeDtypeStruct((), jnp.float32), "count": jax.ShapeDtypeStruct((), jnp.float32)}
    return Environment(reset, step, spec, DiscreteActions(2), "counting", lambda _: np.zeros((2, 2, 3), np.uint8))


def unroll(env, num_steps, seed=0):
    """Returns the time steps of `num_steps` steps of one environment, without restarts."""
    key, key_reset = jax.random.split(jax.random.key(seed))
    state, timestep = env.reset(key_reset)
    timesteps = [timestep]
    for key_step in jax.random.split(key, num_steps):
        state, timestep = env.step(key_step, state, jnp.int32(1))
        timesteps.append(timestep)
    return state, timesteps


# --- episode_limit ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 3])
def test_a_limit_truncates_at_its_step_and_not_before(limit):
    _, timesteps = unroll(episode_limit(counting(end=100), limit), limit)
    assert [bool(t.truncated) for t in timesteps] == [False] * limit + [True]
    assert not any(bool(t.terminated) for t in timesteps)


def test_a_termination_at_the_limit_is_not_a_truncation():
    _, timesteps = unroll(episode_limit(counting(end=3), 3), 3)
    assert bool(timesteps[-1].terminated)
    assert not bool(timesteps[-1].truncated)


def test_the_shorter_of_two_limits_truncates_and_the_discount_stays_1():
    _, timesteps = unroll(episode_limit(episode_limit(counting(end=100), 2), 5), 2)
    assert bool(timesteps[-1].truncated)
    assert float(timesteps[-1].discount) == 1.0


def test_a_limit_stays_reached_when_a_model_steps_past_it():
    state, timesteps = unroll(episode_limit(counting(end=100), 2), 4)
    assert [bool(t.truncated) for t in timesteps[2:]] == [True] * 3
    assert int(state.inner.count) == 4


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_below_one_is_refused(limit):
    with pytest.raises(ValueError, match="limit of 1 or more"):
        episode_limit(counting(end=3), limit)


def test_a_wrapper_renders_the_wrapped_environment():
    env = episode_limit(tiny("chain").train, 3)
    state, _ = env.reset(jax.random.key(0))
    np.testing.assert_array_equal(env.render(state), tiny("chain").train.render(state.inner))


def test_a_limit_keeps_the_starts_that_can_be_chosen():
    plain = counting(end=9)

    def start(key, number):
        state, timestep = plain.reset(key)
        return state._replace(count=number), timestep

    env = episode_limit(plain._replace(starts=Starts("Count", 0, 5, start)), 2)
    state, timestep = env.starts.reset(jax.random.key(0), jnp.int32(4))
    assert (env.starts.label, env.starts.high, int(state.inner.count)) == ("Count", 5, 4)
    for truncated in (False, True):
        state, timestep = env.step(jax.random.key(1), state, jnp.int32(1))
        assert bool(timestep.truncated) == truncated


def test_a_chosen_start_gets_the_mask_that_the_environment_leaves_out():
    plain = counting(end=9)

    def start(key, number):
        state, timestep = plain.reset(key)
        return state._replace(count=number), timestep._replace(action_mask=None)

    env = plain._replace(starts=Starts("Count", 0, 5, start))
    env = with_masks(Task(env, env, env)).evaluation
    _, timestep = env.starts.reset(jax.random.key(0), jnp.int32(4))
    np.testing.assert_array_equal(timestep.action_mask, [True, True])


def test_a_wrapped_task_keeps_the_states_of_its_roles_interchangeable():
    task = Task(*(episode_limit(env, 3) for env in tiny("cliff")))
    state, _ = task.evaluation.reset(jax.random.key(0))
    next_state, _ = task.model.step(jax.random.key(1), state, jnp.int32(0))
    assert jax.tree.structure(state) == jax.tree.structure(next_state)


# --- auto_reset -------------------------------------------------------------------------------------------------------


def gather(env, batch_shape, num_steps, seed=0):
    """Returns `num_steps` steps of experience of a batch of environments; leaves are [T, *batch_shape, ...]."""
    step, reset = auto_reset(env), env.reset
    for _ in batch_shape:
        step, reset = jax.vmap(step), jax.vmap(reset)
    key_reset, key_steps = jax.random.split(jax.random.key(seed))
    state, _ = reset(jax.random.split(key_reset, batch_shape) if batch_shape else key_reset)

    def body(state, key):
        keys = jax.random.split(key, batch_shape) if batch_shape else key
        next_state, out = step(keys, state, jnp.ones(batch_shape, jnp.int32))
        return next_state, (state, next_state, out)

    return jax.jit(lambda state: jax.lax.scan(body, state, jax.random.split(key_steps, num_steps))[1])(state)


@pytest.mark.parametrize("batch_shape", [(), (3,), (2, 3)])
def test_an_end_gives_the_last_observation_and_a_fresh_start(batch_shape):
    state, next_state, out = gather(episode_limit(counting(end=100), 3), batch_shape, 12)
    ended = np.asarray(out.timestep.ended)
    expected = np.broadcast_to((np.arange(12) % 3 == 2).reshape(12, *[1] * len(batch_shape)), (12, *batch_shape))
    np.testing.assert_array_equal(ended, expected)
    # For learning: the last observation, with the tag of its episode, its reward and its end.
    np.testing.assert_array_equal(out.timestep.observation["count"][ended], 3.0)
    np.testing.assert_array_equal(out.timestep.reward[ended], 3.0)
    np.testing.assert_array_equal(out.timestep.observation["tag"], state.inner.tag)
    assert np.asarray(out.timestep.truncated)[ended].all()
    # For the next decision: the start of the next episode, its mask, no reward and no end.
    np.testing.assert_array_equal(out.next.observation["count"][ended], 0.0)
    np.testing.assert_array_equal(out.next.action_mask[ended][:, 0], True)
    assert not np.asarray(out.next.ended).any()
    np.testing.assert_array_equal(next_state.steps[ended], 0)
    # It always describes the state returned.
    np.testing.assert_array_equal(out.next.observation["tag"], next_state.inner.tag)
    np.testing.assert_array_equal(out.next.observation["count"], next_state.inner.count)
    # Elsewhere the two are the same.
    for ours, theirs in zip(jax.tree.leaves(out.next), jax.tree.leaves(out.timestep), strict=True):
        np.testing.assert_array_equal(ours[~ended], theirs[~ended])


def test_every_start_is_a_new_one():
    state, _, out = gather(counting(end=2), (4,), 20)
    tags = np.asarray(out.next.observation["tag"])[np.asarray(out.timestep.ended)]
    assert len(tags) == 40
    starts = np.concatenate([np.asarray(state.tag)[0], tags])
    # 44 samples of a 23-bit number: two are equal with a probability of 1e-4, and the seed is fixed.
    assert len(np.unique(starts)) == 44


def test_only_those_that_ended_restart():
    """One environment ends while the others continue."""
    env = counting(end=5)
    counts = jnp.array([0, 4, 2])
    state = CountingState(jnp.array([0.1, 0.2, 0.3]), counts)
    keys = jax.random.split(jax.random.key(0), 3)
    state, out = jax.vmap(auto_reset(env))(keys, state, jnp.ones(3, jnp.int32))
    np.testing.assert_array_equal(state.count, [1, 0, 3])
    np.testing.assert_array_equal(out.timestep.terminated, [False, True, False])
    np.testing.assert_array_equal(state.tag[jnp.array([0, 2])], jnp.array([0.1, 0.3]))
    assert float(state.tag[1]) != pytest.approx(0.2)


def test_batched_equals_one_by_one_to_the_bit():
    env = counting(end=5)
    step = auto_reset(env)
    state = CountingState(jnp.arange(6.0), jnp.arange(6) % 5)
    keys = jax.random.split(jax.random.key(3), 6)
    actions = jnp.ones(6, jnp.int32)
    batched = jax.vmap(step)(keys, state, actions)
    for i in range(6):
        alone = step(*jax.tree.map(lambda x, i=i: x[i], (keys, state, actions)))
        jax.tree.map(lambda ours, theirs, i=i: np.testing.assert_array_equal(ours[i], theirs), batched, alone)


def test_a_state_may_be_shared_by_the_batch():
    env = counting(end=1)
    state, _ = env.reset(jax.random.key(0))
    keys = jax.random.split(jax.random.key(1), 4)
    fresh, _ = jax.vmap(auto_reset(env), in_axes=(0, None, None))(keys, state, jnp.int32(1))
    assert len(np.unique(np.asarray(fresh.tag))) == 4


@pytest.mark.parametrize("batch_shape", [(), (4,), (2, 4)])
def test_resets_are_computed_only_in_steps_with_an_end(batch_shape):
    noted: list = []
    gather(counting(end=3, noted_resets=noted), batch_shape, 9, seed=0)
    jax.effects_barrier()
    # The first reset and three ends; computing resets in every step would be 1 + 9.
    assert len(noted) == 4


def test_auto_reset_works_across_devices():
    """`shard_map` over two devices gives the result of one. It needs a new process: devices are counted at start-up."""
    program = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, PartitionSpec
from spo.environments.tiny import tiny
from spo.environments.wrappers import auto_reset
env = tiny("slippery").train
states, _ = jax.vmap(env.reset)(jax.random.split(jax.random.key(0), 4))
step = jax.vmap(auto_reset(env))
def unroll(keys, states):
    return jax.lax.scan(lambda s, k: step(k, s, jnp.ones(s.steps.shape, jnp.int32)), states, keys)
keys = jax.random.split(jax.random.key(1), (30, 4))
mesh, split = Mesh(np.array(jax.devices()), ("device",)), PartitionSpec("device")
specs = dict(in_specs=(PartitionSpec(None, "device"), split), out_specs=(split, PartitionSpec(None, "device")))
sharded = jax.jit(jax.shard_map(unroll, mesh=mesh, **specs))(keys, states)
plain = jax.jit(unroll)(keys, states)
assert len(jax.devices()) == 2 and np.asarray(plain[1].timestep.ended).sum() > 4
jax.tree.map(np.testing.assert_array_equal, sharded, plain)
"""
    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_cheap_reset_is_computed_without_a_condition():
    """The same steps as with a condition, which a GPU would have to wait for."""
    env = counting(2)
    cheap, keys = env._replace(cheap_reset=True), jax.random.split(jax.random.key(0), 3)
    state, _ = jax.vmap(env.reset)(keys)
    actions = jnp.ones(3, jnp.int32)
    results, conditions = [], []
    for one in (env, cheap):
        step = jax.vmap(auto_reset(one))
        first, _ = step(keys, state, actions)
        results.append(step(keys, first, actions))
        conditions.append("cond[" in str(jax.make_jaxpr(step)(keys, state, actions)))
    jax.tree.map(np.testing.assert_array_equal, *results)
    assert conditions == [True, False]
