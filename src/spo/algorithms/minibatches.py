"""Learning from one rollout in several passes of shuffled minibatches, after which it is discarded: PPO and V-MPO."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from spo.algorithms.updates import run_updates
from spo.types import DEVICE_AXIS, Array, Float, Integer, Metrics, PRNGKey, PyTree, Shaped

Learner = TypeVar("Learner", bound=Any)


def check_minibatches(num_envs: int, rollout_length: int, num_minibatches: int) -> None:
    """Raises ValueError unless a rollout of one device's environments can be split into equal minibatches."""
    num_steps = num_envs * rollout_length
    if num_minibatches < 1 or num_steps % num_minibatches:
        raise ValueError(
            f"num_minibatches ({num_minibatches}) must divide a device's steps of a rollout, "
            f"{num_envs} environments x {rollout_length} steps = {num_steps}."
        )


#: Most states whose values are computed at once, if a time step has fewer.
_MAX_STATES = 4096


def values_over_time(critic: Callable[[Any], Float[Array, ""]], observations: PyTree[Array]) -> Float[Array, "T E"]:
    """Returns the values of a rollout, leaves [T, E, ...], a few time steps after the others to save memory."""
    length, num_envs = jax.tree.leaves(observations)[0].shape[:2]
    steps = max(n for n in range(1, length + 1) if length % n == 0 and (n == 1 or n * num_envs <= _MAX_STATES))
    parts = jax.tree.map(lambda x: x.reshape(length // steps, steps * num_envs, *x.shape[2:]), observations)
    return jax.lax.map(jax.vmap(critic), parts).reshape(length, num_envs)


def learn_in_minibatches(
    update: Callable[[Learner, PyTree[Array]], tuple[Learner, Metrics]],
    learner: Learner,
    rollout: PyTree[Array],
    key: PRNGKey,
    *,
    num_epochs: int,
    num_minibatches: int,
    skip_nonfinite: bool,
) -> tuple[Learner, Metrics]:
    """Makes `num_epochs` passes over a rollout, leaves [T, E, ...], with one update per minibatch.

    Each pass shuffles all steps again, over environments and time. `update(learner, minibatch)` returns the learner and
    metrics; `run_updates` averages the metrics.
    """
    steps = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), rollout)
    num_steps = jax.tree.leaves(steps)[0].shape[0]
    run = functools.partial(run_updates, skip_nonfinite=skip_nonfinite)
    if num_minibatches == 1:  # one batch of everything needs no order
        return run(lambda learner, _: update(learner, steps), learner, jnp.arange(num_epochs))

    key_shuffle = jax.random.split(key)[0]  # splitting keeps the order of minibatches of earlier versions
    orders = jax.vmap(lambda key: jax.random.permutation(key, num_steps))(jax.random.split(key_shuffle, num_epochs))
    members = orders.reshape(num_epochs * num_minibatches, -1)

    def update_on(learner: Learner, indices: Integer[Array, " B"]) -> tuple[Learner, Metrics]:
        return update(learner, jax.tree.map(lambda x: x[indices], steps))

    return run(update_on, learner, members)


# --- Batches over all devices -----------------------------------------------------------------------------------------
# An equation that compares the states of a batch must give the same result on any number of devices.


def gather_from_devices(values: Shaped[Array, " B"]) -> Shaped[Array, " devices*B"]:
    """Returns the values of all devices in one array."""
    return jax.lax.all_gather(values, DEVICE_AXIS, tiled=True)


def slice_of_device(values: Shaped[Array, " devices*B"], size: int) -> Shaped[Array, " B"]:
    """Returns this device's part of a gathered array: the inverse of `gather_from_devices`."""
    return jax.lax.dynamic_slice_in_dim(values, jax.lax.axis_index(DEVICE_AXIS) * size, size)
