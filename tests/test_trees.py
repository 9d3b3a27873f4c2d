"""Tests of functions of pytrees."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spo.trees import select


@pytest.mark.parametrize("make_mask", [jnp.array, np.array], ids=["jax", "numpy"])
def test_a_mask_selects_entries_of_leaves_of_any_rank(make_mask):
    mask = make_mask([[True, False], [False, True], [True, True]])
    shapes = {"as the mask": (3, 2), "longer": (3, 2, 4, 1)}
    ones, zeros = ({name: make(shape) for name, shape in shapes.items()} for make in (jnp.ones, jnp.zeros))
    selected = select(mask, ones, zeros)
    np.testing.assert_array_equal(selected["as the mask"], np.asarray(mask, float))
    np.testing.assert_array_equal(selected["longer"], np.broadcast_to(mask[..., None, None], (3, 2, 4, 1)))


@pytest.mark.parametrize("make", [jax.random.key, jax.random.PRNGKey], ids=["typed", "raw"])
def test_keys_and_other_types_stay_as_they_are(make):
    key = make(0)
    one, other = ((jax.random.split(key, (4,)), jnp.arange(4, dtype=jnp.int8)) for key in jax.random.split(key))
    keys, numbers = select(jnp.array([True, False, False, True]), one, other)
    assert (keys.dtype, keys.shape, numbers.dtype) == (one[0].dtype, one[0].shape, jnp.int8)
    for index, expected in enumerate([one, other, other, one]):
        assert np.all(keys[index] == expected[0][index])


def test_a_scalar_mask_selects_whole_trees():
    tree = {"a": jnp.ones((2, 3)), "b": None}
    selected = select(jnp.array(False), tree, jax.tree.map(jnp.zeros_like, tree))
    assert selected["b"] is None
    np.testing.assert_array_equal(selected["a"], np.zeros((2, 3)))
