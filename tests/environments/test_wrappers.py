"""Wrappers against a counting world whose every state, reward and start is known, and against NumPy."""

import os
import subprocess
import sys
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spo.environments.tiny import tiny
from spo.environments.wrappers import (
    auto_reset,
    episode_limit,
    episode_statistics,
    init_statistics,
    merge_statistics,
    normalise,
    normalise_observations,
    update_statistics,
)
from spo.types import Array, DiscreteActions, Environment, Task, TimeStep


class CountingState(NamedTuple):
    tag: Array
    count: Array


def counting(end: int, noted_resets: list | None = None) -> Environment:
    """Counts its steps, pays the count, terminates at `end`, and tags each episode with a random number."""

    def say(state: CountingState, reward: Array) -> tuple[CountingState, TimeStep]:
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
            # It takes nothing that is mapped over, so a batch of resets computed together is noted once.
            jax.debug.callback(lambda: noted_resets.append(1))
        return say(CountingState(jax.random.uniform(key), jnp.zeros((), jnp.int32)), jnp.zeros((), jnp.float32))

    def step(key, state, action):
        state = state._replace(count=state.count + 1)
        return say(state, state.count.astype(jnp.float32))

    spec = {"tag": jax.ShapeDtypeStruct((), jnp.float32), "count": jax.ShapeDtypeStruct((), jnp.float32)}
    return Environment("counting", reset, step, spec, DiscreteActions(2), lambda _: np.zeros((2, 2, 3), np.uint8))


def unroll(env, num_steps, seed=0):
    """All timesteps of `num_steps` steps of one world, without any reset."""
    key, key_reset = jax.random.split(jax.random.key(seed))
    state, timestep = env.reset(key_reset)
    timesteps = [timestep]
    for key_step in jax.random.split(key, num_steps):
        state, timestep = env.step(key_step, state, jnp.int32(1))
        timesteps.append(timestep)
    return state, timesteps


# --- episode_limit ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 3])
def test_a_limit_truncates_at_its_step_and_not_before(limit):
    _, timesteps = unroll(episode_limit(counting(end=100), limit), limit)
    assert [bool(t.truncated) for t in timesteps] == [False] * limit + [True]
    assert not any(bool(t.terminated) for t in timesteps)


def test_a_termination_at_the_limit_is_not_a_truncation():
    _, timesteps = unroll(episode_limit(counting(end=3), 3), 3)
    assert bool(timesteps[-1].terminated)
    assert not bool(timesteps[-1].truncated)


def test_the_shorter_of_two_limits_truncates_and_the_discount_stays():
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


# --- episode_statistics ----------------------------------------------------------------------------------------------


def test_return_and_length_are_summed_and_other_metrics_kept():
    env = episode_statistics(counting(end=4))
    _, timesteps = unroll(env, 4)
    assert [float(t.metrics["episode_return"]) for t in timesteps] == [0.0, 1.0, 3.0, 6.0, 10.0]
    assert [int(t.metrics["episode_length"]) for t in timesteps] == [0, 1, 2, 3, 4]
    assert int(timesteps[-1].metrics["count"]) == 4


def test_statistics_start_again_with_an_episode():
    env = episode_statistics(counting(end=2))
    step = auto_reset(env)
    state, _ = env.reset(jax.random.key(0))
    returns = []
    for key in jax.random.split(jax.random.key(1), 4):
        state, out = step(key, state, jnp.int32(1))
        returns.append((bool(out.timestep.ended), float(out.timestep.metrics["episode_return"])))
    assert returns == [(False, 1.0), (True, 3.0), (False, 1.0), (True, 3.0)]


def test_wrappers_render_the_world_they_wrap():
    env = episode_statistics(episode_limit(tiny("chain").train, 3))
    state, _ = env.reset(jax.random.key(0))
    np.testing.assert_array_equal(env.render(state), tiny("chain").train.render(state.inner.inner))


def test_a_wrapped_task_keeps_the_states_of_its_roles_interchangeable():
    task = Task(*map(episode_statistics, tiny("cliff")))
    state, _ = task.evaluation.reset(jax.random.key(0))
    next_state, _ = task.model.step(jax.random.key(1), state, jnp.int32(0))
    assert jax.tree.structure(state) == jax.tree.structure(next_state)


# --- auto_reset ------------------------------------------------------------------------------------------------------


def gather(env, batch_shape, num_steps, seed=0):
    """`num_steps` steps of experience of a batch of worlds by scan; leaves are [T, *batch_shape, ...]."""
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
    # The world's own words: the final observation, with the tag of the episode it belongs to, its reward, its end.
    np.testing.assert_array_equal(out.timestep.observation["count"][ended], 3.0)
    np.testing.assert_array_equal(out.timestep.reward[ended], 3.0)
    np.testing.assert_array_equal(out.timestep.observation["tag"], state.inner.tag)
    assert np.asarray(out.timestep.truncated)[ended].all()
    # What to act on: the start of the next episode, its mask, no reward and no end.
    np.testing.assert_array_equal(out.next.observation["count"][ended], 0.0)
    np.testing.assert_array_equal(out.next.action_mask[ended][:, 0], True)
    assert not np.asarray(out.next.ended).any()
    np.testing.assert_array_equal(next_state.steps[ended], 0)
    # It speaks of the state returned, everywhere.
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
    # 44 draws of a 23-bit number: a chance repetition has a probability of 1e-4, and the seed is fixed.
    assert len(np.unique(starts)) == 44


def test_only_those_that_ended_restart():
    """Worlds out of step with each other: one ends while the others go on."""
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


