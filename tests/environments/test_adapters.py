"""Helpers of the adapters."""

import jax
import jax.numpy as jnp
import pytest

from spo.environments._adapters import jit_foreign


def test_other_libraries_are_traced_once():
    traced = []

    def step(state, action):
        traced.append(1)
        return state + action

    foreign = jit_foreign(step)
    for batch in (3, 5):  # roots, particles
        jax.jit(jax.vmap(foreign)).lower(jnp.zeros((batch, 2)), jnp.zeros((batch, 2)))
    jax.eval_shape(foreign, jnp.zeros(2), jnp.zeros(2))
    assert len(traced) == 1
    program = jax.make_jaxpr(jax.vmap(foreign))(jnp.zeros((3, 2)), jnp.zeros((3, 2)))
    assert [equation.primitive.name for equation in program.eqns] == ["add"]  # the call is inlined


def test_other_libraries_may_promote_ranks():
    def step(state, action):
        return state + action

    arguments = jnp.zeros((2, 3)), jnp.zeros(3)
    with jax.numpy_rank_promotion("raise"):
        with pytest.raises(ValueError, match="rank_promotion"):
            step(*arguments)
        assert jit_foreign(step)(*arguments).shape == (2, 3)
