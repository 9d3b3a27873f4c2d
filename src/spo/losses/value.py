"""Regression of values on targets. Only the value receives a gradient."""

import jax
import jax.numpy as jnp

from spo.types import Array, Float


def squared_error(value: Float[Array, "*batch"], target: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
    """(V − sg[target])², without a ½ (paper, Algorithm 2, update of the value function)."""
    return (value - jax.lax.stop_gradient(target)) ** 2


def clipped_squared_error(
    value: Float[Array, "*batch"], old_value: Float[Array, "*batch"], target: Float[Array, "*batch"], clip: float
) -> Float[Array, "*batch"]:
    """max((V − sg[target])², (V_old + clip(V − V_old, −c, c) − sg[target])²), as in PPO's original code.

    A value that is more than c away from its value at the rollout gets no gradient away from there.
    """
    old_value = jax.lax.stop_gradient(old_value)
    near_value = old_value + jnp.clip(value - old_value, -clip, clip)
    return jnp.maximum(squared_error(value, target), squared_error(near_value, target))


def huber(value: Float[Array, "*batch"], target: Float[Array, "*batch"], delta: float) -> Float[Array, "*batch"]:
    """½e² for |e| ≤ δ, else δ(|e| − ½δ), with e = V − sg[target]: the slope is at most δ."""
    size = jnp.abs(value - jax.lax.stop_gradient(target))
    inside = jnp.minimum(size, delta)
    return inside * (size - 0.5 * inside)