def test_a_state_shared_by_the_batch_is_welcome():
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


def test_it_works_across_devices():
    """`shard_map` over two devices gives what one gives; a process of its own, for devices are counted at start-up."""
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


# --- Normalisation ---------------------------------------------------------------------------------------------------

SPEC = {"small": jax.ShapeDtypeStruct((2, 3), jnp.float32), "one": jax.ShapeDtypeStruct((), jnp.float32)}


def observations(rng, *leading):
    """Entries with means from -1000 to 1000 beside a deviation of about 1: easy to get wrong in 32 bit."""
    offsets = np.array([[-1000.0, -1.0, 0.0], [1.0, 30.0, 1000.0]])
    return {
        "small": (offsets + rng.normal(size=(*leading, 2, 3))).astype(np.float32),
        "one": rng.exponential(size=leading).astype(np.float32),
    }


def assert_statistics_match(statistics, batches):
    for name in SPEC:
        shape = SPEC[name].shape
        everything = np.concatenate([batch[name].reshape(-1, *shape) for batch in batches]).astype(np.float64)
        deviations = ((everything - everything.mean(axis=0)) ** 2).sum(axis=0)
        np.testing.assert_allclose(statistics.mean[name], everything.mean(axis=0), rtol=1e-6, atol=1e-5)
        np.testing.assert_allclose(statistics.sum_of_squared_deviations[name], deviations, rtol=2e-4, atol=1e-6)
        assert float(statistics.num_observations) == len(everything)


@settings(max_examples=15, deadline=None)
@given(
    leading=st.lists(st.sampled_from([(), (1,), (5,), (3, 7), (2, 1, 4)]), min_size=1, max_size=6),
    seed=st.integers(0, 1000),
)
def test_running_statistics_equal_those_of_all_data_at_once(leading, seed):
    rng = np.random.default_rng(seed)
    batches = [observations(rng, *shape) for shape in leading]
    statistics = init_statistics(SPEC)
    for batch in batches:
        statistics = update_statistics(statistics, batch)
    assert_statistics_match(statistics, batches)


def test_many_batches_stay_accurate():
    rng = np.random.default_rng(0)
    stacked = observations(rng, 2000, 8)
    statistics, _ = jax.lax.scan(lambda s, batch: (update_statistics(s, batch), None), init_statistics(SPEC), stacked)
    assert_statistics_match(statistics, [stacked])


def test_merging_is_the_same_as_seeing_everything():
    rng = np.random.default_rng(1)
    first, second = observations(rng, 17), observations(rng, 4, 5)
    empty = init_statistics(SPEC)
    merged = merge_statistics(update_statistics(empty, first), update_statistics(empty, second))
    assert_statistics_match(merged, [first, second])


def test_normalised_data_have_mean_zero_and_deviation_one():
    batch = observations(np.random.default_rng(2), 50, 20)
    statistics = update_statistics(init_statistics(SPEC), batch)
    for entry in jax.tree.leaves(normalise(statistics, batch)):
        np.testing.assert_allclose(np.mean(entry, axis=(0, 1)), 0.0, atol=1e-3)
        np.testing.assert_allclose(np.std(entry, axis=(0, 1)), 1.0, atol=1e-3)


def test_normalising_is_clipped():
    statistics = update_statistics(init_statistics(SPEC), observations(np.random.default_rng(3), 100))
    far = jax.tree.map(lambda leaf: jnp.full(leaf.shape, -1e6), SPEC)
    for entry in jax.tree.leaves(normalise(statistics, far, clip=2.5)):
        np.testing.assert_array_equal(entry, -2.5)


def test_before_any_data_observations_pass_unchanged():
    observation = {"small": jnp.arange(6.0).reshape(2, 3), "one": jnp.float32(-3.0)}
    jax.tree.map(np.testing.assert_array_equal, normalise(init_statistics(SPEC), observation), observation)


@pytest.mark.parametrize("constant", [0.1, 1000.1, -1e5])
def test_an_entry_that_never_changes_is_zero_not_noise(constant):
    spec = jax.ShapeDtypeStruct((1,), jnp.float32)
    batch = jnp.full((77, 1), constant, jnp.float32)
    statistics = init_statistics(spec)
    for _ in range(20):
        statistics = update_statistics(statistics, batch)
    assert np.max(np.abs(normalise(statistics, batch))) < 0.5


def test_the_wrapper_shows_normalised_observations_of_the_same_states():
    env = counting(end=10)
    statistics = update_statistics(
        init_statistics(env.observation_spec), {"tag": jnp.arange(5.0), "count": jnp.arange(5.0)}
    )
    wrapped = normalise_observations(env, statistics)
    _, plain = unroll(env, 3)
    _, shown = unroll(wrapped, 3)
    for ours, theirs in zip(shown, plain, strict=True):
        expected = (float(theirs.observation["count"]) - 2.0) / np.sqrt(2.0)
        assert float(ours.observation["count"]) == pytest.approx(expected, abs=1e-6)
        assert float(ours.reward) == float(theirs.reward)


def test_integer_observations_are_refused_by_name():
    with pytest.raises(ValueError, match=r"observation\['grid'\] is int8"):
        init_statistics({"grid": jax.ShapeDtypeStruct((3,), jnp.int8)})


def test_uneven_leading_axes_are_refused():
    batch = {"small": jnp.zeros((4, 2, 3)), "one": jnp.zeros(())}
    with pytest.raises(ValueError, match="same number of leading axes"):
        update_statistics(init_statistics(SPEC), batch)
