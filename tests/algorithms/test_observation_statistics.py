"""Running statistics of observations against NumPy on all data at once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spo.algorithms.base import DEVICE_AXIS
from spo.algorithms.observation_statistics import include_rollout, init_statistics, merge_statistics, normalise

SPEC = {"small": jax.ShapeDtypeStruct((2, 3), jnp.float32), "one": jax.ShapeDtypeStruct((), jnp.float32)}


def observations(rng, *leading):
    """Returns entries with means from -1000 to 1000 and a deviation of about 1, for which 32 bits are barely enough."""
    offsets = np.array([[-1000.0, -1.0, 0.0], [1.0, 30.0, 1000.0]])
    return {
        "small": (offsets + rng.normal(size=(*leading, 2, 3))).astype(np.float32),
        "one": rng.exponential(size=leading).astype(np.float32),
    }


def update_statistics(statistics, batch):
    """`include_rollout` on one device."""
    return on_devices(statistics, jax.tree.map(lambda x: jnp.asarray(x)[None], batch))


def on_devices(statistics, batches):
    """`include_rollout` with one batch per device [devices, ...]. All devices must return the same statistics."""
    updated = jax.vmap(include_rollout, in_axes=(None, 0), axis_name=DEVICE_AXIS)(statistics, batches)
    jax.tree.map(lambda x: np.testing.assert_array_equal(x, np.broadcast_to(x[:1], x.shape)), jax.device_get(updated))
    return jax.tree.map(lambda x: x[0], updated)


def assert_statistics_match(statistics, batches):
    for name in SPEC:
        shape = SPEC[name].shape
        everything = np.concatenate([batch[name].reshape(-1, *shape) for batch in batches]).astype(np.float64)
        deviations = ((everything - everything.mean(axis=0)) ** 2).sum(axis=0)
        np.testing.assert_allclose(statistics.mean[name], everything.mean(axis=0), rtol=1e-6, atol=1e-5)
        np.testing.assert_allclose(statistics.sum_of_squared_deviations[name], deviations, rtol=2e-4, atol=1e-6)
        assert float(statistics.num_observations) == len(everything)


@settings(max_examples=15)
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

    def scan(stacked):
        return jax.lax.scan(lambda s, batch: (include_rollout(s, batch), None), init_statistics(SPEC), stacked)[0]

    one_device = jax.vmap(scan, axis_name=DEVICE_AXIS)(jax.tree.map(lambda x: x[None], stacked))
    statistics = jax.tree.map(lambda x: x[0], one_device)
    assert_statistics_match(statistics, [stacked])


def test_devices_share_their_statistics():
    """Devices whose means differ by far: the distance between the means counts."""
    rng = np.random.default_rng(4)
    before, batches = observations(rng, 6), observations(rng, 3, 5)
    batches["small"] += np.array([0.0, 40.0, -7.0], np.float32).reshape(3, 1, 1, 1)
    statistics = on_devices(update_statistics(init_statistics(SPEC), before), batches)
    assert_statistics_match(statistics, [before, batches])


def test_merged_statistics_are_those_of_all_data():
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
def test_a_constant_entry_is_normalised_to_zero_not_noise(constant):
    spec = jax.ShapeDtypeStruct((1,), jnp.float32)
    batch = jnp.full((77, 1), constant, jnp.float32)
    statistics = init_statistics(spec)
    for _ in range(20):
        statistics = update_statistics(statistics, batch)
    assert np.max(np.abs(normalise(statistics, batch))) < 0.5


def test_integer_observations_are_refused_by_name():
    with pytest.raises(ValueError, match=r"observation\['grid'\] is int8"):
        init_statistics({"grid": jax.ShapeDtypeStruct((3,), jnp.int8)})


def test_uneven_leading_axes_are_refused():
    batch = {"small": jnp.zeros((4, 2, 3)), "one": jnp.zeros(())}
    with pytest.raises(ValueError, match="same number of leading axes"):
        update_statistics(init_statistics(SPEC), batch)


def test_cautious_statistics_leave_numbers_of_size_one_nearly_as_they_are():
    """A cosine near 1 and a sine near 0 at the start of an episode: their small deviations are not enlarged."""
    angles = jnp.linspace(-0.1, 0.1, 101)
    first = jnp.stack([jnp.cos(angles), jnp.sin(angles)], axis=1)
    statistics = update_statistics(init_statistics(jax.ShapeDtypeStruct((2,), jnp.float32)), first)
    later = jnp.array([-1.0, 0.5])  # of a state to be found
    size = np.sqrt(np.mean(np.square(first)))
    cautious = normalise(statistics, later, cautious=True)
    shift = np.array([np.mean(first[:, 0]) - size, 0.0])
    np.testing.assert_allclose(cautious, (later - shift) / size, rtol=1e-4)
    assert np.all(np.abs(normalise(statistics, later)) > 5)


@pytest.mark.parametrize("factor", [1e-4, 1e4])
def test_cautious_statistics_bring_other_numbers_to_size_one(factor: float):
    numbers = factor * (3.0 + jax.random.normal(jax.random.key(0), (1000, 2)))
    statistics = update_statistics(init_statistics(jax.ShapeDtypeStruct((2,), jnp.float32)), numbers)
    seen = normalise(statistics, numbers, cautious=True)
    assert 0.2 < float(jnp.std(seen)) < 1.1
    assert float(jnp.max(jnp.abs(seen))) < 5
