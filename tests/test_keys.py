"""Keys for batches: all different, as random as those of `jax.random.split`, for every generator and kind of key."""

import jax
import numpy as np
import pytest

from spo.keys import join_keys, numbered_keys, split_in_one_kernel

TYPED, RAW, OTHER = jax.random.key(3), jax.random.PRNGKey(3), jax.random.key(3, impl="rbg")


@pytest.mark.parametrize("key", [TYPED, RAW, OTHER], ids=["typed", "raw", "other generator"])
def test_keys_are_different_and_of_the_same_kind(key: jax.Array):
    keys = numbered_keys(key, (4, 500))
    assert keys.dtype == key.dtype
    assert keys.shape == (4, 500, *key.shape)
    drawn = jax.vmap(jax.vmap(jax.random.bits))(keys)
    assert len(np.unique(drawn)) == drawn.size  # of 2000 numbers of 32 bits, two are equal in one of 2000 trials


def test_raw_keys_and_typed_keys_are_the_same():
    np.testing.assert_array_equal(jax.random.key_data(numbered_keys(TYPED, (6,))), numbered_keys(RAW, (6,)))


def test_keys_of_other_generators_are_split():
    """Consecutive states of a generator that counts would give overlapping streams."""
    expected = jax.random.key_data(jax.random.split(OTHER, (2, 3)))
    np.testing.assert_array_equal(jax.random.key_data(numbered_keys(OTHER, (2, 3))), expected)


def test_draws_of_neighbours_are_independent_normals():
    """Mean, variance and the correlation with the next key's draw, each within 5 standard errors."""
    size = 200_000
    drawn = np.asarray(jax.vmap(jax.random.normal)(numbered_keys(TYPED, (size,))), np.float64)
    bound = 5 / np.sqrt(size)
    assert abs(drawn.mean()) < bound
    assert abs(drawn.var() - 1) < bound * np.sqrt(2)
    assert abs(np.mean(drawn[:-1] * drawn[1:])) < bound
    assert abs(np.mean((drawn[:-1] ** 2 - 1) * (drawn[1:] ** 2 - 1))) < 2 * bound


def test_split_keys_of_neighbouring_seeds_and_numbers_share_none():
    """Neighbours themselves share all but one: they must be split first."""
    seeds = [jax.random.key(seed) for seed in range(4)]
    neighbours = [jax.random.key_data(numbered_keys(seed, (500,))) for seed in seeds]
    assert len(np.unique(np.concatenate(neighbours), axis=0)) == 500 + 3
    for keys in (seeds, numbered_keys(TYPED, (4,))):
        split = [numbered_keys(jax.random.split(key)[0], (500,)) for key in keys]
        assert len(np.unique(np.concatenate([jax.random.key_data(one) for one in split]), axis=0)) == 4 * 500


def test_a_number_may_carry_into_no_other_key():
    """The last word wraps round, and the first one stays."""
    key = jax.random.wrap_key_data(np.array([7, 2**32 - 2], np.uint32), impl="threefry2x32")
    expected = [[7, 2**32 - 2], [7, 2**32 - 1], [7, 0], [7, 1]]
    np.testing.assert_array_equal(jax.random.key_data(numbered_keys(key, (4,))), expected)


@pytest.mark.parametrize("key", [TYPED, RAW, OTHER], ids=["typed", "raw", "other generator"])
def test_a_split_in_one_kernel_is_a_split(key: jax.Array):
    for shape in (5, (4, 2)):
        actual, expected = split_in_one_kernel(key, shape), jax.random.split(key, shape)
        assert actual.dtype == expected.dtype
        np.testing.assert_array_equal(jax.random.key_data(actual), jax.random.key_data(expected))


@pytest.mark.parametrize("key", [TYPED, RAW, OTHER], ids=["typed", "raw", "other generator"])
def test_keys_in_one_array_are_the_same_keys(key: jax.Array):
    one, *_ = keys = jax.random.split(key, 6)
    several = keys.reshape(3, 2, *key.shape)
    for actual, expected in zip(join_keys(one, several), (one, several), strict=True):
        assert (actual.shape, actual.dtype) == (expected.shape, expected.dtype)
        assert np.all(actual == expected)
